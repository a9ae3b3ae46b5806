//! Containers: names, images, ports, environment, mounts, resources.

use super::{
    field::{Errors, Field},
    probes::{lifecycle, running},
    projected,
    resources::container_resources,
    rows::{Row, Rule, check},
    rules, security,
};
use freehold_machinery::names;
use std::collections::BTreeSet;

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
/// Fields of a container that only those have which run along with the others.
const OF_RUNNING: [&str; 4] = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
/// Fields that ephemeral containers don't have.
const NOT_EPHEMERAL: [&str; 7] =
    ["ports", "resources", "resizePolicy", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"];
/// The most rules of when a container is restarted, and of exit codes in one.
const MAX_RULES: usize = 20;
const MAX_CODES: usize = 255;

const COMMON: &[Row] = &[
    ("name", Rule::RequiredName(names::dns1123_label)),
    ("image", Rule::Required("")),
    ("terminationMessagePolicy", Rule::RequiredOneOf(&["File", "FallbackToLogsOnError"])),
    ("ports", Rule::Also(ports)),
    ("env", Rule::Each(&[("name", Rule::RequiredName(rules::variable)), ("", Rule::Also(value_from))])),
    ("envFrom", Rule::Also(env_from)),
];

/// What the containers of a pod refer to.
pub(super) struct Pod<'a> {
    /// Names of volumes that are valid.
    pub(super) volumes: BTreeSet<&'a str>,
    /// Names of volumes that can be devices.
    pub(super) claims: BTreeSet<&'a str>,
}

/// All containers of a pod spec in the order in which Kubernetes visits them.
pub(super) fn all_containers<'a>(spec: &Field<'a>) -> impl Iterator<Item = Field<'a>> + use<'a> {
    let lists = ["initContainers", "containers", "ephemeralContainers"].map(|list| spec.get(list));
    lists.into_iter().flat_map(|list| list.items())
}

/// All containers of a pod spec.
pub(super) fn containers(spec: &Field<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    let regular = spec.get("containers");
    if regular.is_empty() {
        errors.push(regular.required(""));
    }
    for container in regular.items() {
        common(spec, &container, pod, errors);
        unique(&container, &mut names, errors);
        running(spec, &container, errors);
        restarts(&container, errors);
    }
    host_ports(regular.items(), errors);
    let inits = spec.get("initContainers");
    for container in inits.items() {
        common(spec, &container, pod, errors);
        init_restarts(&container, errors);
        unique(&container, &mut names, errors);
        // Errors about the ports of one name the list as if there was no other.
        let alone = container.named(&format!("{}[0]", inits.path()));
        host_ports(std::iter::once(alone), errors);
        init(spec, &container, errors);
    }
    let others = names.clone();
    for container in spec.get("ephemeralContainers").items() {
        common(spec, &container, pod, errors);
        trimmed(&container, errors);
        unique(&container, &mut names, errors);
        ephemeral(&container, &others, errors);
    }
}

/// An image's name is not padded.
pub(super) fn trimmed(container: &Field<'_>, errors: &mut Errors) {
    let image = container.get("image");
    if image.text() != image.text().trim() {
        errors.push(image.invalid("must not have leading or trailing whitespace"));
    }
}

fn ephemeral(container: &Field<'_>, others: &BTreeSet<&str>, errors: &mut Errors) {
    const WHY: &str = "cannot be set for an Ephemeral Container";
    let target = container.get("targetContainerName");
    if !target.is_empty() && !others.contains(target.text()) {
        errors.push(target.not_found());
    }
    for field in NOT_EPHEMERAL.map(|field| container.get(field)) {
        if !field.is_empty() {
            errors.push(field.forbidden(WHY));
        }
    }
    for mount in container.get("volumeMounts").items() {
        for path in ["subPath", "subPathExpr"].map(|field| mount.get(field)) {
            if !path.is_empty() {
                errors.push(path.forbidden(WHY));
            }
        }
    }
}

fn unique<'a>(container: &Field<'a>, names: &mut BTreeSet<&'a str>, errors: &mut Errors) {
    let name = container.get("name");
    if !names.insert(name.text()) {
        errors.push(name.duplicate_as(name.text()));
    }
}

fn init(spec: &Field<'_>, container: &Field<'_>, errors: &mut Errors) {
    if container.get("restartPolicy").text() == "Always" {
        return running(spec, container, errors);
    }
    for field in OF_RUNNING.map(|field| container.get(field)).into_iter().filter(Field::is_set) {
        errors.push(field.forbidden("may not be set for init containers without restartPolicy=Always"));
    }
    for policy in container.get("resizePolicy").items().map(|policy| policy.get("restartPolicy")) {
        if policy.text() == "RestartContainer" {
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.push(policy.invalid(detail));
        }
    }
}

