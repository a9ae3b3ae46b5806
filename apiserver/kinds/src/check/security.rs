//! Security contexts of pods and containers, and what operating systems allow.

use super::{
    containers::all_containers,
    field::{Errors, Field},
    rows::{Row, Rule, check},
    rules,
};
use freehold_machinery::{Value, names};
use std::collections::BTreeSet;

const ID: Rule = Rule::Within(0, i32::MAX as i64);

/// A pod's.
const POD: &[Row] = &[
    ("fsGroup", ID),
    ("runAsUser", ID),
    ("runAsGroup", ID),
    ("supplementalGroups", Rule::Each(&[("", ID)])),
];
const POD_PROFILES: &[Row] = &[
    ("fsGroupChangePolicy", Rule::OneOf(&["Always", "OnRootMismatch"])),
    ("seccompProfile", Rule::Also(seccomp)),
    ("windowsOptions", Rule::Also(windows_options)),
    ("appArmorProfile", Rule::Also(app_armor)),
    ("supplementalGroupsPolicy", Rule::OneOf(&["Merge", "Strict"])),
];
/// With the gate that they are behind, both are taken; without, the second where the pod has any already.
const CHANGE_POLICIES: [&str; 2] = ["MountOption", "Recursive"];
const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// The security context of a pod spec, given what it was before.
pub(super) fn of_pod(spec: &Field<'_>, before: Option<&Value>, errors: &mut Errors) {
    let context = spec.get("securityContext");
    check(&context, POD, errors);
    if spec.get("shareProcessNamespace").flag() && spec.get("hostPID").flag() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(context.get("shareProcessNamespace").invalid_as(true, detail));
    }
    sysctls(spec, &context.get("sysctls"), errors);
    check(&context, POD_PROFILES, errors);
    let had_any = before.is_some_and(|spec| !spec["securityContext"]["seLinuxChangePolicy"].is_null());
    let known = if had_any { &CHANGE_POLICIES[..] } else { &CHANGE_POLICIES[1..] };
    rules::optional_one_of(&context.get("seLinuxChangePolicy"), known, errors);
}

fn is_word(word: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    !word.is_empty()
        && word.chars().all(inner)
        && !word.starts_with(['-', '_'])
        && !word.ends_with(['-', '_'])
}

/// Kernel parameters, in whose names dots and slashes separate.
fn sysctls(spec: &Field<'_>, list: &Field<'_>, errors: &mut Errors) {
    const MOST: usize = 253;
    const WORDS: &str = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    const IPC: [&str; 5] = ["kernel.msg", "kernel.sem", "kernel.shm", "fs.mqueue.", "kernel.shm_rmid_forced"];
    let mut seen = BTreeSet::new();
    for sysctl in list.items() {
        let name = sysctl.get("name");
        // The first separator says what the others mean.
        let dotted = match name.text().find(['.', '/']).and_then(|at| name.text().get(at..=at)) {
            Some("/") => name.text().replace('/', "."),
            _ => name.text().to_owned(),
        };
        if name.is_empty() {
            errors.push(name.required(""));
        } else if name.text().len() > MOST || !name.text().split(['.', '/']).all(is_word) {
            errors.push(name.invalid(WORDS));
        } else if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
        let of = |prefixes: &[&str]| prefixes.iter().any(|prefix| dotted.starts_with(prefix));
        if spec.get("hostNetwork").flag() && of(&["net."]) {
            errors.push(name.invalid_as(dotted, "may not be specified when 'hostNetwork' is true"));
        } else if spec.get("hostIPC").flag() && of(&IPC) {
            errors.push(name.invalid_as(dotted, "may not be specified when 'hostIPC' is true"));
        }
    }
}

fn seccomp(profile: &Field<'_>, errors: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    if kind.is_empty() {
        errors.push(kind.required("type is required when seccompProfile is set"));
    } else {
        rules::optional_one_of(&kind, &PROFILE_TYPES, errors);
    }
    match (kind.text() == "Localhost", local.is_set()) {
        (true, false) => errors.push(local.required("must be set when seccomp type is Localhost")),
        (true, true) => rules::relative_path(&local, errors),
        (false, true) => {
            errors
                .push(profile.named(local.path()).invalid("can only be set when seccomp type is Localhost"));
        }
        (false, false) => {}
    }
}

