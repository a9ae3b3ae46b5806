//! freehold-apiserver-planes
