//! freehold-apiserver-storage-etcd
