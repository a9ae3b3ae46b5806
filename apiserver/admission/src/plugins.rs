//! The built-in plugins, one module each.

pub mod always_pull;
pub mod anti_affinity;
pub mod certificates;
pub mod claim_resize;
pub mod declared_features;
pub mod default_class;
pub mod extended_toleration;
pub mod external_ips;
pub mod lifecycle;
pub mod limit_ranger;
pub mod node_restriction;
pub mod node_taint;
pub mod owner_references;
pub mod pod_resize;
pub mod pod_security;
pub mod priority;
pub mod runtime_class;
pub mod service_account;
pub mod storage_in_use;
pub mod tolerations;
pub mod topology_labels;
