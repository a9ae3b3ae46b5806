//! `tenancy.freehold.dev/v1alpha1`: the kinds of the tenancy subsystem.
