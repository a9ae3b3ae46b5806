//! freehold-tests-integration
