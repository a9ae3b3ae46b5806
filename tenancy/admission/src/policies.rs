//! The tenant's rules as policies of the API server, which hold while no process of the subsystem runs.
//!
//! The rules themselves stand in annotations of namespaces (`freehold_tenancy_decide::rules`). The policies are the same
//! for all tenants, and match only namespaces with the tenant label. Requests of administrators and of the cluster's own
//! parts are left out by conditions, so that nobody is locked out and a cluster starts from nothing.

use freehold_machinery::Value;
use freehold_tenancy_api::{CORDONED_LABEL, GROUP, MANAGED_LABEL, TENANT_LABEL};
use freehold_tenancy_decide::rules::PREFIX;
use serde_json::json;

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
            "!(request.userInfo.username.startsWith('system:freehold:') \
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
fn rules() -> (&'static str, String) {
    let annotations = "namespaceObject.metadata.annotations";
    ("rules", format!("has({annotations}) ? {annotations} : {{}}"))
}

fn rule(key: &str) -> String {
    format!("'{PREFIX}{key}'")
}

/// Lists of which each must hold `item`.
fn each_list(key: &str, holds: &str) -> String {
    let key = rule(key);
    format!("!({key} in variables.rules) || variables.rules[{key}].split(';').all(list, {holds})")
}

fn class(name: &'static str, at: (&'static str, &'static [&'static str]), key: &str, field: &str) -> Check {
    let key = rule(key);
    let unchanged = format!(
        "(request.operation == 'UPDATE' && has(oldObject.{field}) && oldObject.{field} == object.{field})"
    );
    Check {
        name,
        rule: (at.0, at.1, WRITES),
        everybody: true,
        namespaces: Namespaces::Tenants,
        variables: vec![rules()],
        expression: format!(
            "!({key} in variables.rules) || !has(object.{field}) || object.{field} == '' || {unchanged} \
             || object.{field} in variables.rules[{key}].split(',')"
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
        namespaces: Namespaces::Tenants,
        variables: vec![rules()],
        expression,
        message,
    };
    let inside = "list.split(',').exists(r, r.contains('/') ? cidr(r).containsIP(ip) : r == ip)";
    let addresses = format!("!has(object.spec.externalIPs) || object.spec.externalIPs.all(ip, {inside})");
    let host = "list.split(',').exists(a, a.startsWith('*') ? h.endsWith(a.substring(1)) && h.size() >= a.size() : h == a)";
    let ingress = "!has(object.spec.rules) || object.spec.rules.map(r, has(r.host) ? r.host : '')";
    let routes = "!has(object.spec.hostnames) || object.spec.hostnames";
    let wildcard = rule("forbid-wildcard-hosts");
    let services: &[&str] = &["services"];
    let (ingresses, http): (&[&str], &[&str]) = (&["ingresses"], &["httproutes"]);
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
    ]
}

