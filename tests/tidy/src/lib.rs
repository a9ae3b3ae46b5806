//! freehold-tests-tidy
