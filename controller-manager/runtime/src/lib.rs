//! freehold-controller-manager-runtime
