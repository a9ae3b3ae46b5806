//! `freehold tenancy`: the subsystem's commands.
