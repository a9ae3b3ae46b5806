//! Decisions of the tenancy subsystem: pure functions from observed objects to actions.
