//! Containers: names, images, ports, environment, mounts, probes, resources.

use super::{
    field::{Errors, Field},
    resources::container_resources,
    rules,
};
use freehold_machinery::names;
use std::collections::BTreeSet;

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
/// Fields of a container that only those have which run along with the others.
const OF_RUNNING: [&str; 4] = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];

/// What the containers of a pod refer to.
pub(super) struct Pod<'a> {
    /// Names of volumes that are valid, each with its source.
    pub(super) volumes: BTreeSet<&'a str>,
    /// Names of volumes that can be devices.
    pub(super) claims: BTreeSet<&'a str>,
}

/// All containers of a pod spec.
pub(super) fn containers(spec: &Field<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    let regular = spec.get("containers");
    if regular.is_empty() {
        errors.push(regular.required(""));
    }
    for container in regular.items() {
        common(&container, pod, errors);
        unique(&container, &mut names, errors);
        running(&container, errors);
    }
    host_ports(regular.items(), errors);
    for container in spec.get("initContainers").items() {
        common(&container, pod, errors);
        unique(&container, &mut names, errors);
        host_ports(std::iter::once(container.clone()), errors);
        init(&container, errors);
    }
    for container in spec.get("ephemeralContainers").items() {
        common(&container, pod, errors);
        unique(&container, &mut names, errors);
        for field in OF_RUNNING.into_iter().chain(["ports"]) {
            if !container.get(field).is_empty() {
                errors.push(container.get(field).forbidden("cannot be set for an Ephemeral Container"));
            }
        }
    }
}

fn unique<'a>(container: &Field<'a>, names: &mut BTreeSet<&'a str>, errors: &mut Errors) {
    let name = container.get("name");
    if !name.text().is_empty() && !names.insert(name.text()) {
        errors.push(name.duplicate());
    }
}

fn init(container: &Field<'_>, errors: &mut Errors) {
    let policy = container.get("restartPolicy");
    rules::optional_one_of(&policy, &["Always", "Never", "OnFailure"], errors);
    if policy.text() == "Always" {
        return running(container, errors);
    }
    for field in OF_RUNNING.map(|field| container.get(field)).into_iter().filter(Field::is_set) {
        errors.push(field.forbidden("may not be set for init containers without restartPolicy=Always"));
    }
}

fn common(container: &Field<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    rules::required_name(&container.get("name"), names::dns1123_label, errors);
    rules::required(&container.get("image"), errors);
    rules::one_of(&container.get("terminationMessagePolicy"), &MESSAGE_POLICIES, errors);
    ports(&container.get("ports"), errors);
    environment(container, errors);
    mounts(container, pod, errors);
    rules::one_of(&container.get("imagePullPolicy"), &PULL_POLICIES, errors);
    container_resources(&container.get("resources"), errors);
    security(&container.get("securityContext"), errors);
}

fn ports(ports: &Field<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            let wrong = rules::port_name(name.text());
            if wrong.is_empty() && !names.insert(name.text()) {
                errors.push(name.duplicate());
            }
            errors.extend(wrong.into_iter().map(|why| name.invalid(why)));
        }
        let number = port.get("containerPort");
        match number.int().unwrap_or(0) {
            0 => errors.push(number.required("")),
            _ => rules::port_number(&number, errors),
        }
        let host = port.get("hostPort");
        if !host.is_empty() {
            rules::port_number(&host, errors);
        }
        rules::one_of(&port.get("protocol"), &rules::PROTOCOLS, errors);
    }
}

/// A port of the host is taken by one container only.
fn host_ports<'a>(containers: impl Iterator<Item = Field<'a>>, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for port in containers.flat_map(|container| container.get("ports").items()) {
        let number = port.get("hostPort");
        let Some(host) = number.int().filter(|host| *host != 0) else { continue };
        let key = format!("{}/{}/{host}", port.get("protocol").text(), port.get("hostIP").text());
        if !taken.insert(key.clone()) {
            errors.push(number.duplicate_as(key));
        }
    }
}

fn variable_name(name: &str) -> Vec<String> {
    if name.bytes().all(|c| (b' '..=b'~').contains(&c) && c != b'=') {
        return Vec::new();
    }
    let why =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    vec![why.to_owned()]
}

