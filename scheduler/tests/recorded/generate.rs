//! Worlds of nodes, Pods and volumes, and Pods to be placed in them: the same for the same seed.

use freehold_tests_harness::Random;
use serde_json::{Value, json};

pub(crate) const NAMESPACES: [&str; 3] = ["default", "red", "blue"];
const ZONES: [&str; 3] = ["a", "b", "c"];
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const APPS: [&str; 3] = ["web", "db", "job"];

/// Makes worlds.
pub(crate) struct Generator(pub(crate) Random);

/// Objects in the order in which they are to be created.
pub(crate) struct Generated {
    pub(crate) nodes: Vec<Value>,
    pub(crate) volumes: Vec<Value>,
    pub(crate) claims: Vec<Value>,
    pub(crate) pods: Vec<Value>,
    pub(crate) tried: Vec<Value>,
}

/// The StorageClasses of all worlds.
pub(crate) fn classes() -> Vec<Value> {
    let class = |name: &str, provisioner: &str, mode: &str, topologies: Value| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": mode, "allowedTopologies": topologies,
        })
    };
    let zone = json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]);
    vec![
        class("now", "example.com/p", "Immediate", Value::Null),
        class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", Value::Null),
        class("zonal", "example.com/p", "WaitForFirstConsumer", zone),
    ]
}

