//! The command lines of a pair: the one place that knows the flags of `freehold apiserver` and
//! `freehold controller-manager`, and where their files are.
//!
//! A file is always named by its full path below a mount path of this module, so that a node without mounts (`node/`)
//! can put the real directory in its place.

use super::spec::{Inputs, Spec};

/// The port of an apiserver.
pub const PORT: u16 = 6443;
/// Where the serving certificate is (`tls.crt`, `tls.key`), and its authority (`ca.crt`).
pub const SERVING_DIR: &str = "/etc/freehold/serving";
/// Where the certificate for etcd is (`tls.crt`, `tls.key`, `ca.crt`).
pub const ETCD_DIR: &str = "/etc/freehold/etcd";
/// Where the certificate for aggregated servers is (`tls.crt`, `tls.key`).
pub const PROXY_DIR: &str = "/etc/freehold/proxy";
/// Where it stands who the apiserver is to webhooks (`admission.json`).
pub const ADMISSION_DIR: &str = "/etc/freehold/admission";
/// Where the CAs of clients are (`client-ca.crt`, `front-proxy-ca.crt`).
pub const TRUST_DIR: &str = "/etc/freehold/trust";
/// Where the key of service account tokens is (`service-account.key`).
pub const SERVICE_ACCOUNT_DIR: &str = "/etc/freehold/service-account";
/// Where the controller manager's kubeconfig is (`kubeconfig`).
pub const KUBECONFIG_DIR: &str = "/etc/freehold/kubeconfig";

/// The file in [`ADMISSION_DIR`].
pub const ADMISSION_FILE: &str = "admission.json";

/// `freehold apiserver ...`. `$(POD_IP)` is expanded by the node.
pub fn apiserver(spec: &Spec, inputs: &Inputs) -> Vec<String> {
    let mut flags = vec![
        ("plane", spec.plane.clone()),
        ("project", spec.project.clone()),
        ("organization", spec.organization.clone()),
        ("class", spec.class.clone()),
        ("listen", format!("$(POD_IP):{PORT}")),
        ("etcd", inputs.etcd.endpoints.join(",")),
        ("etcd-prefix", inputs.etcd.prefix.clone()),
    ];
    if inputs.etcd.ca_pem.is_some() {
        flags.push(("etcd-ca", format!("{ETCD_DIR}/ca.crt")));
        flags.push(("etcd-cert", format!("{ETCD_DIR}/tls.crt")));
        flags.push(("etcd-key", format!("{ETCD_DIR}/tls.key")));
    }
    flags.extend([
        ("tls-cert", format!("{SERVING_DIR}/tls.crt")),
        ("tls-key", format!("{SERVING_DIR}/tls.key")),
        ("serving-ca", format!("{SERVING_DIR}/ca.crt")),
        ("client-ca", format!("{TRUST_DIR}/client-ca.crt")),
        ("front-proxy-ca", format!("{TRUST_DIR}/front-proxy-ca.crt")),
        ("front-proxy-names", inputs.trust.front_proxy_names.join(",")),
        ("service-account-key", format!("{SERVICE_ACCOUNT_DIR}/service-account.key")),
    ]);
    if !inputs.outbound_networks.is_empty() {
        flags.push(("outbound-networks", inputs.outbound_networks.clone()));
    }
    if inputs.credentials.proxy.is_some() {
        flags.push(("proxy-client-cert", format!("{PROXY_DIR}/tls.crt")));
        flags.push(("proxy-client-key", format!("{PROXY_DIR}/tls.key")));
    }
    // Optional ones come last, so that manifests in git can append them.
    let plugins = &inputs.admission_plugins;
    for (flag, names) in
        [("enable-admission-plugins", &plugins.enable), ("disable-admission-plugins", &plugins.disable)]
    {
        if !names.is_empty() {
            flags.push((flag, names.join(",")));
        }
    }
    if plugins.configuration.is_some() {
        flags.push(("admission-control-config-file", format!("{ADMISSION_DIR}/{ADMISSION_FILE}")));
    }
    command_line("apiserver", &flags)
}

/// The command line of the pair's controller manager: `freehold controller-manager ...`.
pub fn controller_manager(spec: &Spec) -> Vec<String> {
    let flags = [("plane", spec.plane.clone()), ("kubeconfig", format!("{KUBECONFIG_DIR}/kubeconfig"))];
    command_line("controller-manager", &flags)
}

fn command_line(program: &str, flags: &[(&str, String)]) -> Vec<String> {
    let start = ["freehold".to_owned(), program.to_owned()];
    start.into_iter().chain(flags.iter().map(|(flag, value)| format!("--{flag}={value}"))).collect()
}