fn environment(container: &Field<'_>, errors: &mut Errors) {
    for variable in container.get("env").items() {
        rules::required_name(&variable.get("name"), variable_name, errors);
        let source = variable.get("valueFrom");
        if source.is_set() {
            value_from(&source, !variable.get("value").is_empty(), errors);
        }
    }
    let all = container.get("envFrom");
    for source in all.items() {
        rules::optional_name(&source.get("prefix"), variable_name, errors);
        let given: Vec<_> = ["configMapRef", "secretRef"].map(|field| source.get(field)).into();
        let given: Vec<_> = given.into_iter().filter(Field::is_set).collect();
        for reference in &given {
            rules::required_name(&reference.get("name"), names::dns1123_subdomain, errors);
        }
        match given.len() {
            0 => errors.push(all.invalid_as("", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(all.invalid_as("", "may not have more than one field specified at a time")),
        }
    }
}

fn value_from(source: &Field<'_>, has_value: bool, errors: &mut Errors) {
    let mut given = 0;
    for field in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let reference = source.get(field);
        if !reference.is_set() {
            continue;
        }
        given += 1;
        match field {
            "fieldRef" => super::volumes::field_reference(&reference, true, errors),
            "resourceFieldRef" => super::volumes::resource_reference(&reference, false, errors),
            "fileKeyRef" => {}
            _ => {
                rules::required(&reference.get("name"), errors);
                rules::required_name(&reference.get("key"), rules::data_key, errors);
            }
        }
    }
    let detail = match given {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(source.invalid_as("", detail));
}

fn mounts(container: &Field<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    let (mounts, devices) = (container.get("volumeMounts"), container.get("volumeDevices"));
    let mut paths = BTreeSet::new();
    for mount in mounts.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        rules::required(&name, errors);
        if !pod.volumes.contains(name.text()) {
            errors.push(name.not_found());
        }
        rules::required(&path, errors);
        if !paths.insert(path.text()) {
            errors.push(path.invalid("must be unique"));
        }
        if devices.items().any(|device| device.get("name").text() == name.text()) {
            errors.push(name.invalid("must not already exist in volumeDevices"));
        }
        let (sub, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
        for below in [&sub, &expression].into_iter().filter(|path| !path.is_empty()) {
            rules::relative_path(below, errors);
        }
        if !sub.is_empty() && !expression.is_empty() {
            errors.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
        }
    }
    let mut paths = BTreeSet::new();
    for device in devices.items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        rules::required(&name, errors);
        if !pod.volumes.contains(name.text()) {
            errors.push(name.not_found());
        } else if !pod.claims.contains(name.text()) {
            let detail =
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            errors.push(name.invalid(detail));
        }
        rules::required(&path, errors);
        if !paths.insert(path.text()) {
            errors.push(path.invalid("must be unique"));
        }
    }
}

fn running(container: &Field<'_>, errors: &mut Errors) {
    for moment in ["lifecycle.postStart", "lifecycle.preStop"] {
        let hook = container.get(moment);
        if hook.is_set() {
            handler(&hook, errors);
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let field = container.get(kind);
        if field.is_set() {
            probe(&field, kind == "readinessProbe", errors);
        }
    }
}

fn probe(probe: &Field<'_>, readiness: bool, errors: &mut Errors) {
    handler(probe, errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        rules::nonnegative(&probe.get(field), errors);
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds <= 0) {
        errors.push(grace.invalid("must be greater than 0"));
    }
    if readiness && grace.is_set() {
        errors.push(grace.invalid("must not be set for readinessProbes"));
    }
    let successes = probe.get("successThreshold");
    if !readiness && successes.int().is_some_and(|n| n != 1) {
        errors.push(successes.invalid("must be 1"));
    }
}

/// Exactly one way to ask.
fn handler(parent: &Field<'_>, errors: &mut Errors) {
    let mut given = HANDLERS.into_iter().filter(|kind| parent.get(kind).is_set());
    let Some(first) = given.next() else {
        return errors.push(parent.required("must specify a handler type"));
    };
    let action = parent.get(first);
    match first {
        "exec" => rules::required(&action.get("command"), errors),
        "httpGet" => {
            rules::required(&action.get("path"), errors);
            rules::port(&action.get("port"), errors);
            rules::optional_one_of(&action.get("scheme"), &["HTTP", "HTTPS"], errors);
        }
        "tcpSocket" => rules::port(&action.get("port"), errors),
        "grpc" => rules::port_number(&action.get("port"), errors),
        _ => rules::nonnegative(&action.get("seconds"), errors),
    }
    errors.extend(given.map(|kind| parent.get(kind).forbidden("may not specify more than 1 handler type")));
}

fn security(context: &Field<'_>, errors: &mut Errors) {
    for id in ["runAsUser", "runAsGroup"] {
        rules::within(&context.get(id), 0, i64::from(i32::MAX), errors);
    }
    rules::optional_one_of(&context.get("procMount"), &["Default", "Unmasked"], errors);
    let escalation = context.get("allowPrivilegeEscalation");
    if !escalation.is_set() || escalation.flag() {
        return;
    }
    if context.get("privileged").flag() {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(context.invalid(detail));
    }
    if context.get("capabilities.add").texts().any(|name| name == "CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.push(context.invalid(detail));
    }
}
