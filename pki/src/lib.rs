//! freehold-pki
