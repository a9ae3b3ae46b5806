//! The tenant's rules as policies of the API server, which hold while no process of the subsystem runs.
//!
//! The rules themselves stand in annotations of namespaces (`freehold_tenancy_decide::rules`). The policies are the same
//! for all tenants, and match only namespaces with the tenant label. Requests of administrators and of the cluster's own
//! parts are left out by conditions, so that nobody is locked out and a cluster starts from nothing.

use freehold_machinery::Value;
use freehold_tenancy_api::{CORDONED_LABEL, GROUP, MANAGED_LABEL, TENANT_LABEL};
use freehold_tenancy_decide::admission::{INGRESS_CLASS_ANNOTATION, OWNERS_KEYS, STORAGE_CLASS_ANNOTATION};
use freehold_tenancy_decide::rules::PREFIX;
use serde_json::json;

pub use crate::defaults::mutating;

pub(crate) const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// A request of who acts for others: the cluster's controllers and service accounts. What they create for members'
/// workloads is held to the rules, whatever rights they have themselves.
const ACTS_FOR_OTHERS: &str = "request.userInfo.username.startsWith('system:serviceaccount:') \
    || request.userInfo.username.startsWith('system:freehold:') \
    || request.userInfo.username == 'system:kube-controller-manager'";
/// What a controller makes of a member's object, a Pod of a workload or the claim of a run, whoever creates it: a controller may
/// have an administrator's certificate.
const OF_A_WORKLOAD: &str = "object != null && has(object.metadata.ownerReferences) \
    && object.metadata.ownerReferences.exists(r, has(r.controller) && r.controller)";
const MASTERS: &str =
    "has(request.userInfo.groups) && request.userInfo.groups.exists(g, g == 'system:masters')";

/// Cluster administrators have all verbs; others can be given this one.
fn bypasses() -> String {
    format!("authorizer.group('{GROUP}').resource('tenants').check('bypass').allowed()")
}

fn not_a_node() -> Value {
    json!({
        "name": "not-a-node",
        "expression": "!has(request.userInfo.groups) || !request.userInfo.groups.exists(g, g == 'system:nodes')",
    })
}

/// The condition of requests that hold for everybody but administrators.
pub(crate) fn only_administrators_pass() -> Value {
    json!([{"name": "not-an-administrator", "expression": format!("!({MASTERS}) && !{}", bypasses())}])
}

/// Conditions of requests that rules of who may do what hold for: of neither administrators nor parts of the cluster.
pub fn only_members() -> Value {
    json!([
        {"name": "not-an-administrator", "expression": format!("!({MASTERS}) && !{}", bypasses())},
        not_a_node(),
        {
            "name": "not-a-part-of-the-cluster",
            "expression": "!request.userInfo.username.startsWith('system:') || request.userInfo.username == 'system:anonymous' \
                || request.userInfo.username.startsWith('system:freehold:provider:') \
                || (request.userInfo.username.startsWith('system:serviceaccount:') \
                && !request.userInfo.username.startsWith('system:serviceaccount:kube-') \
                && !request.userInfo.username.startsWith('system:serviceaccount:freehold-'))",
        },
    ])
}

/// Conditions of requests that rules of what objects say hold for: all but those that an administrator makes in person, and
/// those of nodes.
pub fn not_admins() -> Value {
    json!([
        {
            "name": "not-an-administrator",
            "expression": format!("{ACTS_FOR_OTHERS} || ({OF_A_WORKLOAD}) || (!({MASTERS}) && !{})", bypasses()),
        },
        not_a_node(),
    ])
}

/// The condition that leaves out what the cluster's controllers change and delete, and what this subsystem keeps: only what
/// they create counts for limits, and they go on where the webhook is down.
pub fn only_creations_of_controllers() -> Value {
    let kept = format!("has(object.metadata.labels) && '{MANAGED_LABEL}' in object.metadata.labels");
    json!({
        "name": "not-kept-by-a-controller",
        "expression": format!(
            "!((request.userInfo.username.startsWith('system:freehold:') \
             && !request.userInfo.username.startsWith('system:freehold:provider:')) \
             || request.userInfo.username == 'system:kube-controller-manager' \
             || request.userInfo.username.startsWith('system:serviceaccount:kube-')) \
             || (request.operation == 'CREATE' && !({kept}))"
        ),
    })
}