fn init_restarts(container: &Field<'_>, errors: &mut Errors) {
    let rules = container.get("restartPolicyRules");
    if container.get("restartPolicy").text() != "Always" {
        restarts(container, errors);
    } else if !rules.is_empty() {
        let detail = "restartPolicyRules are not allowed for init containers with restart policy Always";
        errors.push(rules.forbidden(detail));
    }
}

/// When a container is restarted, where it says so itself.
fn restarts(container: &Field<'_>, errors: &mut Errors) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if policy.is_set() {
        rules::optional_one_of(&policy, &["Always", "Never", "OnFailure"], errors);
    } else if !rules.is_empty() {
        errors.push(policy.required("must specify restartPolicy when restart rules are used"));
    }
    if rules.len() > MAX_RULES {
        errors.push(rules.too_many(MAX_RULES));
    }
    for rule in rules.items() {
        check(&rule, &[("action", Rule::AlwaysOneOf(&["Restart", "RestartAllContainers"]))], errors);
        let codes = rule.get("exitCodes");
        if !codes.is_set() {
            errors.push(codes.required("must be specified"));
            continue;
        }
        check(&codes, &[("operator", Rule::AlwaysOneOf(&["In", "NotIn"]))], errors);
        if codes.get("values").len() > MAX_CODES {
            errors.push(codes.get("values").too_many(MAX_CODES));
        }
    }
}

fn common(spec: &Field<'_>, container: &Field<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    check(container, COMMON, errors);
    mounts(container, pod, errors);
    devices(container, pod, errors);
    check(container, &[("imagePullPolicy", Rule::RequiredOneOf(&PULL_POLICIES))], errors);
    container_resources(spec, &container.get("resources"), errors);
    resizing(spec, &container.get("resizePolicy"), errors);
    let users = spec.get("hostUsers");
    security::of_container(&container.get("securityContext"), !users.is_set() || users.flag(), errors);
}

/// What happens to a container whose resources change. Errors name the list.
fn resizing(spec: &Field<'_>, policies: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for item in policies.items() {
        let (resource, policy) = (item.get("resourceName"), item.get("restartPolicy"));
        if !seen.insert(resource.text()) {
            errors.push(item.duplicate_as(resource.text()));
        }
        let at = |field: &Field<'_>| field.named(policies.path()).value.clone();
        let sets: [(&Field<'_>, &[&str]); 2] =
            [(&resource, &["cpu", "memory"]), (&policy, &["NotRequired", "RestartContainer"])];
        for (field, supported) in sets {
            if field.is_empty() {
                errors.push(policies.required(""));
            } else if !supported.contains(&field.text()) {
                let mut error = policies.not_supported(supported);
                error.value = Some(at(field));
                errors.push(error);
            }
        }
        if spec.get("restartPolicy").text() == "Never" && policy.text() != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(policies.invalid_as(policy.text(), detail));
        }
    }
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

fn env_from(all: &Field<'_>, errors: &mut Errors) {
    for source in all.items() {
        check(&source, &[("prefix", Rule::Name(rules::variable))], errors);
        let given: Vec<_> = ["configMapRef", "secretRef"].map(|field| source.get(field)).into();
        let given: Vec<_> = given.into_iter().filter(Field::is_set).collect();
        for reference in &given {
            let name = reference.get("name");
            if name.is_empty() {
                errors.push(name.required(""));
            } else {
                let wrong = names::NameRule::Dns1123Subdomain.check(name.text(), true);
                errors.extend(wrong.into_iter().map(|why| name.invalid(why)));
            }
        }
        match given.len() {
            0 => errors.push(all.invalid_as("", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(all.invalid_as("", "may not have more than one field specified at a time")),
        }
    }
}

const KEY: &[Row] =
    &[("name", Rule::AlwaysName(names::dns1123_subdomain)), ("key", Rule::RequiredName(rules::data_key))];
const FILE_KEY: &[Row] = &[
    ("key", Rule::RequiredName(rules::variable)),
    ("volumeName", Rule::RequiredName(names::dns1123_label)),
    ("path", Rule::Required("")),
    ("path", Rule::Also(rules::no_backsteps)),
];

fn value_from(variable: &Field<'_>, errors: &mut Errors) {
    let source = variable.get("valueFrom");
    if !source.is_set() {
        return;
    }
    let mut given = 0;
    for field in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let reference = source.get(field);
        if !reference.is_set() {
            continue;
        }
        given += 1;
        match field {
            "fieldRef" => projected::field_reference(&reference, true, errors),
            "resourceFieldRef" => projected::resource_reference(&reference, false, errors),
            "fileKeyRef" => check(&reference, FILE_KEY, errors),
            _ => check(&reference, KEY, errors),
        }
    }
    let detail = match given {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !variable.get("value").is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(source.invalid_as("", detail));
}

/// Variables that are read from files: in volumes of their pod's own.
pub(super) fn file_variables(spec: &Field<'_>, errors: &mut Errors) {
    let volumes: Vec<Field<'_>> = spec.get("volumes").items().collect();
    for variable in all_containers(spec).flat_map(|container| container.get("env").items()) {
        let reference = variable.get("valueFrom.fileKeyRef");
        let name = reference.get("volumeName");
        match volumes.iter().find(|volume| volume.get("name").text() == name.text()) {
            _ if !reference.is_set() => {}
            None => errors.push(name.named(name.path()).not_found()),
            Some(volume) if !volume.get("emptyDir").is_set() => {
                errors.push(name.invalid("referenced volume must be of type emptyDir"));
            }
            Some(_) => {}
        }
    }
}

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];

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
            errors.push(path.invalid_as(path.text(), "must be unique"));
        }
        let of_devices =
            |field: &str, text: &str| devices.items().any(|device| device.get(field).text() == text);
        if of_devices("name", name.text()) {
            errors.push(name.invalid("must not already exist in volumeDevices"));
        }
        if of_devices("devicePath", path.text()) {
            errors.push(path.invalid("must not already exist as a path in volumeDevices"));
        }
        // Of these, errors do not say which mount they are about.
        let named = |field: &str| mount.get(field).named(mounts.get(field).path());
        rules::relative_path(&named("subPath"), errors);
        let expression = mount.get("subPathExpr");
        if !mount.get("subPath").is_empty() && !expression.is_empty() {
            errors.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
        }
        rules::relative_path(&named("subPathExpr"), errors);
        propagation(container, &named("mountPropagation"), errors);
        read_only(&mount, &named("recursiveReadOnly"), errors);
    }
}

