//! freehold-apiserver-authz