/// Checks of who may do what, which do not hold for parts of the cluster.
fn rights() -> Vec<Check> {
    let member = |name, rule, namespaces, expression: String, message| Check {
        name,
        rule,
        everybody: false,
        namespaces,
        variables: Vec::new(),
        expression,
        message,
    };
    let labelled = |object: &str, label: &str| {
        format!("(has({object}.metadata.labels) && '{label}' in {object}.metadata.labels)")
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
    let system = format!(
        "(k.startsWith('tenancy.freehold.dev/') || k.startsWith('{PREFIX}') \
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

/// All checks as ValidatingAdmissionPolicies with their bindings, and the protection of Tenants.
pub fn validating() -> Vec<Value> {
    let mut checks = vec![
        class(
            "storage-classes",
            ("", &["persistentvolumeclaims"]),
            "storage-classes",
            "spec.storageClassName",
        ),
        class(
            "ingress-classes",
            ("networking.k8s.io", &["ingresses"]),
            "ingress-classes",
            "spec.ingressClassName",
        ),
        class(
            "gateway-classes",
            ("gateway.networking.k8s.io", &["gateways"]),
            "gateway-classes",
            "spec.gatewayClassName",
        ),
        class("priority-classes", ("", &["pods"]), "priority-classes", "spec.priorityClassName"),
        class("runtime-classes", ("", &["pods"]), "runtime-classes", "spec.runtimeClassName"),
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
    let expression = match check.everybody {
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

/// Default classes as MutatingAdmissionPolicies with their bindings, for servers that have those.
pub fn mutating() -> Vec<Value> {
    let defaults = [
        ("", "persistentvolumeclaims", "storage-class", "storageClassName"),
        ("networking.k8s.io", "ingresses", "ingress-class", "ingressClassName"),
        ("", "pods", "priority-class", "priorityClassName"),
        ("", "pods", "runtime-class", "runtimeClassName"),
    ];
    let classes = defaults.iter().flat_map(|(group, resource, key, field)| {
        let unset = json!({"name": "names-no-class", "expression": format!("!has(object.spec.{field})")});
        mutating_policy(&format!("default-{key}"), (group, resource), Some(unset), mutation(key, field))
    });
    classes.chain(mutating_policy("node-selector", ("", "pods"), None, node_selector())).collect()
}

/// The mutation that gives Pods the tenant's node selector. Other values for its keys are refused later on, so they are
/// left as they are.
fn node_selector() -> Value {
    let rule = rule("node-selector");
    let map = "(has(object.spec.nodeSelector) ? [] \
        : [JSONPatch{op: 'add', path: '/spec/nodeSelector', value: Object.spec.nodeSelector{}}])";
    let absent = "!has(object.spec.nodeSelector) || !(p.split('=')[0] in object.spec.nodeSelector)";
    let add = "JSONPatch{op: 'add', path: '/spec/nodeSelector/' + jsonpatch.escapeKey(p.split('=')[0]), \
        value: p.split('=')[1]}";
    let keys = format!("variables.rules[{rule}].split(',').filter(p, {absent}).map(p, {add})");
    let expression = format!("{rule} in variables.rules ? {map} + {keys} : []");
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// The mutation that gives an object its class, if the namespace has a default. Conditions of a policy cannot do this:
/// kube-apiserver evaluates them without the namespace.
fn mutation(key: &str, field: &str) -> Value {
    let rule = rule(&format!("default-{key}"));
    if field != "priorityClassName" {
        let class = format!("Object{{spec: Object.spec{{{field}: variables.rules[{rule}]}}}}");
        let expression = format!("{rule} in variables.rules ? {class} : Object{{}}");
        return json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    }
    // The server computed the priority of no class before; it computes it anew where there is none.
    let remove = |field: &str| {
        format!("(has(object.spec.{field}) ? [JSONPatch{{op: 'remove', path: '/spec/{field}'}}] : [])")
    };
    let add = format!("[JSONPatch{{op: 'add', path: '/spec/{field}', value: variables.rules[{rule}]}}]");
    let patch = [add, remove("priority"), remove("preemptionPolicy")].join(" + ");
    let expression = format!("{rule} in variables.rules ? {patch} : []");
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn mutating_policy(
    name: &str,
    (group, resource): (&str, &str),
    condition: Option<Value>,
    mutation: Value,
) -> [Value; 2] {
    let name = format!("{name}.{GROUP}");
    let mut conditions = not_admins().as_array().cloned().unwrap_or_default();
    conditions.extend(condition);
    let (variable, expression) = rules();
    let policy = json!({
        "apiVersion": API_VERSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}]},
                "resourceRules": [{
                    "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"],
                }],
            },
            "matchConditions": conditions,
            "variables": [{"name": variable, "expression": expression}],
            "mutations": [mutation],
        },
    });
    let binding = json!({
        "apiVersion": API_VERSION, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name},
    });
    [policy, binding]
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
        assert!(mutating().iter().step_by(2).all(|policy| policy.to_string().contains("system:masters")));
    }
}
