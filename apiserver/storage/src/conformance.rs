//! The suite that each engine passes.
