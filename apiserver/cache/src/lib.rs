//! freehold-apiserver-cache