fn app_armor(profile: &Field<'_>, errors: &mut Errors) {
    const LONGEST: usize = 4095;
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.text() {
        "Localhost" => {
            let text = local.text();
            if text != text.trim() {
                errors.push(local.invalid("must not be padded with whitespace"));
            } else if text.is_empty() {
                errors.push(local.required("must be set when AppArmor type is Localhost"));
            }
            if text.len() > LONGEST {
                errors.push(local.too_long(LONGEST));
            }
        }
        "RuntimeDefault" | "Unconfined" if local.is_set() => {
            errors.push(local.invalid("can only be set when AppArmor type is Localhost"));
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => errors.push(kind.required("type is required when appArmorProfile is set")),
        _ => errors.push(kind.not_supported(&PROFILE_TYPES)),
    }
}

/// The annotations from before there were fields, with what they say of each type of profile.
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Where an annotation and a field name a profile, they name the same.
pub(super) fn profiles_match(noted: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    const DEFAULTS: [&str; 2] = ["runtime/default", "docker/default"];
    let note =
        |prefix: &str, container: &Field<'_>| noted.key(&format!("{prefix}{}", container.get("name").text()));
    let of_pod = own(spec, "seccompProfile");
    profile_matches("seccomp", &of_pod, &noted.key(SECCOMP_OF_POD), &of_pod, &DEFAULTS, errors);
    for container in all_containers(spec) {
        let profile = own(&container, "seccompProfile");
        let noted = note(SECCOMP_OF_CONTAINER, &container);
        profile_matches("seccomp", &profile, &noted, &profile, &DEFAULTS, errors);
    }
    if spec.get("os.name").text() == "windows" {
        return;
    }
    let of_pod = own(spec, "appArmorProfile");
    for container in all_containers(spec) {
        let at = own(&container, "appArmorProfile");
        let profile = if at.is_set() { &at } else { &of_pod };
        profile_matches("apparmor", profile, &note(APP_ARMOR, &container), &at, &DEFAULTS[..1], errors);
    }
}

/// What a pod or a container says in its security context.
fn own<'a>(holder: &Field<'a>, field: &str) -> Field<'a> {
    holder.get("securityContext").get(field)
}

/// Errors name the place `at`, whosever profile it is.
fn profile_matches(
    what: &str,
    profile: &Field<'_>,
    noted: &Field<'_>,
    at: &Field<'_>,
    defaults: &[&str],
    errors: &mut Errors,
) {
    if !profile.is_set() || !noted.is_set() {
        return;
    }
    let local = noted.text().strip_prefix("localhost/");
    let fits = match profile.get("type").text() {
        "Unconfined" => noted.text() == "unconfined",
        "RuntimeDefault" => defaults.contains(&noted.text()),
        "Localhost" => local.is_some(),
        _ => true,
    };
    if !fits {
        errors.push(at.get("type").forbidden(format!("{what} type in annotation and field must match")));
    } else if profile.get("type").text() == "Localhost"
        && local != Some(profile.get("localhostProfile").text())
    {
        let detail = format!("{what} profile in annotation and field must match");
        errors.push(at.get("localhostProfile").forbidden(detail));
    }
}

