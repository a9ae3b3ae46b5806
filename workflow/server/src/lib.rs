//! REST server of the workflow subsystem.
