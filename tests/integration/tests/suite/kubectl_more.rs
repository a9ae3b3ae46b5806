//! What people do besides: scale, roll out, replace, apply whole bundles, ask for the cluster.

use crate::{PATIENCE, Scratch, contains_all, items, names, text};
use freehold_tests_integration::{World, facts, until};

const PROJECT: &str = "more";

facts!(world:
    a_deployment_makes_pods_and_is_scaled_and_rolled_out,
    replace_needs_the_current_resource_version,
    a_bundle_of_many_kinds_is_applied_twice,
    a_kustomization_is_applied,
    cluster_info_and_version_are_told,
    generated_names_are_unique,
    quotas_limit_what_a_namespace_holds,
    jobs_make_their_pods,
);

fn a_deployment_makes_pods_and_is_scaled_and_rolled_out(world: &World) {
    let kubectl = world.namespace(PROJECT, "rollout");
    kubectl.ok(&["create", "deployment", "web", "--image=registry.example/web:1", "--replicas=2"]);
    let pods = |count: usize| {
        until(&format!("{count} pods"), PATIENCE, || {
            let pods = kubectl.json(&["get", "pods", "-l", "app=web"]);
            let alive = items(&pods).filter(|pod| text(pod, "/metadata/deletionTimestamp").is_empty());
            (alive.count() == count).then_some(())
        });
    };
    pods(2);
    contains_all(
        &kubectl.ok(&["scale", "deployment", "web", "--replicas=1"]),
        &["deployment.apps/web scaled"],
    );
    pods(1);
    let complaint = kubectl.fails(&["scale", "deployment", "web", "--current-replicas=7", "--replicas=3"]);
    contains_all(&complaint, &["Expected replicas to be 7, was 1"]);
    contains_all(
        &kubectl.ok(&["set", "image", "deployment/web", "web=registry.example/web:2"]),
        &["image updated"],
    );
    until("a second revision", PATIENCE, || {
        let history = kubectl.ok(&["rollout", "history", "deployment/web"]);
        history.lines().any(|line| line.starts_with('2')).then_some(())
    });
    kubectl.ok(&["rollout", "undo", "deployment/web"]);
    let image = "--for=jsonpath={.spec.template.spec.containers[0].image}=registry.example/web:1";
    kubectl.ok(&["wait", image, "deployment/web", "--timeout=120s"]);
    for (verb, outcome) in [("pause", "paused"), ("resume", "resumed"), ("restart", "restarted")] {
        contains_all(&kubectl.ok(&["rollout", verb, "deployment/web"]), &[outcome]);
    }
    let complaint = kubectl.fails(&["rollout", "status", "deployment/web", "--timeout=1s"]);
    contains_all(&complaint, &["timed out"]);
    kubectl.ok(&["autoscale", "deployment", "web", "--min=1", "--max=3"]);
    kubectl.ok(&["expose", "deployment", "web", "--port=80"]);
    assert_eq!(kubectl.json(&["get", "service", "web"])["spec"]["selector"]["app"], "web");
    kubectl.ok(&["delete", "deployment", "web"]);
    pods(0);
}

