//! History of workflow runs in a database: SQLite or PostgreSQL.
