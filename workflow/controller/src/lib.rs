//! Controllers of the workflow subsystem, on any Kubernetes API.
