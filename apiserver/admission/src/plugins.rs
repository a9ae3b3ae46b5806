//! The built-in plugins, one module each.

pub mod certificates;
pub mod claim_resize;
pub mod default_class;
pub mod lifecycle;
pub mod limit_ranger;
pub mod node_restriction;
pub mod node_taint;
pub mod owner_references;
pub mod pod_security;
pub mod priority;
pub mod runtime_class;
pub mod service_account;
pub mod storage_in_use;
pub mod tolerations;