fn replace_needs_the_current_resource_version(world: &World) {
    let kubectl = world.namespace(PROJECT, "replace");
    kubectl.ok(&["create", "configmap", "a", "--from-literal=k=first"]);
    let old = kubectl.ok(&["get", "configmap", "a", "-o", "yaml"]);
    let replace = |manifest: &str| kubectl.run_with_input(&["replace", "-f", "-"], manifest);
    contains_all(&replace(&old.replace("first", "second")).expect_ok(), &["configmap/a replaced"]);
    let complaint = replace(&old.replace("first", "third")).expect_failure();
    let words = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
                 changes to the latest version and try again";
    contains_all(&complaint, &["Error from server (Conflict)", words]);
    replace("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: fourth}}").expect_ok();
    assert_eq!(kubectl.json(&["get", "configmap", "a"])["data"]["k"], "fourth");
    let force = ["replace", "--force", "-f", "-"];
    kubectl.run_with_input(&force, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").expect_ok();
    let missing =
        replace("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: nothing}}").expect_failure();
    contains_all(&missing, &["NotFound"]);
}

const BUNDLE: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: app, labels: {app.kubernetes.io/name: app}}, automountServiceAccountToken: false}
- {apiVersion: v1, kind: Secret, metadata: {name: app}, type: Opaque, stringData: {password: hidden}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {app.yaml: \"a: 1\\nb: [x, y]\\n\"}, immutable: true}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: app}
  rules: [{apiGroups: [''], resources: [configmaps], resourceNames: [app], verbs: [get, watch]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: app}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: app}
  subjects: [{kind: ServiceAccount, name: app, namespace: bundle}]
- apiVersion: v1
  kind: Service
  metadata: {name: app}
  spec: {type: ClusterIP, selector: {app: app}, ports: [{name: http, port: 80, targetPort: http}, {name: dns, port: 53, protocol: UDP}]}
- apiVersion: v1
  kind: Service
  metadata: {name: app-headless}
  spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: app}, ports: [{port: 80}]}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: app}
  spec:
    replicas: 1
    revisionHistoryLimit: 3
    selector: {matchLabels: {app: app}}
    strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
    template:
      metadata: {labels: {app: app}, annotations: {prometheus.io/scrape: 'true'}}
      spec:
        serviceAccountName: app
        securityContext: {runAsNonRoot: true, fsGroup: 1000}
        initContainers: [{name: init, image: busybox, command: [sh, -c, 'true']}]
        containers:
        - name: app
          image: registry.example/app
          args: [--config=/etc/app/app.yaml]
          env:
          - {name: PASSWORD, valueFrom: {secretKeyRef: {name: app, key: password}}}
          - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
          ports: [{name: http, containerPort: 8080}]
          resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 512Mi}}
          livenessProbe: {httpGet: {path: /healthz, port: http}}
          readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 5}
          volumeMounts: [{name: config, mountPath: /etc/app, readOnly: true}]
        volumes: [{name: config, configMap: {name: app}}, {name: tmp, emptyDir: {}}]
- apiVersion: apps/v1
  kind: StatefulSet
  metadata: {name: db}
  spec:
    serviceName: db
    selector: {matchLabels: {app: db}}
    template:
      metadata: {labels: {app: db}}
      spec: {containers: [{name: db, image: 'postgres:17', ports: [{containerPort: 5432}]}]}
    volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
