//! Admission of the tenancy subsystem: decisions on requests, and the webhook that serves them.
