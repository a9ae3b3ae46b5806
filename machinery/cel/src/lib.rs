//! freehold-machinery-cel
