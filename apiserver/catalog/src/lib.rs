//! freehold-apiserver-catalog
