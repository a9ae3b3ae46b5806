//! freehold-tests-bench
