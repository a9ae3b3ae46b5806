//! The subsystem in a cluster of its own making: Deployments, accounts, rights and Services.
//!
//! The controllers and the webhook share an account; the proxy has one that can only read names. The webhook registers
//! itself when it can decide, with the authority that it keeps in a Secret: a configuration that is there before would
//! refuse what members write until then.

use freehold_machinery::Value;
use freehold_tenancy_admission::policies;
use freehold_tenancy_controllers::roles::{CONTROLLER_ROLE, PROXY_ROLE};
use serde_json::json;

/// Where kubeconfig and certificates are in a container.
const CONFIG: &str = "/etc/freehold";
/// The Secret of type `kubernetes.io/tls` with the proxy's certificate.
const PROXY_SECRET: &str = "tenancy-proxy-tls";

/// Where the subsystem runs.
#[derive(Clone, Debug)]
pub struct InCluster<'a> {
    /// The namespace of everything that has one.
    pub namespace: &'a str,
    /// The image with the program as its entry point.
    pub image: &'a str,
}

/// Objects that a server may not have a kind for: defaults as MutatingAdmissionPolicies. Elsewhere the webhook gives them.
pub fn optional() -> Vec<Value> {
    policies::mutating()
}

/// The objects with which the subsystem runs in the cluster that it is for.
pub fn in_cluster(at: &InCluster<'_>) -> Vec<Value> {
    let namespace = at.namespace;
    let webhook = format!("{namespace}/tenancy-webhook");
    let name = format!("tenancy-proxy.{namespace}.svc");
    let listen = |port: u16| format!("0.0.0.0:{port}");
    let parts = [
        Part {
            name: "tenancy-controller",
            account: "tenancy-controller",
            args: vec!["controller".into(), "--leader-elect".into()],
            port: None,
            secret: None,
        },
        Part {
            name: "tenancy-webhook",
            account: "tenancy-controller",
            args: ["webhook", "--listen", &listen(8443), "--service", &webhook, "--namespace", namespace]
                .map(str::to_owned)
                .into(),
            port: Some((8443, "/readyz")),
            secret: None,
        },
        Part {
            name: "tenancy-proxy",
            account: "tenancy-proxy",
            args: [
                "proxy",
                "--listen",
                &listen(6444),
                "--certificates",
                "/etc/tenancy-proxy",
                "--name",
                &name,
            ]
            .map(str::to_owned)
            .into(),
            port: Some((6444, "/readyz")),
            secret: Some((PROXY_SECRET, "/etc/tenancy-proxy")),
        },
    ];
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        kubeconfig(namespace),
    ];
    for (account, role) in [("tenancy-controller", CONTROLLER_ROLE), ("tenancy-proxy", PROXY_ROLE)] {
        objects.extend(account_of(namespace, account, role));
    }
    for part in &parts {
        objects.extend(part.objects(at));
    }
    objects
}

/// The kubeconfig of a Pod: the account's token, which the kubelet puts there.
fn kubeconfig(namespace: &str) -> Value {
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "in-cluster",
        "clusters": [{"name": "in-cluster", "cluster": {
            "server": "https://kubernetes.default.svc", "certificate-authority": format!("{account}/ca.crt"),
        }}],
        "users": [{"name": "account", "user": {"tokenFile": format!("{account}/token")}}],
        "contexts": [{"name": "in-cluster", "context": {"cluster": "in-cluster", "user": "account"}}],
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "tenancy-kubeconfig", "namespace": namespace},
        "data": {"kubeconfig": config.to_string()},
    })
}

fn account_of(namespace: &str, name: &str, role: &str) -> [Value; 2] {
    let rbac = "rbac.authorization.k8s.io";
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }),
    ]
}

/// A process of the subsystem.
struct Part {
    name: &'static str,
    account: &'static str,
    args: Vec<String>,
    /// The port that it serves, and the path at which it says that it is ready.
    port: Option<(u16, &'static str)>,
    /// A Secret that it needs, and where.
    secret: Option<(&'static str, &'static str)>,
}

impl Part {
    fn objects(&self, at: &InCluster<'_>) -> Vec<Value> {
        let labels =
            json!({"app.kubernetes.io/name": self.name, "app.kubernetes.io/part-of": "freehold-tenancy"});
        let selector = json!({"app.kubernetes.io/name": self.name});
        let metadata = json!({"name": self.name, "namespace": at.namespace, "labels": labels});
        let mut objects = vec![json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": selector},
                "template": {"metadata": {"labels": labels}, "spec": self.pod(at.image)},
            },
        })];
        if let Some((port, _)) = self.port {
            objects.push(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"selector": selector, "ports": [{"name": "https", "port": 443, "targetPort": port}]},
            }));
        }
        objects
    }

    fn pod(&self, image: &str) -> Value {
        let mut args = vec!["tenancy".to_owned()];
        args.extend(self.args.iter().cloned());
        let mut mounts = vec![json!({"name": "kubeconfig", "mountPath": CONFIG, "readOnly": true})];
        let mut volumes = vec![json!({"name": "kubeconfig", "configMap": {"name": "tenancy-kubeconfig"}})];
        if let Some((secret, path)) = self.secret {
            mounts.push(json!({"name": secret, "mountPath": path, "readOnly": true}));
            volumes.push(json!({"name": secret, "secret": {"secretName": secret}}));
        }
        let mut container = json!({
            "name": "freehold", "image": image, "args": args,
            "env": [{"name": "KUBECONFIG", "value": format!("{CONFIG}/kubeconfig")}],
            "volumeMounts": mounts,
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        });
        if let Some((port, ready)) = self.port {
            container["ports"] = json!([{"containerPort": port}]);
            container["readinessProbe"] =
                json!({"httpGet": {"scheme": "HTTPS", "port": port, "path": ready}});
        }
        json!({
            "serviceAccountName": self.account,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container], "volumes": volumes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_has_an_account_that_only_reads() {
        let objects = in_cluster(&InCluster { namespace: "freehold-tenancy", image: "freehold:test" });
        let of = |kind: &str, name: &str| {
            objects.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).cloned().unwrap()
        };
        let pod = &of("Deployment", "tenancy-proxy")["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], "tenancy-proxy");
        assert_eq!(of("ClusterRoleBinding", PROXY_ROLE)["subjects"][0]["name"], "tenancy-proxy");
        let roles = freehold_tenancy_controllers::roles::roles();
        let role = roles.iter().find(|role| role["metadata"]["name"] == PROXY_ROLE).unwrap();
        let verbs =
            role["rules"].as_array().unwrap().iter().flat_map(|rule| rule["verbs"].as_array().unwrap());
        assert!(verbs.into_iter().all(|verb| ["get", "list", "watch"].contains(&verb.as_str().unwrap())));
    }
}
