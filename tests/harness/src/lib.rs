//! freehold-tests-harness
