//! freehold-api
