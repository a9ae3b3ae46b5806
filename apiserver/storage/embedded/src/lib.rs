//! freehold-apiserver-storage-embedded
