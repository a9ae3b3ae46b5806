//! freehold-provisioner
