//! Controllers of the tenancy subsystem, on any Kubernetes API.
