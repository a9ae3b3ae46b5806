//! freehold-controller-manager
