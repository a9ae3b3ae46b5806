//! Probes of containers and the hooks of their lives.

use super::{
    containers::hooks,
    field::{Errors, Field},
    rows::{Row, Rule, check},
    rules,
};

const OF_PROBES: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const OF_HOOKS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];
const COUNTS: &[Row] = &[
    ("initialDelaySeconds", Rule::Nonnegative),
    ("timeoutSeconds", Rule::Nonnegative),
    ("periodSeconds", Rule::Nonnegative),
    ("successThreshold", Rule::Nonnegative),
    ("failureThreshold", Rule::Nonnegative),
];
const SIGNALS: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// What a container has that runs along with the others.
pub(super) fn running(spec: &Field<'_>, container: &Field<'_>, errors: &mut Errors) {
    hooks(spec, container, errors);
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let field = container.get(kind);
        if field.is_set() {
            probe(spec, &field, kind == "readinessProbe", errors);
        }
    }
}

/// What is done when a container starts and before it stops.
pub(super) fn lifecycle(spec: &Field<'_>, lifecycle: &Field<'_>, errors: &mut Errors) {
    for hook in ["postStart", "preStop"].map(|hook| lifecycle.get(hook)).into_iter().filter(Field::is_set) {
        handler(spec, &hook, &OF_HOOKS, errors);
    }
    let signal = lifecycle.get("stopSignal");
    if !signal.is_set() {
        return;
    }
    match spec.get("os.name").text() {
        _ if !spec.get("os").is_set() => {
            errors.push(signal.forbidden("may not be set for containers with empty `spec.os.name`"));
        }
        "windows" => rules::optional_one_of(&signal, &["SIGKILL", "SIGTERM"], errors),
        "linux" => rules::optional_one_of(&signal, &SIGNALS, errors),
        _ => {}
    }
}

fn probe(spec: &Field<'_>, probe: &Field<'_>, readiness: bool, errors: &mut Errors) {
    handler(spec, probe, &OF_PROBES, errors);
    check(probe, COUNTS, errors);
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

/// Exactly one way to ask or to do something.
fn handler(spec: &Field<'_>, parent: &Field<'_>, kinds: &[&str], errors: &mut Errors) {
    let mut given = kinds.iter().filter(|kind| parent.get(kind).is_set());
    let Some(first) = given.next() else {
        return errors.push(parent.required("must specify a handler type"));
    };
    let action = parent.get(first);
    match *first {
        "exec" => rules::required(&action.get("command"), errors),
        "httpGet" => http(&action, errors),
        "tcpSocket" => rules::port(&action.get("port"), errors),
        "grpc" => rules::port_number(&action.get("port"), errors),
        _ => {
            let (seconds, grace) = (action.get("seconds"), grace(spec));
            if !(0..=grace).contains(&seconds.number()) {
                let detail =
                    format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                errors.push(action.invalid_as(seconds.number(), detail));
            }
        }
    }
    errors.extend(given.map(|kind| parent.get(kind).forbidden("may not specify more than 1 handler type")));
}

/// Seconds that a pod has to end; less than nothing is one.
fn grace(spec: &Field<'_>) -> i64 {
    let seconds = spec.get("terminationGracePeriodSeconds").number();
    if seconds < 0 { 1 } else { seconds }
}

fn http(action: &Field<'_>, errors: &mut Errors) {
    rules::required(&action.get("path"), errors);
    rules::port(&action.get("port"), errors);
    check(action, &[("scheme", Rule::AlwaysOneOf(&["HTTP", "HTTPS"]))], errors);
    let headers = action.get("httpHeaders");
    for name in headers.items().map(|header| header.get("name")) {
        if name.is_empty() || !name.text().bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
                          regex used for validation is '[-A-Za-z0-9]+')";
            errors.push(headers.invalid_as(name.text(), detail));
        }
    }
}
