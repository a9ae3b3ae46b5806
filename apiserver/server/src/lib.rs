//! freehold-apiserver-server
