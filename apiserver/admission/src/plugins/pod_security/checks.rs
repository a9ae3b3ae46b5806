//! The requirements of the levels on a Pod: a table of checks, each with the minor version that introduced it.

use super::{Level, Standard};
use freehold_machinery::Value;
use std::{collections::BTreeSet, fmt};

/// What is wrong about a Pod: a reason and its detail.
type Violation = (String, String);
type Check = fn(&Pod<'_>) -> Option<Violation>;

/// A row: when it applies, and which row of `Baseline` it replaces.
struct Row {
    level: Level,
    /// First and last minor version; `u32::MAX` goes on.
    versions: (u32, u32),
    check: Check,
    /// Minor version since which `Restricted` has a check of its own in place of this one.
    replaced: u32,
}

const NEVER: u32 = u32::MAX;

const fn row(level: Level, versions: (u32, u32), check: Check) -> Row {
    Row { level, versions, check, replaced: NEVER }
}

use Level::{Baseline, Restricted};

/// In the order in which violations are told.
static CHECKS: &[Row] = &[
    row(Baseline, (0, NEVER), app_armor),
    Row { replaced: 22, ..row(Baseline, (0, NEVER), added_capabilities) },
    row(Baseline, (0, NEVER), host_namespaces),
    Row { replaced: 0, ..row(Baseline, (0, NEVER), host_paths) },
    row(Baseline, (0, NEVER), host_ports),
    row(Baseline, (34, NEVER), probe_hosts),
    row(Baseline, (0, NEVER), privileged),
    row(Baseline, (0, 34), proc_mount),
    Row {
        replaced: 35,
        ..row(Baseline, (35, NEVER), |pod| if pod.has_own_users() { None } else { proc_mount(pod) })
    },
    row(Baseline, (0, 30), |pod| se_linux(pod, &SE_LINUX[..4])),
    row(Baseline, (31, NEVER), |pod| se_linux(pod, &SE_LINUX)),
    row(Baseline, (0, 18), seccomp_annotations),
    Row { replaced: 19, ..row(Baseline, (19, NEVER), seccomp) },
    row(Baseline, (0, 26), |pod| sysctls(pod, &SYSCTLS[..5])),
    row(Baseline, (27, 28), |pod| sysctls(pod, &SYSCTLS[..6])),
    row(Baseline, (29, 31), |pod| sysctls(pod, &SYSCTLS[..10])),
    row(Baseline, (32, NEVER), |pod| sysctls(pod, &SYSCTLS)),
    row(Baseline, (0, NEVER), host_process),
    row(Restricted, (8, 24), privilege_escalation),
    row(Restricted, (25, NEVER), |pod| if pod.is_windows() { None } else { privilege_escalation(pod) }),
    row(Restricted, (22, 24), capabilities),
    row(Restricted, (25, NEVER), |pod| if pod.is_windows() { None } else { capabilities(pod) }),
    row(Restricted, (35, NEVER), proc_mount),
    row(Restricted, (0, NEVER), volume_types),
    row(Restricted, (0, 34), non_root),
    row(Restricted, (35, NEVER), |pod| if pod.has_own_users() { None } else { non_root(pod) }),
    row(Restricted, (23, 34), root_user),
    row(Restricted, (35, NEVER), |pod| if pod.has_own_users() { None } else { root_user(pod) }),
    row(Restricted, (19, 24), seccomp_is_set),
    row(Restricted, (25, NEVER), |pod| if pod.is_windows() { None } else { seccomp_is_set(pod) }),
];

const SE_LINUX: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Everything that a standard finds wrong about a Pod.
pub(super) struct Violations(Vec<Violation>);

impl Violations {
    pub(super) fn of(pod: &Value, standard: &Standard) -> Self {
        let minor = standard.version.unwrap_or(NEVER - 1);
        let applies = |row: &&Row| {
            let replaced = standard.level == Restricted && row.level == Baseline && minor >= row.replaced;
            row.level <= standard.level && (row.versions.0..=row.versions.1).contains(&minor) && !replaced
        };
        if standard.level == Level::Privileged {
            return Self(Vec::new());
        }
        let pod = Pod::of(pod);
        Self(CHECKS.iter().filter(applies).filter_map(|row| (row.check)(&pod)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Without details.
    pub(super) fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().map(|(reason, _)| reason.as_str()).collect();
        reasons.join(", ")
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (reason, detail)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match detail.as_str() {
                "" => write!(f, "{comma}{reason}")?,
                detail => write!(f, "{comma}{reason} ({detail})")?,
            }
        }
        Ok(())
    }
}

/// A Pod or the template of one.
struct Pod<'a> {
    annotations: &'a Value,
    spec: &'a Value,
    /// Containers, init containers and ephemeral containers.
    containers: Vec<&'a Value>,
}

fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = items.into_iter().map(|item| format!("\"{item}\"")).collect();
    quoted.join(", ")
}

