//! freehold-apiserver-authn
