//! freehold-client