fn plural(count: usize, one: &str, many: &str) -> String {
    if count == 1 { one.to_owned() } else { many.to_owned() }
}

/// `container "a"`, `containers "a", "b"`.
fn named(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names.iter().copied()))
}

/// `pod and container "a"`: who set something.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".to_owned()),
        (false, false) => Some(named(names)),
        (true, false) => Some(format!("pod and {}", named(names))),
    }
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap_or_default()
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn found(reason: &str, detail: String) -> Option<Violation> {
    Some((reason.to_owned(), detail))
}

impl<'a> Pod<'a> {
    fn of(pod: &'a Value) -> Self {
        let spec = &pod["spec"];
        let sorts = ["initContainers", "containers", "ephemeralContainers"];
        let containers = sorts.iter().filter_map(|sort| spec[*sort].as_array()).flatten().collect();
        Self { annotations: &pod["metadata"]["annotations"], spec, containers }
    }

    fn is_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Whether its users are not those of the machine.
    fn has_own_users(&self) -> bool {
        self.spec["hostUsers"] == false
    }

    fn security(&self) -> &'a Value {
        &self.spec["securityContext"]
    }

    /// The names of containers whose security context is bad.
    fn bad(&self, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers.iter().filter(|c| is_bad(&c["securityContext"])).map(|c| name(c)).collect()
    }
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |context: &Value| {
        let profile = &context["appArmorProfile"];
        let kind = profile["type"].as_str().unwrap_or_default();
        let bad = profile.is_object() && !["RuntimeDefault", "Localhost"].contains(&kind);
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    };
    let by_pod = is_bad(pod.security());
    let containers = pod.bad(&mut is_bad);
    let mut annotations: Vec<String> = Vec::new();
    for (key, value) in pod.annotations.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let fine = value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
        if key.starts_with("container.apparmor.security.beta.kubernetes.io/") && !fine {
            annotations.push(format!("{key}={value:?}"));
        }
    }
    annotations.sort();
    let mut who: Vec<String> = setters(by_pod, &containers).into_iter().collect();
    if !annotations.is_empty() {
        who.push(plural(annotations.len(), "annotation", "annotations"));
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    let reason = plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
    let list = quoted(values.iter().map(String::as_str));
    found(&reason, format!("{} must not set AppArmor profile type to {list}", who.join(" and ")))
}

fn added_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let mut added = BTreeSet::new();
    let bad = pod.bad(|context| {
        let before = added.len();
        let list: Vec<&str> =
            strings(&context["capabilities"]["add"]).filter(|c| !CAPABILITIES.contains(c)).collect();
        added.extend(list.iter().copied());
        added.len() > before || !list.is_empty()
    });
    let list = quoted(added.iter().copied());
    let detail = || format!("{} must not include {list} in securityContext.capabilities.add", named(&bad));
    if bad.is_empty() { None } else { found("non-default capabilities", detail()) }
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let keeps = pod.bad(|context| !strings(&context["capabilities"]["drop"]).any(|c| c == "ALL"));
    let mut added = BTreeSet::new();
    let adds = pod.bad(|context| {
        let list: Vec<&str> =
            strings(&context["capabilities"]["add"]).filter(|c| *c != "NET_BIND_SERVICE").collect();
        added.extend(list.iter().copied());
        !list.is_empty()
    });
    let mut details = Vec::new();
    if !keeps.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&keeps)));
    }
    if !adds.is_empty() {
        let list = quoted(added.iter().copied());
        details.push(format!("{} must not include {list} in securityContext.capabilities.add", named(&adds)));
    }
    if details.is_empty() { None } else { found("unrestricted capabilities", details.join("; ")) }
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[*field] == true);
    let set: Vec<String> = set.map(|field| format!("{field}=true")).collect();
    if set.is_empty() { None } else { found("host namespaces", set.join(", ")) }
}