fn windows_options(options: &Field<'_>, errors: &mut Errors) {
    let (name, spec) = (options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec"));
    if name.is_set() {
        rules::name(&name, names::dns1123_subdomain, errors);
    }
    if spec.is_set() && spec.is_empty() {
        errors.push(spec.invalid("gmsaCredentialSpec cannot be an empty string"));
    } else if spec.text().len() > 64 << 10 {
        errors.push(spec.invalid("gmsaCredentialSpec size must be under 64 KiB"));
    }
    let user = options.get("runAsUserName");
    if user.is_set() {
        errors.extend(user_name(user.text()).into_iter().map(|why| user.invalid(why)));
    }
}

/// What is wrong with the name of a user of Windows.
fn user_name(name: &str) -> Vec<&'static str> {
    const ODD: [char; 16] = ['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']'];
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.contains(|c: char| c.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    if name.matches('\\').count() > 1 {
        return vec!["runAsUserName cannot contain more than one backslash"];
    }
    let (domain, user) = name.split_once('\\').map_or((None, name), |(domain, user)| (Some(domain), user));
    let net_bios = |domain: &str| {
        let odd = |c: char| "\\/:*?\"<>|".contains(c);
        (1..=15).contains(&domain.chars().count()) && !domain.contains(odd) && !domain.starts_with('.')
    };
    let dns = |domain: &str| names::dns1123_subdomain(&domain.to_lowercase()).is_empty();
    let mut wrong = Vec::new();
    for (bad, why) in [
        (
            domain.is_some_and(|d| d.len() >= 256),
            "runAsUserName's Domain length must be under 256 characters",
        ),
        (
            domain.is_some_and(|d| !net_bios(d) && !dns(d)),
            "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
        ),
        (user.is_empty(), "runAsUserName's User cannot be empty"),
        (user.len() > 104, "runAsUserName's User length must not be longer than 104 characters"),
        (
            !user.is_empty() && user.chars().all(|c| c == '.' || c == ' '),
            "runAsUserName's User cannot contain only periods or spaces",
        ),
        (
            user.contains(ODD),
            "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
        ),
    ] {
        if bad {
            wrong.push(why);
        }
    }
    wrong
}

/// The security context of a container; `host_users` where its pod has no user namespace of its own.
pub(super) fn of_container(context: &Field<'_>, host_users: bool, errors: &mut Errors) {
    let mount = context.get("procMount");
    check(
        context,
        &[("runAsUser", ID), ("runAsGroup", ID), ("procMount", Rule::OneOf(&["Default", "Unmasked"]))],
        errors,
    );
    if host_users && mount.text() == "Unmasked" {
        errors.push(mount.invalid("`hostUsers` must be false to use `Unmasked`"));
    }
    seccomp(&context.get("seccompProfile"), errors);
    let escalation = context.get("allowPrivilegeEscalation");
    if escalation.is_set() && !escalation.flag() {
        if context.get("privileged").flag() {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(context.invalid(detail));
        }
        for _ in context.get("capabilities.add").texts().filter(|name| *name == "CAP_SYS_ADMIN") {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(context.invalid(detail));
        }
    }
    windows_options(&context.get("windowsOptions"), errors);
    app_armor(&context.get("appArmorProfile"), errors);
}

/// Containers that run as processes of a Windows host: all of a pod's or none.
pub(super) fn host_processes(spec: &Field<'_>, errors: &mut Errors) {
    const FIELD: &str = "securityContext.windowsOptions.hostProcess";
    let pod = spec.get(FIELD);
    let (mut all, mut of_host) = (0, 0);
    for container in all_containers(spec) {
        let own = container.get(FIELD);
        all += 1;
        if pod.is_set() && own.is_set() && pod.flag() != own.flag() {
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {}", pod.flag());
            errors.push(own.invalid(detail));
        }
        of_host += usize::from(own.flag() || (!own.is_set() && pod.flag()));
    }
    if of_host == 0 {
        return;
    }
    if of_host != all {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(spec.invalid_as("", detail));
    }
    if !spec.get("hostNetwork").flag() {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(spec.get("hostNetwork").invalid_as(false, detail));
    }
}

/// What a pod without the host's users can't have of the host.
pub(super) fn host_users(spec: &Field<'_>, errors: &mut Errors) {
    let users = spec.get("hostUsers");
    if !users.is_set() || users.flag() {
        return;
    }
    const WHY: &str = "when `hostUsers` is false";
    for (field, named) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(field).flag() {
            errors.push(spec.get(named).forbidden(WHY));
        }
    }
    for devices in all_containers(spec).map(|container| container.get("volumeDevices")) {
        if !devices.is_empty() {
            errors.push(devices.forbidden(WHY));
        }
    }
}

/// Fields that pods of Windows don't have, in Kubernetes' order; then those of their containers' security contexts.
const NOT_ON_WINDOWS: [&str; 15] = [
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
];
const NOT_IN_WINDOWS_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// The operating system of a pod, and what goes with it.
pub(super) fn operating_system(spec: &Field<'_>, errors: &mut Errors) {
    let os = spec.get("os");
    if !os.is_set() {
        return;
    }
    let contexts = || all_containers(spec).map(|container| container.get("securityContext"));
    match os.get("name").text() {
        "" => errors.push(os.get("name").required("")),
        "linux" => {
            let options = std::iter::once(spec.get("securityContext"))
                .chain(contexts())
                .map(|c| c.get("windowsOptions"));
            let detail = "windows options cannot be set for a linux pod";
            errors.extend(options.filter(Field::is_set).map(|options| options.forbidden(detail)));
        }
        "windows" => {
            let of_pod = NOT_ON_WINDOWS.iter().map(|field| spec.get(field));
            let of_containers =
                contexts().flat_map(|context| NOT_IN_WINDOWS_CONTAINERS.map(|field| context.get(field)));
            let wrong = of_pod.chain(of_containers).filter(Field::is_set);
            errors.extend(wrong.map(|field| field.forbidden("cannot be set for a windows pod")));
        }
        other => {
            errors.push(os.not_supported_as(other, &["linux", "windows"]));
        }
    }
}