impl Generator {
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.index(of.len())]
    }

    /// Whether something happens that does in so many of a hundred cases.
    fn in_hundred(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    fn node(&mut self, nth: usize) -> Value {
        let name = format!("n{nth}");
        let mut labels = json!({HOSTNAME: name});
        if self.in_hundred(85) {
            labels[ZONE] = self.one(&ZONES).into();
        }
        if self.in_hundred(50) {
            labels["disk"] = self.one(&["ssd", "hdd"]).into();
        }
        if self.in_hundred(40) {
            labels["size"] = self.0.below(10).to_string().into();
        }
        let mut taints = Vec::new();
        if self.in_hundred(25) {
            let effect = self.one(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
            taints.push(
                json!({"key": self.one(&["k", "gpu"]), "value": self.one(&["v", "w"]), "effect": effect}),
            );
        }
        let mut amounts = json!({
            "cpu": self.one(&["1", "2", "4"]), "memory": self.one(&["1Gi", "2Gi", "4Gi"]),
            "pods": self.one(&["2", "5", "20", "20"]), "ephemeral-storage": self.one(&["1Gi", "10Gi"]),
        });
        if self.in_hundred(30) {
            amounts["example.com/gpu"] = self.one(&["1", "2"]).into();
        }
        let unschedulable = self.in_hundred(8);
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": unschedulable},
            "status": {"allocatable": amounts, "capacity": amounts},
        })
    }

    fn requests(&mut self) -> Value {
        let mut requests = json!({});
        if self.in_hundred(75) {
            requests["cpu"] = self.one(&["50m", "200m", "500m", "1", "1500m"]).into();
        }
        if self.in_hundred(60) {
            requests["memory"] = self.one(&["64Mi", "256Mi", "700Mi", "1500Mi"]).into();
        }
        if self.in_hundred(15) {
            requests["ephemeral-storage"] = self.one(&["100Mi", "2Gi"]).into();
        }
        let mut resources = json!({"requests": requests});
        if self.in_hundred(10) {
            resources["requests"]["example.com/gpu"] = "1".into();
            resources["limits"] = json!({"example.com/gpu": "1"});
        }
        resources
    }

    fn container(&mut self, name: &str) -> Value {
        let mut container = json!({"name": name, "image": "none", "resources": self.requests()});
        if self.in_hundred(15) {
            let port = self.one(&[8080, 9090]);
            let mut own =
                json!({"containerPort": port, "hostPort": port, "protocol": self.one(&["TCP", "UDP"])});
            if self.in_hundred(40) {
                own["hostIP"] = self.one(&["127.0.0.1", "10.0.0.1"]).into();
            }
            container["ports"] = json!([own]);
        }
        container
    }

    fn selector(&mut self) -> Value {
        match self.0.below(5) {
            0 => json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
            1 => json!({"matchExpressions": [
                {"key": "app", "operator": "NotIn", "values": [self.one(&APPS)]},
            ]}),
            _ => json!({"matchLabels": {"app": self.one(&APPS)}}),
        }
    }

    fn pod_term(&mut self) -> Value {
        let key = self.one(&[HOSTNAME, ZONE, ZONE]);
        let mut term = json!({"labelSelector": self.selector(), "topologyKey": key});
        match self.0.below(6) {
            0 => term["namespaces"] = json!([self.one(&NAMESPACES)]),
            1 => term["namespaceSelector"] = json!({"matchLabels": {"team": self.one(&["one", "two"])}}),
            2 => term["namespaceSelector"] = json!({}),
            _ => {}
        }
        term
    }

    fn node_requirement(&mut self) -> Value {
        match self.0.below(6) {
            0 => {
                json!({"key": "size", "operator": self.one(&["Gt", "Lt"]), "values": [self.0.below(10).to_string()]})
            }
            1 => json!({"key": "disk", "operator": self.one(&["Exists", "DoesNotExist"])}),
            2 => json!({"key": "disk", "operator": "NotIn", "values": ["ssd"]}),
            _ => json!({"key": ZONE, "operator": "In", "values": [self.one(&ZONES), self.one(&ZONES)]}),
        }
    }

    fn affinity(&mut self, rules: u64) -> Value {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
        let mut affinity = json!({});
        if self.in_hundred(rules) {
            let mut terms = vec![json!({"matchExpressions": [self.node_requirement()]})];
            if self.in_hundred(30) {
                terms.push(json!({"matchExpressions": [self.node_requirement(), self.node_requirement()]}));
            }
            if self.in_hundred(12) {
                let names = [format!("n{}", self.0.below(8)), format!("n{}", self.0.below(8))];
                terms = vec![json!({"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [names[self.0.index(2)]]},
                ]})];
            }
            affinity["nodeAffinity"][REQUIRED] = json!({"nodeSelectorTerms": terms});
        }
        if self.in_hundred(rules) {
            let preference = json!({"matchExpressions": [self.node_requirement()]});
            let weight = self.0.below(100) + 1;
            affinity["nodeAffinity"][PREFERRED] = json!([{"weight": weight, "preference": preference}]);
        }
        for kind in ["podAffinity", "podAntiAffinity"] {
            if self.in_hundred(rules) {
                affinity[kind][REQUIRED] = json!([self.pod_term()]);
                if self.in_hundred(20) {
                    affinity[kind][REQUIRED] = json!([self.pod_term(), self.pod_term()]);
                }
            }
            if self.in_hundred(rules) {
                let weight = self.0.below(100) + 1;
                affinity[kind][PREFERRED] = json!([{"weight": weight, "podAffinityTerm": self.pod_term()}]);
            }
        }
        affinity
    }

    fn spread(&mut self) -> Value {
        let required = self.in_hundred(80);
        let mut spread = json!({
            "maxSkew": self.one(&[1, 1, 2]), "topologyKey": self.one(&[ZONE, HOSTNAME]),
            "whenUnsatisfiable": if required { "DoNotSchedule" } else { "ScheduleAnyway" },
            "labelSelector": self.selector(),
        });
        if required && self.in_hundred(30) {
            spread["minDomains"] = self.one(&[2, 4]).into();
        }
        if self.in_hundred(30) {
            spread["nodeAffinityPolicy"] = self.one(&["Honor", "Ignore"]).into();
            spread["nodeTaintsPolicy"] = self.one(&["Honor", "Ignore"]).into();
        }
        if self.in_hundred(20) {
            spread["matchLabelKeys"] = json!(["version"]);
        }
        spread
    }

    fn pod(&mut self, name: String, rules: u64) -> Value {
        let mut labels = json!({"app": self.one(&APPS)});
        if self.in_hundred(50) {
            labels["version"] = self.one(&["1", "2"]).into();
        }
        let mut spec = json!({
            "containers": [self.container("c")], "affinity": self.affinity(rules),
            "terminationGracePeriodSeconds": 0,
        });
        if self.in_hundred(25) {
            let mut init = vec![self.container("i")];
            if self.in_hundred(50) {
                init[0]["restartPolicy"] = "Always".into();
                init.push(self.container("j"));
            }
            spec["initContainers"] = init.into();
        }
        if self.in_hundred(30) {
            let mut toleration = json!({"key": self.one(&["k", "gpu"]), "operator": "Exists"});
            if self.in_hundred(40) {
                toleration = json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"});
            }
            if self.in_hundred(10) {
                toleration = json!({"operator": "Exists"});
            }
            spec["tolerations"] = json!([toleration]);
        }
        if self.in_hundred(15) {
            spec["nodeSelector"] = json!({"disk": self.one(&["ssd", "hdd"])});
        }
        let namespace = self.one(&["default", "default", "red", "blue"]);
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec,
        })
    }

    fn volume(&mut self, nth: usize, claim: Option<&str>) -> Value {
        let mut labels = json!({});
        if self.in_hundred(40) {
            labels[ZONE] = self.one(&["a", "b", "a__b"]).into();
        }
        let mut spec = json!({
            "capacity": {"storage": self.one(&["1Gi", "5Gi"])}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local", "hostPath": {"path": "/nothing"},
            "persistentVolumeReclaimPolicy": "Retain",
        });
        if self.in_hundred(70) {
            let requirement = json!({"key": HOSTNAME, "operator": "In", "values": [format!("n{}", self.0.below(7)), format!("n{}", self.0.below(7))]});
            spec["nodeAffinity"] =
                json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}});
        }
        if let Some(claim) = claim {
            spec["claimRef"] = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim});
        }
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": format!("v{nth}"), "labels": labels}, "spec": spec,
        })
    }

    fn claim(&mut self, name: &str, class: &str, volume: Option<&str>) -> Value {
        let mut annotations = json!({});
        if volume.is_some() {
            annotations["pv.kubernetes.io/bind-completed"] = "yes".into();
        }
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": self.one(&["1Gi", "3Gi"])}},
                "storageClassName": class, "volumeName": volume,
            },
        })
    }

    /// A world with Pods to be tried in it. The last node is there so that it is known when everything has been seen.
    pub(crate) fn world(&mut self, tried: usize) -> Generated {
        let count = 3 + self.0.index(5);
        let nodes: Vec<Value> = (0..count).map(|nth| self.node(nth)).collect();
        let mut pods = Vec::new();
        for nth in 0..self.0.index(14) {
            let mut pod = self.pod(format!("p{nth}"), 18);
            pod["spec"]["nodeName"] = format!("n{}", self.0.index(count)).into();
            pods.push(pod);
        }
        let volumes = vec![
            self.volume(0, Some("bound")),
            self.volume(1, Some("missing")),
            self.volume(2, None),
            self.volume(3, None),
        ];
        let claims = vec![
            self.claim("bound", "local", Some("v0")),
            self.claim("lost", "local", Some("v9")),
            self.claim("later", "local", None),
            self.claim("zonal", "zonal", None),
            self.claim("now", "now", None),
        ];
        let mut all = Vec::new();
        for nth in 0..tried {
            // Many rules at once are satisfied nowhere.
            let rules = self.one(&[0, 10, 25]);
            let mut pod = self.pod(format!("t{nth}"), rules);
            if self.in_hundred(30) {
                let constraints: Vec<Value> = (0..=self.0.index(2)).map(|_| self.spread()).collect();
                let keys: Vec<&Value> = constraints.iter().map(|one| &one["topologyKey"]).collect();
                if keys.len() == 1 || keys[0] != keys[1] {
                    pod["spec"]["topologySpreadConstraints"] = constraints.into();
                }
            }
            if self.in_hundred(15) {
                let name = self.one(&["bound", "bound", "lost", "later", "later", "zonal", "now", "absent"]);
                pod["metadata"]["namespace"] = "default".into();
                pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
            }
            all.push(pod);
        }
        Generated { nodes, volumes, claims, pods, tried: all }
    }
}