- {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {hostNetwork: true, tolerations: [{operator: Exists}], containers: [{name: a, image: agent}]}}}}
- {apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}, spec: {schedule: '0 3 * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: main, image: nightly}]}}}}}}
- {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: app}, spec: {rules: [{host: app.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: app, port: {name: http}}}}]}}]}}
- {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: app}, spec: {podSelector: {matchLabels: {app: app}}, policyTypes: [Ingress], ingress: [{ports: [{port: http}]}]}}
- {apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: app}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: app}}}}
- {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: app}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: app}, minReplicas: 1, maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]}}
- {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
- {apiVersion: v1, kind: LimitRange, metadata: {name: limits}, spec: {limits: [{type: Container, default: {memory: 128Mi}, defaultRequest: {cpu: 10m}}]}}
";

fn a_bundle_of_many_kinds_is_applied_twice(world: &World) {
    let kubectl = world.namespace(PROJECT, "bundle");
    let first = kubectl.apply(BUNDLE);
    let count = first.lines().count();
    assert_eq!(first.matches(" created").count(), count, "{first}");
    let second = kubectl.apply(BUNDLE);
    // These have defaults in lists that are one value, or fields that are written elsewhere: so it is in Kubernetes.
    let other =
        ["secret/app", "statefulset.apps/db", "networkpolicy.", "poddisruptionbudget.", "limitrange/"];
    for line in second.lines().filter(|line| !other.iter().any(|name| line.starts_with(name))) {
        assert!(line.ends_with(" unchanged"), "{second}");
    }
    let server_side = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    kubectl.run_with_input(&server_side, BUNDLE).expect_ok();
    let deployment = kubectl.json(&["get", "deployment", "app"]);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always", "of an image without a tag: {container}");
    assert_eq!(container["livenessProbe"]["periodSeconds"], 10);
    assert_eq!(deployment["spec"]["strategy"]["type"], "RollingUpdate");
    assert_eq!(kubectl.json(&["get", "service", "app-headless"])["spec"]["clusterIP"], "None");
    assert_eq!(kubectl.json(&["get", "secret", "app"])["data"]["password"], "aGlkZGVu");
    let complaint = kubectl.fails(&["patch", "configmap", "app", "-p", "{\"data\":{\"x\":\"y\"}}"]);
    contains_all(&complaint, &["field is immutable when `immutable` is set"]);
    kubectl.run_with_input(&["delete", "-f", "-"], BUNDLE).expect_ok();
}

fn a_kustomization_is_applied(world: &World) {
    let kubectl = world.namespace(PROJECT, "kustomize");
    let folder = world.server().folder().join("kustomize");
    std::fs::create_dir_all(&folder).expect("the test's folder can be written");
    let files = [
        (
            "kustomization.yaml",
            "resources: [map.yaml]\nnamePrefix: pre-\nlabels: [{pairs: {by: kustomize}}]\nconfigMapGenerator: [{name: made, literals: [a=b]}]\n",
        ),
        ("map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
    ];
    for (name, content) in files {
        std::fs::write(folder.join(name), content).expect("the test's folder can be written");
    }
    let path = folder.to_str().expect("a path of text");
    kubectl.ok(&["apply", "-k", path]);
    let found = kubectl.json(&["get", "configmaps", "-l", "by=kustomize"]);
    assert_eq!(names(&found).len(), 2, "{found}");
    assert!(names(&found).contains(&"pre-a"));
}

fn cluster_info_and_version_are_told(world: &World) {
    let kubectl = world.project(PROJECT);
    let url = format!("{}/projects/{PROJECT}", world.server().url());
    contains_all(&kubectl.ok(&["cluster-info"]), &[&url]);
    let version = kubectl.json(&["version"]);
    assert!(text(&version, "/serverVersion/gitVersion").contains("freehold"), "{version}");
    // With a path of its own, `--raw` leaves out that of the kubeconfig.
    kubectl.ok(&["get", "--raw", &format!("/projects/{PROJECT}/openapi/v3")]);
}

fn generated_names_are_unique(world: &World) {
    let kubectl = world.namespace(PROJECT, "generate");
    let manifest = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {generateName: made-}}";
    let made =
        [0, 1].map(|_| kubectl.run_with_input(&["create", "-o", "name", "-f", "-"], manifest).expect_ok());
    assert_ne!(made[0], made[1]);
    assert!(made.iter().all(|name| name.starts_with("configmap/made-")), "{made:?}");
}

fn quotas_limit_what_a_namespace_holds(world: &World) {
    let kubectl = world.namespace(PROJECT, "quota");
    kubectl.ok(&["create", "quota", "few", "--hard=pods=1"]);
    kubectl.ok(&["wait", "--for=jsonpath={.status.used.pods}=0", "quota/few", "--timeout=120s"]);
    kubectl.ok(&["run", "a", "--image=registry.example/a"]);
    let complaint = kubectl.fails(&["run", "b", "--image=registry.example/b"]);
    let words =
        "pods \"b\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1";
    contains_all(&complaint, &[words]);
    kubectl.ok(&["delete", "pod", "a"]);
    until("the quota counts down", PATIENCE, || {
        kubectl.run(&["run", "b", "--image=registry.example/b"]).success.then_some(())
    });
    // Long before it is counted again without a cause.
    kubectl.ok(&["create", "quota", "others", "--hard=secrets=1,count/deployments.apps=1"]);
    kubectl.ok(&["wait", "--for=jsonpath={.status.used.secrets}=0", "quota/others", "--timeout=120s"]);
    for (kind, more) in
        [("secret", &["generic"][..]), ("deployment", &["--image=registry.example/c", "--replicas=0"])]
    {
        let create = |name| match more {
            [generic] => kubectl.run(&["create", kind, generic, name]),
            more => kubectl.run(&[&["create", kind, name], more].concat()),
        };
        create("c").expect_ok();
        contains_all(&create("d").expect_failure(), &["exceeded quota: others"]);
        kubectl.ok(&["delete", kind, "c"]);
        until("what was deleted is given back", PATIENCE, || create("d").success.then_some(()));
    }
}

fn jobs_make_their_pods(world: &World) {
    let kubectl = world.namespace(PROJECT, "jobs");
    let file = Scratch::new(
        world,
        "job.yaml",
        "
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: registry.example/once}]}}}
",
    );
    kubectl.ok(&["create", "-f", file.path()]);
    until("the job's pod", PATIENCE, || {
        let pods = kubectl.json(&["get", "pods", "-l", "batch.kubernetes.io/job-name=once"]);
        (items(&pods).count() == 1).then_some(())
    });
    kubectl.ok(&["delete", "job", "once"]);
    until("no pod is left", PATIENCE, || (items(&kubectl.json(&["get", "pods"])).count() == 0).then_some(()));
}
