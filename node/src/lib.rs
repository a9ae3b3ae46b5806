//! freehold-node
