//! freehold-apiserver-admission
