//! Local accounts of the server, and their tokens, which are known by hash alone.

use crate::database::Database;
use crate::sql::Sql;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use sqlx::Row as _;

/// What an account may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read.
    #[default]
    Viewer,
    /// Read, run and change.
    Editor,
    /// Manage accounts as well.
    Admin,
}

impl Role {
    /// Returns the name of the role: `viewer`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Editor => "editor",
            Self::Admin => "admin",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Viewer, Self::Editor, Self::Admin]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| format!("role {text:?}: viewer, editor or admin"))
    }
}

/// A local account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// The argon2 hash of its password.
    pub password_hash: String,
    /// What it may do.
    pub role: Role,
    /// When it was created.
    pub created_at: i64,
}

/// A token of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// The SHA-256 of the token, in hex.
    pub hash: String,
    /// The account's name.
    pub account: String,
    /// When it was issued.
    pub created_at: i64,
    /// When it ends.
    pub expires_at: i64,
}

impl Database {
    /// Creates an account; `false` where the name is taken.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn create_account(&self, account: &Account) -> Result<bool> {
        let mut sql = Sql::new("INSERT INTO accounts (name, password_hash, role, created_at) VALUES (");
        sql.text(&account.name)
            .push(", ")
            .text(&account.password_hash)
            .push(", ")
            .text(account.role.as_str());
        sql.push(", ").int(account.created_at).push(") ON CONFLICT (name) DO NOTHING");
        self.change(sql).await.map(|changed| changed > 0)
    }

    /// Sets the hash of a password, and ends the account's tokens.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn set_password(&self, name: &str, hash: &str) -> Result<bool> {
        let mut sql = Sql::new("UPDATE accounts SET password_hash = ");
        sql.text(hash).push(" WHERE name = ").text(name);
        let changed = self.change(sql).await? > 0;
        self.end_tokens(name).await?;
        Ok(changed)
    }

    /// Deletes an account with its tokens; `false` where there is none.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn delete_account(&self, name: &str) -> Result<bool> {
        let mut sql = Sql::new("DELETE FROM accounts WHERE name = ");
        sql.text(name);
        let deleted = self.change(sql).await? > 0;
        self.end_tokens(name).await?;
        Ok(deleted)
    }

    /// Reads an account.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn account(&self, name: &str) -> Result<Option<Account>> {
        let mut sql = Sql::new("SELECT name, password_hash, role, created_at FROM accounts WHERE name = ");
        sql.text(name);
        sql.query().fetch_optional(&self.pool).await?.as_ref().map(read).transpose()
    }

    /// Lists accounts after a name, 100 at most.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn accounts(&self, after: &str) -> Result<Vec<Account>> {
        let mut sql = Sql::new("SELECT name, password_hash, role, created_at FROM accounts WHERE name > ");
        sql.text(after).push(" ORDER BY name LIMIT 100");
        sql.query().fetch_all(&self.pool).await?.iter().map(read).collect()
    }

    /// Keeps a token, and drops those that have ended.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn keep_token(&self, token: &TokenRecord) -> Result<()> {
        let mut sql = Sql::new("DELETE FROM tokens WHERE expires_at < ");
        sql.int(token.created_at);
        self.change(sql).await?;
        let mut sql = Sql::new("INSERT INTO tokens (hash, account, created_at, expires_at) VALUES (");
        sql.text(&token.hash).push(", ").text(&token.account).push(", ").int(token.created_at).push(", ");
        sql.int(token.expires_at).push(") ON CONFLICT (hash) DO NOTHING");
        self.change(sql).await.map(drop)
    }

    /// Returns the account of a token that has not ended at `now`, with its role as it is today.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn account_of_token(&self, hash: &str, now: i64) -> Result<Option<Account>> {
        let mut sql = Sql::new(
            "SELECT a.name, a.password_hash, a.role, a.created_at FROM tokens t JOIN accounts a ON a.name = t.account \
             WHERE t.hash = ",
        );
        sql.text(hash).push(" AND t.expires_at > ").int(now);
        sql.query().fetch_optional(&self.pool).await?.as_ref().map(read).transpose()
    }

    /// Ends a token.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn end_token(&self, hash: &str) -> Result<()> {
        let mut sql = Sql::new("DELETE FROM tokens WHERE hash = ");
        sql.text(hash);
        self.change(sql).await.map(drop)
    }

    async fn end_tokens(&self, account: &str) -> Result<()> {
        let mut sql = Sql::new("DELETE FROM tokens WHERE account = ");
        sql.text(account);
        self.change(sql).await.map(drop)
    }

    /// Executes one statement in a transaction and returns how many rows it changed.
    async fn change(&self, sql: Sql) -> Result<u64> {
        let mut write = self.begin().await?;
        let changed = sql.query().execute(&mut *write.tx).await?.rows_affected();
        write.commit().await?;
        Ok(changed)
    }
}

fn read(row: &sqlx::any::AnyRow) -> Result<Account> {
    Ok(Account {
        name: row.try_get("name")?,
        password_hash: row.try_get("password_hash")?,
        role: row.try_get::<String, _>("role")?.parse().map_err(Error::Database)?,
        created_at: row.try_get("created_at")?,
    })
}
