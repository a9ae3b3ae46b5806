//! `freehold workflow`: the subsystem's commands.