fn volumes<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a Value> {
    pod.spec["volumes"].as_array().into_iter().flatten()
}

fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let bad: Vec<&str> = volumes(pod).filter(|v| v["hostPath"].is_object()).map(name).collect();
    let detail = || format!("{} {}", plural(bad.len(), "volume", "volumes"), quoted(bad.iter().copied()));
    if bad.is_empty() { None } else { found("hostPath volumes", detail()) }
}

fn volume_types(pod: &Pod<'_>) -> Option<Violation> {
    let is_fine = |v: &&Value| VOLUMES.iter().any(|kind| v[*kind].is_object());
    let bad: Vec<&Value> = volumes(pod).filter(|v| !is_fine(v)).collect();
    if bad.is_empty() {
        return None;
    }
    let kind = |v: &&Value| {
        let keys = v.as_object().into_iter().flatten();
        let mut kinds =
            keys.filter(|(key, value)| *key != "name" && value.is_object()).map(|(key, _)| key.clone());
        kinds.next_back().unwrap_or_else(|| "unknown".to_owned())
    };
    let kinds: BTreeSet<String> = bad.iter().map(kind).collect();
    let detail = format!(
        "{} {} {} {} {}",
        plural(bad.len(), "volume", "volumes"),
        quoted(bad.iter().map(|v| name(v))),
        plural(bad.len(), "uses", "use"),
        plural(kinds.len(), "restricted volume type", "restricted volume types"),
        quoted(kinds.iter().map(String::as_str)),
    );
    found("restricted volume types", detail)
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports_of = |c: &Value| -> Vec<String> {
        let ports = c["ports"].as_array().into_iter().flatten().filter_map(|port| port["hostPort"].as_u64());
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let bad: Vec<&&Value> = pod.containers.iter().filter(|c| !ports_of(c).is_empty()).collect();
    let ports: BTreeSet<String> = bad.iter().flat_map(|c| ports_of(c)).collect();
    let names: Vec<&str> = bad.iter().map(|c| name(c)).collect();
    let uses = plural(names.len(), "uses", "use");
    let what = plural(ports.len(), "hostPort", "hostPorts");
    let list: Vec<String> = ports.into_iter().collect();
    let detail = || format!("{} {uses} {what} {}", named(&names), list.join(", "));
    if names.is_empty() { None } else { found("hostPort", detail()) }
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    let handlers =
        ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in &pod.containers {
        for handler in handlers.iter().filter_map(|pointer| container.pointer(pointer)) {
            for host in ["httpGet", "tcpSocket"].iter().filter_map(|kind| handler[*kind]["host"].as_str()) {
                if !host.is_empty() {
                    names.insert(name(container));
                    hosts.insert(host);
                }
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    let uses = plural(names.len(), "uses", "use");
    let what = plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    found("probe or lifecycle host", format!("{} {uses} {what} {}", named(&names), quoted(hosts)))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let bad = pod.bad(|context| context["privileged"] == true);
    let detail = || format!("{} must not set securityContext.privileged=true", named(&bad));
    if bad.is_empty() { None } else { found("privileged", detail()) }
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let bad = pod.bad(|context| context["allowPrivilegeEscalation"] != false);
    let detail = || format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&bad));
    if bad.is_empty() { None } else { found("allowPrivilegeEscalation != false", detail()) }
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let bad = pod.bad(|context| {
        let kind = context["procMount"].as_str().filter(|kind| *kind != "Default");
        kinds.extend(kind);
        kind.is_some()
    });
    let list = quoted(kinds);
    let detail = || format!("{} must not set securityContext.procMount to {list}", named(&bad));
    if bad.is_empty() { None } else { found("procMount", detail()) }
}

fn se_linux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut is_bad = |context: &Value| {
        let options = &context["seLinuxOptions"];
        let text = |field: &str| options[field].as_str().unwrap_or_default().to_owned();
        let bad_type = !allowed.contains(&text("type").as_str());
        if bad_type {
            types.insert(text("type"));
        }
        user |= !text("user").is_empty();
        role |= !text("role").is_empty();
        options.is_object() && (bad_type || !text("user").is_empty() || !text("role").is_empty())
    };
    let by_pod = is_bad(pod.security());
    let containers = pod.bad(&mut is_bad);
    let who = setters(by_pod, &containers)?;
    let mut data = Vec::new();
    if !types.is_empty() {
        let list = quoted(types.iter().map(String::as_str));
        data.push(format!("{} {list}", plural(types.len(), "type", "types")));
    }
    data.extend(user.then(|| "user may not be set".to_owned()));
    data.extend(role.then(|| "role may not be set".to_owned()));
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", data.join("; "));
    found("seLinuxOptions", detail)
}

fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let of_containers =
        pod.containers.iter().map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", name(c)));
    let keys = ["seccomp.security.alpha.kubernetes.io/pod".to_owned()].into_iter().chain(of_containers);
    let mut bad = BTreeSet::new();
    for key in keys {
        let Some(value) = pod.annotations[key.as_str()].as_str() else { continue };
        if !["runtime/default", "docker/default"].contains(&value) && !value.starts_with("localhost/") {
            bad.insert(format!("{key}={value:?}"));
        }
    }
    let list: Vec<String> = bad.into_iter().collect();
    let what = plural(list.len(), "annotation", "annotations");
    if list.is_empty() {
        None
    } else {
        found("seccompProfile", format!("forbidden {what} {}", list.join(", ")))
    }
}

