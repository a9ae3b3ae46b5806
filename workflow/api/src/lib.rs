//! `workflow.freehold.dev/v1alpha1`: the kinds of the workflow subsystem.
