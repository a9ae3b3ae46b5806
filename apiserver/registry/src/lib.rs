//! freehold-apiserver-registry