/// The type of a seccomp profile that is set to something bad.
fn bad_seccomp(context: &Value) -> Option<&str> {
    let profile = &context["seccompProfile"];
    let kind = profile["type"].as_str().unwrap_or_default();
    (profile.is_object() && !["Localhost", "RuntimeDefault"].contains(&kind)).then_some(kind)
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds: BTreeSet<&str> = bad_seccomp(pod.security()).into_iter().collect();
    let by_pod = !kinds.is_empty();
    let bad = pod.bad(|context| {
        kinds.extend(bad_seccomp(context));
        bad_seccomp(context).is_some()
    });
    let who = setters(by_pod, &bad)?;
    let list = quoted(kinds);
    found("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {list}"))
}

fn seccomp_is_set(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(violation) = seccomp(pod) {
        return Some(violation);
    }
    let by_pod = pod.security()["seccompProfile"].is_object();
    let bad = pod.bad(|context| !by_pod && !context["seccompProfile"].is_object());
    let detail = || {
        let who = named(&bad);
        format!(
            "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        )
    };
    if bad.is_empty() { None } else { found("seccompProfile", detail()) }
}

fn sysctls(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let set = pod.security()["sysctls"].as_array().into_iter().flatten().map(name);
    let bad: Vec<&str> = set.filter(|name| !allowed.contains(name)).collect();
    if bad.is_empty() { None } else { found("forbidden sysctls", bad.join(", ")) }
}

fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
    let who = setters(is_bad(pod.security()), &pod.bad(is_bad))?;
    found("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn non_root(pod: &Pod<'_>) -> Option<Violation> {
    let reason = "runAsNonRoot != true";
    let explicit = pod.bad(|context| context["runAsNonRoot"] == false);
    if let Some(who) = setters(pod.security()["runAsNonRoot"] == false, &explicit) {
        return found(reason, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let by_pod = pod.security()["runAsNonRoot"] == true;
    let bad = pod.bad(|context| !by_pod && !context["runAsNonRoot"].is_boolean());
    let detail = || format!("pod or {} must set securityContext.runAsNonRoot=true", named(&bad));
    if bad.is_empty() { None } else { found(reason, detail()) }
}

fn root_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |context: &Value| context["runAsUser"] == 0;
    let who = setters(is_root(pod.security()), &pod.bad(is_root))?;
    found("runAsUser=0", format!("{who} must not set runAsUser=0"))
}
