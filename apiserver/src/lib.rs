//! freehold-apiserver