fn propagation(container: &Field<'_>, mode: &Field<'_>, errors: &mut Errors) {
    rules::optional_one_of(mode, &PROPAGATIONS, errors);
    if mode.text() == "Bidirectional" && !container.get("securityContext.privileged").flag() {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(mode.forbidden(detail));
    }
}

fn read_only(mount: &Field<'_>, mode: &Field<'_>, errors: &mut Errors) {
    if matches!(mode.text(), "Enabled" | "IfPossible") {
        if !mount.get("readOnly").flag() {
            errors.push(mode.forbidden("may only be specified when readOnly is true"));
        }
        let propagation = mount.get("mountPropagation");
        if propagation.is_set() && propagation.text() != "None" {
            let detail = "may only be specified when mountPropagation is None or not specified";
            errors.push(mode.forbidden(detail));
        }
    }
    rules::optional_one_of(mode, &["Disabled", "Enabled", "IfPossible"], errors);
}

fn devices(container: &Field<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    let mounts = container.get("volumeMounts");
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for device in container.get("volumeDevices").items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        rules::required(&name, errors);
        if !name.is_empty() && !names.insert(name.text()) {
            errors.push(name.invalid("must be unique"));
        }
        if !pod.volumes.contains(name.text()) {
            errors.push(name.not_found());
        } else if !pod.claims.contains(name.text()) {
            let detail =
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            errors.push(name.invalid(detail));
        }
        rules::required(&path, errors);
        if paths.contains(path.text()) {
            errors.push(path.invalid_as(path.text(), "must be unique"));
        }
        if path.text().split('/').any(|part| part == "..") {
            errors.push(path.invalid("can not contain backsteps ('..')"));
        } else {
            paths.insert(path.text());
        }
        let mounted = |field: &str, text: &str| mounts.items().any(|mount| mount.get(field).text() == text);
        if mounted("name", name.text()) {
            errors.push(name.invalid("must not already exist in volumeMounts"));
        }
        if mounted("mountPath", path.text()) {
            errors.push(path.invalid("must not already exist as a path in volumeMounts"));
        }
    }
}

/// A hook of a container that runs; for those that name it.
pub(super) fn hooks(spec: &Field<'_>, container: &Field<'_>, errors: &mut Errors) {
    if container.get("lifecycle").is_set() {
        lifecycle(spec, &container.get("lifecycle"), errors);
    }
}