/// A check that becomes a ValidatingAdmissionPolicy with its binding.
struct Check {
    name: &'static str,
    /// Group, resources and operations.
    rule: (&'static str, &'static [&'static str], &'static [&'static str]),
    /// Whether parts of the cluster are checked, too.
    everybody: bool,
    /// Whether an update that leaves the spec as it is passes.
    of_spec: bool,
    /// Which namespaces: those of tenants, cordoned ones, or all.
    namespaces: Namespaces,
    variables: Vec<(&'static str, String)>,
    expression: String,
    message: &'static str,
}

#[derive(Clone, Copy)]
enum Namespaces {
    Tenants,
    Cordoned,
    All,
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// The variable with the rules of the request's namespace.
pub(crate) fn rules() -> (&'static str, String) {
    let annotations = "namespaceObject.metadata.annotations";
    ("rules", format!("has({annotations}) ? {annotations} : {{}}"))
}

pub(crate) fn rule(key: &str) -> String {
    format!("'{PREFIX}{key}'")
}

/// Lists of which each must hold `item`.
fn each_list(key: &str, holds: &str) -> String {
    let key = rule(key);
    format!("!({key} in variables.rules) || variables.rules[{key}].split(';').all(list, {holds})")
}

fn class(
    name: &'static str,
    at: (&'static str, &'static [&'static str]),
    key: &str,
    field: &str,
    annotation: Option<&str>,
) -> Check {
    let key = rule(key);
    // The annotation of former times counts more than the field.
    let classes = |object: &str| {
        let named = format!("(has({object}.{field}) ? [{object}.{field}] : [])");
        let Some(annotation) = annotation else { return named };
        let annotations = format!("{object}.metadata.annotations");
        let noted = format!("has({annotations}) && '{annotation}' in {annotations}");
        format!("{named} + ({noted} ? [{annotations}['{annotation}']] : [])")
    };
    Check {
        name,
        rule: (at.0, at.1, WRITES),
        everybody: true,
        of_spec: annotation.is_none(),
        namespaces: Namespaces::Tenants,
        variables: vec![
            rules(),
            ("classes", classes("object")),
            ("before", format!("request.operation == 'UPDATE' ? {} : []", classes("oldObject"))),
        ],
        expression: format!(
            "!({key} in variables.rules) || variables.classes.all(c, c == '' || c in variables.before \
             || c in variables.rules[{key}].split(','))"
        ),
        message: "the class is not allowed by the tenant",
    }
}

fn pods() -> Vec<Check> {
    const PODS: &[&str] = &["pods", "pods/ephemeralcontainers"];
    let images = |field: &str| {
        format!("(has(object.spec.{field}) ? object.spec.{field}.map(c, has(c.image) ? c.image : '') : [])")
    };
    let containers = ["containers", "initContainers", "ephemeralContainers"].map(images).join(" + ");
    let volumes = "(has(object.spec.volumes) ? object.spec.volumes.filter(v, has(v.image) && has(v.image.reference)) \
        .map(v, v.image.reference) : [])";
    let images = format!("{containers} + {volumes}");
    let full = "variables.images.filter(i, i != '').map(i, i.contains('/') && (i.split('/')[0].contains('.') \
        || i.split('/')[0].contains(':') || i.split('/')[0] == 'localhost') ? i \
        : i.contains('/') ? 'docker.io/' + i : 'docker.io/library/' + i)";
    let pods = |name, variables, expression, message| Check {
        name,
        rule: ("", PODS, WRITES),
        everybody: true,
        of_spec: true,
        namespaces: Namespaces::Tenants,
        variables,
        expression,
        message,
    };
    let tolerated = "!has(object.spec.tolerations) || object.spec.tolerations.all(t, \
        (has(t.key) && t.key.startsWith('node.kubernetes.io/')) || (has(t.key) && t.key in list.split(',')))";
    let selector = rule("node-selector");
    vec![
        pods(
            "images",
            vec![rules(), ("images", images), ("full", full.to_owned())],
            each_list(
                "registries",
                "variables.full.all(i, list.split(',').exists(r, i.startsWith(r + '/')))",
            ),
            "an image is not of a registry that the tenant allows",
        ),
        pods(
            "tolerations",
            vec![rules()],
            each_list("tolerations", tolerated),
            "a toleration is not allowed by the tenant",
        ),
        pods(
            "node-selector",
            vec![rules()],
            format!(
                "!({selector} in variables.rules) || !has(object.spec.nodeSelector) \
                 || variables.rules[{selector}].split(',').all(p, !(p.split('=')[0] in object.spec.nodeSelector) \
                 || object.spec.nodeSelector[p.split('=')[0]] == p.split('=')[1])"
            ),
            "the node selector is not allowed by the tenant",
        ),
    ]
}

fn network() -> Vec<Check> {
    let check = |name, group, resources, expression, message| Check {
        name,
        rule: (group, resources, WRITES),
        everybody: true,
        of_spec: true,
        namespaces: Namespaces::Tenants,
        variables: vec![rules()],
        expression,
        message,
    };
    let inside = "list.split(',').exists(r, r.contains('/') ? cidr(r).containsIP(ip) : r == ip)";
    let addresses = format!("!has(object.spec.externalIPs) || object.spec.externalIPs.all(ip, {inside})");
    let host = "list.split(',').exists(a, a.startsWith('*') ? h.endsWith(a.substring(1)) && h.size() >= a.size() : h == a)";
    // What names no host, and a default backend, has all.
    let ingress = "((has(object.spec.rules) ? object.spec.rules.map(r, has(r.host) ? r.host : '') : []) \
        + (has(object.spec.defaultBackend) ? [''] : []))";
    let routes =
        "(has(object.spec.hostnames) && object.spec.hostnames.size() > 0 ? object.spec.hostnames : [''])";
    let wildcard = rule("forbid-wildcard-hosts");
    let services: &[&str] = &["services"];
    let (ingresses, http): (&[&str], &[&str]) = (&["ingresses"], &["httproutes", "grpcroutes", "tlsroutes"]);
    let gateway = "gateway.networking.k8s.io";
    vec![
        check(
            "service-types",
            "",
            services,
            each_list(
                "service-types",
                "(has(object.spec.type) ? object.spec.type : 'ClusterIP') in list.split(',')",
            ),
            "the Service's type is not allowed by the tenant",
        ),
        check(
            "external-ips",
            "",
            services,
            each_list("external-ips", &addresses),
            "an external IP is not allowed by the tenant",
        ),
        check(
            "ingress-hosts",
            "networking.k8s.io",
            ingresses,
            each_list("hosts", &format!("{ingress}.all(h, {host})")),
            "a host name is not allowed by the tenant",
        ),
        check(
            "ingress-wildcards",
            "networking.k8s.io",
            ingresses,
            format!("!({wildcard} in variables.rules) || {ingress}.all(h, h != '' && !h.startsWith('*'))"),
            "wildcard hosts are not allowed by the tenant",
        ),
        check(
            "route-hosts",
            gateway,
            http,
            each_list("hosts", &format!("{routes}.all(h, {host})")),
            "a host name is not allowed by the tenant",
        ),
        check(
            "route-wildcards",
            gateway,
            http,
            format!("!({wildcard} in variables.rules) || {routes}.all(h, h != '' && !h.startsWith('*'))"),
            "wildcard hosts are not allowed by the tenant",
        ),
    ]
}

/// Whether an object has a label.
fn labelled(object: &str, label: &str) -> String {
    format!("(has({object}.metadata.labels) && '{label}' in {object}.metadata.labels)")
}

/// Checks of who may do what, which do not hold for parts of the cluster.
fn rights() -> Vec<Check> {
    let member = |name, rule, namespaces, expression: String, message| Check {
        name,
        rule,
        everybody: false,
        of_spec: false,
        namespaces,
        variables: Vec::new(),
        expression,
        message,
    };
    let managed = format!(
        "(request.operation == 'CREATE' || !{}) && (request.operation != 'CREATE' || !{})",
        labelled("oldObject", MANAGED_LABEL),
        labelled("object", MANAGED_LABEL)
    );
    let kept: &[&str] = &["rolebindings", "resourcequotas", "limitranges", "networkpolicies"];
    let label = format!("object.metadata.labels['{TENANT_LABEL}']");
    let provision = format!(
        "request.operation != 'CREATE' \
         || authorizer.group('').resource('namespaces').check('delete').allowed() \
         || ({} && authorizer.group('{GROUP}').resource('tenants').name({label}).check('provision').allowed())",
        labelled("object", TENANT_LABEL)
    );
    let owners = OWNERS_KEYS.map(|key| format!("'{key}'")).join(", ");
    let system = format!(
        "((k.startsWith('tenancy.freehold.dev/') && !(k in [{owners}])) || k.startsWith('{PREFIX}') \
         || k.startsWith('pod-security.kubernetes.io/') || k == 'scheduler.alpha.kubernetes.io/node-selector')"
    );
    let same = |field: &str| {
        let (new, old) = (format!("object.metadata.{field}"), format!("oldObject.metadata.{field}"));
        format!(
            "(!has({new}) || {new}.all(k, !{system} || (has({old}) && k in {old} && {old}[k] == {new}[k]))) \
             && (!has({old}) || {old}.all(k, !{system} || (has({new}) && k in {new})))"
        )
    };
    let namespaces: (&str, &[&str], &[&str]) = ("", &["namespaces"], WRITES);
    let update: (&str, &[&str], &[&str]) =
        ("", &["namespaces", "namespaces/status", "namespaces/finalize"], &["UPDATE"]);
    vec![
        member(
            "managed-objects",
            ("*", kept, ALL),
            Namespaces::Tenants,
            managed,
            "the object is kept by the tenant: change the Tenant instead",
        ),
        member(
            "cordoned",
            ("*", &["*", "*/scale", "pods/resize", "pods/ephemeralcontainers", "pods/eviction"], ALL),
            Namespaces::Cordoned,
            "false".to_owned(),
            "the tenant is cordoned: nothing can be changed",
        ),
        member(
            "namespace-owners",
            namespaces,
            Namespaces::All,
            provision,
            "name a tenant that lets you create namespaces by the label tenancy.freehold.dev/tenant",
        ),
        keys(),
        // The server selects a changed namespace by its new labels: without the tenant's label it would not be checked.
        member(
            "namespace-metadata",
            update,
            Namespaces::All,
            format!(
                "!({} || {}) || ({} && {})",
                labelled("oldObject", TENANT_LABEL),
                labelled("object", TENANT_LABEL),
                same("labels"),
                same("annotations")
            ),
            "labels and annotations of the tenant and of Pod security cannot be changed by members",
        ),
    ]
}

/// The check of required, forbidden and protected labels and annotations when a namespace is changed. The rules stand in the
/// namespace as it was: members cannot change those.
fn keys() -> Check {
    let map = |object: &str, field: &str| {
        format!("(has({object}.metadata.{field}) ? {object}.metadata.{field} : {{}})")
    };
    let of = |field: &'static str| {
        let (new, old) = (map("object", field), map("oldObject", field));
        let list = |what: &str| {
            let key = rule(&format!("{what}-{field}"));
            format!("({key} in variables.rules ? variables.rules[{key}].split(',') : [])")
        };
        let value = "r.substring(r.indexOf('=') + 1)";
        let required = format!(
            "{}.all(r, r.split('=')[0] in {new} && ({value} == '' || {new}[r.split('=')[0]] in {value}.split('|')))",
            list("required")
        );
        let forbidden = format!(
            "{new}.all(k, (k in {old} && {old}[k] == {new}[k]) || !{}.exists(p, p.endsWith('*') \
             ? k.startsWith(p.substring(0, p.size() - 1)) : k == p))",
            list("forbidden")
        );
        let protected =
            format!("{}.all(k, !(k in {old}) || (k in {new} && {new}[k] == {old}[k]))", list("protected"));
        format!("{required} && {forbidden} && {protected}")
    };
    let annotations = "oldObject.metadata.annotations";
    Check {
        name: "namespace-keys",
        rule: ("", &["namespaces"], &["UPDATE"]),
        everybody: false,
        of_spec: false,
        namespaces: Namespaces::All,
        variables: vec![("rules", format!("has({annotations}) ? {annotations} : {{}}"))],
        expression: format!("{} && {}", of("labels"), of("annotations")),
        message: "a label or annotation is required, forbidden or protected by the tenant",
    }
}

/// All checks as ValidatingAdmissionPolicies with their bindings, and the protection of Tenants.
pub fn validating() -> Vec<Value> {
    let mut checks = vec![
        class(
            "storage-classes",
            ("", &["persistentvolumeclaims"]),
            "storage-classes",
            "spec.storageClassName",
            Some(STORAGE_CLASS_ANNOTATION),
        ),
        class(
            "ingress-classes",
            ("networking.k8s.io", &["ingresses"]),
            "ingress-classes",
            "spec.ingressClassName",
            Some(INGRESS_CLASS_ANNOTATION),
        ),
        class(
            "gateway-classes",
            ("gateway.networking.k8s.io", &["gateways"]),
            "gateway-classes",
            "spec.gatewayClassName",
            None,
        ),
        class("priority-classes", ("", &["pods"]), "priority-classes", "spec.priorityClassName", None),
        class("runtime-classes", ("", &["pods"]), "runtime-classes", "spec.runtimeClassName", None),
    ];
    checks.extend(pods());
    checks.extend(network());
    checks.extend(rights());
    let mut objects: Vec<Value> = checks.iter().flat_map(policy).collect();
    objects.extend(tenants());
    objects.extend(crate::guards::validating());
    objects
}

/// Whether an update leaves the spec as it is. Rules that became stricter must not keep controllers from removing
/// finalizers, nor members from changing labels.
pub(crate) const SAME_SPEC: &str = "(request.operation == 'UPDATE' && has(object.spec) && has(oldObject.spec) \
    && object.spec == oldObject.spec)";

fn policy(check: &Check) -> [Value; 2] {
    let name = format!("{}.{GROUP}", check.name);
    let expression = match check.of_spec {
        true => format!("{SAME_SPEC} || ({})", check.expression),
        false => check.expression.clone(),
    };
    let (group, resources, operations) = check.rule;
    let selector = match check.namespaces {
        Namespaces::Tenants => json!({"matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}]}),
        Namespaces::Cordoned => json!({"matchLabels": {CORDONED_LABEL: "true"}}),
        Namespaces::All => json!({}),
    };
    let variables: Vec<Value> = check
        .variables
        .iter()
        .map(|(name, expression)| json!({"name": name, "expression": expression}))
        .collect();
    let version = if group == "*" || group == "gateway.networking.k8s.io" { "*" } else { "v1" };
    let rule = |group: &str, version: &str, resources: &[&str], scope: &str| {
        json!({
            "apiGroups": [group], "apiVersions": [version], "resources": resources, "operations": operations,
            "scope": scope,
        })
    };
    // A selector of namespaces matches each object that is in none: such objects are left out, but the namespaces themselves.
    let rules = match check.namespaces {
        Namespaces::Tenants => json!([rule(group, version, resources, "Namespaced")]),
        Namespaces::Cordoned => {
            json!([rule(group, version, resources, "Namespaced"), rule("", "v1", &["namespaces"], "Cluster")])
        }
        Namespaces::All => json!([rule(group, version, resources, "*")]),
    };
    let policy = json!({
        "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": selector,
                "resourceRules": rules,
            },
            "matchConditions": if check.everybody { not_admins() } else { only_members() },
            "variables": variables,
            "validations": [{"expression": expression, "message": check.message, "reason": "Forbidden"}],
        },
    });
    [policy, binding(&name)]
}

pub(crate) fn binding(name: &str) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    })
}

/// Keeps a Tenant whose deletion is prevented. It holds for administrators, who can change the Tenant first.
fn tenants() -> [Value; 2] {
    let name = format!("prevent-deletion.{GROUP}");
    let policy = json!({
        "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [GROUP], "apiVersions": ["*"], "resources": ["tenants"], "operations": ["DELETE"],
            }]},
            "validations": [{
                "expression": "!has(oldObject.spec.preventDeletion) || !oldObject.spec.preventDeletion",
                "message": "spec.preventDeletion is set: set it to false before the tenant is deleted",
                "reason": "Forbidden",
            }],
        },
    });
    [policy, binding(&name)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_is_bound_and_spares_administrators() {
        let objects = validating();
        for pair in objects.chunks(2) {
            assert_eq!(pair[0]["metadata"]["name"], pair[1]["spec"]["policyName"]);
            let exempts = pair[0]["spec"]["matchConditions"].to_string().contains("system:masters");
            let protects = pair[0]["metadata"]["name"] == "prevent-deletion.tenancy.freehold.dev";
            assert_eq!(exempts, !protects, "{}", pair[0]["metadata"]["name"]);
        }
        assert!(
            crate::defaults::mutating()
                .iter()
                .step_by(2)
                .all(|policy| policy.to_string().contains("system:masters"))
        );
    }
}
