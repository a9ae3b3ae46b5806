"""Freehold through the Python client `kubernetes`: what its users do, each thing told as a fact.

`KUBECONFIG` names a project. Each fact has a namespace of its own, and all run at once; a line `ok NAME` is printed for each
that holds. The program fails if one doesn't.
"""

import concurrent.futures
import sys
import threading
import time
import traceback

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.rest import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

PATIENCE = 60
FACTS = []


def fact(function):
    FACTS.append(function)
    return function


def fails(code, call, *args, **named):
    """Calls, and wants the server to refuse with this code."""
    try:
        result = call(*args, **named)
    except ApiException as error:
        assert error.status == code, f"{error.status} {error.body}"
        return error
    raise AssertionError(f"{code} was expected, not {result}")


def until(condition):
    """Waits for a condition, and gives what it gave."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError("it took too long")


def config_map(namespace, name, data=None, labels=None):
    body = {"metadata": {"name": name, "labels": labels or {}}, "data": data or {}}
    return client.CoreV1Api().create_namespaced_config_map(namespace, body)


def deployment(name, image="web:1", **spec):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": name, "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


@fact
def pods_are_typed(namespace):
    core = client.CoreV1Api()
    container = client.V1Container(name="a", image="a:1", ports=[client.V1ContainerPort(container_port=80)])
    pod = client.V1Pod(metadata=client.V1ObjectMeta(name="a"), spec=client.V1PodSpec(containers=[container]))
    made = core.create_namespaced_pod(namespace, pod)
    assert made.status.phase == "Pending" and made.status.qos_class == "BestEffort", made.status
    assert made.spec.containers[0].ports[0].protocol == "TCP"
    assert made.metadata.creation_timestamp.tzinfo is not None
    fails(409, core.create_namespaced_pod, namespace, pod)
    body = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    core.patch_namespaced_pod_status("a", namespace, body)
    listed = core.list_namespaced_pod(namespace, field_selector="status.phase=Running")
    assert [item.metadata.name for item in listed.items] == ["a"]
    core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)
    fails(404, core.read_namespaced_pod, "a", namespace)


@fact
def every_kind_of_patch_is_taken(namespace):
    apps = client.AppsV1Api()
    apps.create_namespaced_deployment(namespace, deployment("web", paused=True))
    patched = apps.patch_namespaced_deployment("web", namespace, {"spec": {"replicas": 3}})
    assert patched.spec.replicas == 3 and patched.metadata.generation == 2
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 2}]
    assert apps.patch_namespaced_deployment("web", namespace, operations).spec.replicas == 2

    def scaled():
        scale = apps.read_namespaced_deployment_scale("web", namespace)
        scale.spec.replicas = 4
        try:
            return apps.replace_namespaced_deployment_scale("web", namespace, scale)
        except ApiException as error:
            # A controller wrote the status in between.
            assert error.status == 409, error

    until(scaled)
    assert apps.read_namespaced_deployment("web", namespace).spec.replicas == 4
    fails(422, apps.patch_namespaced_deployment, "web", namespace, {"spec": {"selector": {"matchLabels": {"a": "b"}}}})


@fact
def apply_has_owners_and_conflicts(namespace):
    with client.ApiClient() as api:
        resources = dynamic.DynamicClient(api)
        deployments = resources.resources.get(api_version="apps/v1", kind="Deployment")

        def apply(manager, image, **more):
            body = deployment("web", image)
            return resources.server_side_apply(
                deployments, body, "web", namespace, field_manager=manager, **more
            )

        assert apply("one", "web:1").metadata.generation == apply("one", "web:1").metadata.generation == 1
        try:
            apply("two", "web:2")
            raise AssertionError("a conflict was expected")
        except ConflictError as error:
            assert 'conflict with \\"one\\"' in error.body, error.body
        forced = apply("two", "web:2", force_conflicts=True)
        assert forced.spec.template.spec.containers[0].image == "web:2"
        assert {entry.manager for entry in forced.metadata.managedFields} >= {"one", "two"}


@fact
def watches_tell_each_change_and_go_on(namespace):
    core = client.CoreV1Api()
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    for name in ["a", "b"]:
        config_map(namespace, name, labels={"w": "yes"})
    core.delete_namespaced_config_map("a", namespace)
    watching = watch.Watch()
    seen = []
    for event in watching.stream(
        core.list_namespaced_config_map, namespace, resource_version=version, label_selector="w=yes", timeout_seconds=PATIENCE
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 3:
            break
    assert seen == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")], seen
    assert int(watching.resource_version) > int(version)
    ended = list(watch.Watch().stream(core.list_namespaced_config_map, namespace, label_selector="w=no", timeout_seconds=1))
    assert ended == [], ended


@fact
def lists_come_in_pages(namespace):
    core = client.CoreV1Api()
    for index in range(5):
        config_map(namespace, f"page-{index}", labels={"p": "yes"})
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(namespace, label_selector="p=yes", limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{index}" for index in range(5)], names
    fails(400, core.list_namespaced_config_map, namespace, limit=2, _continue="nonsense")
    gone = core.delete_collection_namespaced_config_map(namespace, label_selector="p=yes")
    assert gone.status in (None, "Success") and not core.list_namespaced_config_map(namespace, label_selector="p=yes").items


@fact
def yaml_of_several_kinds_is_made(namespace):
    objects = [
        deployment("web", replicas=0),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}},
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "web"}, "spec": {"podSelector": {}}},
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "web"}, "spec": {
            "schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}}}},
    ]
    with client.ApiClient() as api:
        for body in objects:
            utils.create_from_dict(api, body, namespace=namespace)
    service = client.CoreV1Api().read_namespaced_service("web", namespace)
    assert service.spec.cluster_ip and service.spec.type == "ClusterIP"
    assert client.BatchV1Api().read_namespaced_cron_job("web", namespace).spec.concurrency_policy == "Allow"


@fact
def custom_resources_are_dynamic(namespace):
    group = "python.example.com"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "maximum": 9}, "colour": {"type": "string", "default": "red"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    definition = {"metadata": {"name": f"gadgets.{group}"}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}, "versions": [{
            "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}}}]}}
    extensions = client.ApiextensionsV1Api()
    extensions.create_custom_resource_definition(definition)

    def established():
        conditions = extensions.read_custom_resource_definition(f"gadgets.{group}").status.conditions or []
        return any(c.type == "Established" and c.status == "True" for c in conditions)

    until(established)
    custom = client.CustomObjectsApi()
    place = (group, "v1", namespace, "gadgets")
    body = {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": {"size": 1}}
    assert custom.create_namespaced_custom_object(*place, body)["spec"]["colour"] == "red"
    error = fails(422, custom.create_namespaced_custom_object, *place, {**body, "metadata": {"name": "b"}, "spec": {"size": 10}})
    assert "should be less than or equal to 9" in error.body, error.body
    custom.patch_namespaced_custom_object_status(*place, "a", {"status": {"ok": True}})
    with client.ApiClient() as api:
        gadgets = dynamic.DynamicClient(api).resources.get(api_version=f"{group}/v1", kind="Gadget")
        assert gadgets.get(name="a", namespace=namespace).status.ok is True
        for event in gadgets.watch(namespace=namespace, timeout=PATIENCE):
            assert event["object"].metadata.name == "a"
            break
        gadgets.delete(name="a", namespace=namespace)
        try:
            gadgets.get(name="a", namespace=namespace)
            raise AssertionError("it is still there")
        except NotFoundError:
            pass


@fact
def rights_are_reviewed_and_impersonated(namespace):
    rbac = client.RbacAuthorizationV1Api()
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
    rbac.create_namespaced_role(namespace, {"metadata": {"name": "reader"}, "rules": rules})
    rbac.create_namespaced_role_binding(namespace, {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    })
    review = client.AuthorizationV1Api()
    for verb, allowed in [("list", True), ("delete", False)]:
        asked = {"spec": {"user": "jane", "resourceAttributes": {"namespace": namespace, "verb": verb, "resource": "configmaps"}}}
        assert review.create_subject_access_review(asked).status.allowed is allowed, verb
    jane = client.ApiClient()
    jane.set_default_header("Impersonate-User", "jane")
    core = client.CoreV1Api(jane)
    assert core.list_namespaced_config_map(namespace).metadata.resource_version
    assert 'User "jane" cannot list resource "secrets"' in fails(403, core.list_namespaced_secret, namespace).body.replace("\\", "")


@fact
def a_token_signs_in(namespace):
    core = client.CoreV1Api()
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "robot"}})
    spec = {"spec": {"expirationSeconds": 600}}
    token = core.create_namespaced_service_account_token("robot", namespace, spec).status.token
    own = client.Configuration.get_default_copy()
    own.cert_file = own.key_file = None
    own.api_key = {"authorization": f"Bearer {token}"}
    with client.ApiClient(own) as api:
        who = client.AuthenticationV1Api(api).create_self_subject_review({}).status.user_info
        assert who.username == f"system:serviceaccount:{namespace}:robot", who
        fails(403, client.CoreV1Api(api).list_namespaced_pod, namespace)


@fact
def quotas_count_and_refuse(namespace):
    core = client.CoreV1Api()
    core.create_namespaced_resource_quota(namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"count/secrets": "1"}}})
    until(lambda: (core.read_namespaced_resource_quota("q", namespace).status.used or {}).get("count/secrets") == "0")
    core.create_namespaced_secret(namespace, {"metadata": {"name": "a"}, "stringData": {"k": "v"}})
    error = fails(403, core.create_namespaced_secret, namespace, {"metadata": {"name": "b"}})
    assert "exceeded quota: q" in error.body, error.body
    assert core.read_namespaced_secret("a", namespace).data == {"k": "dg=="}


@fact
def namespaces_go_with_what_is_in_them(namespace):
    core = client.CoreV1Api()
    config_map(namespace, "a")
    core.create_namespace({"metadata": {"name": f"{namespace}-x"}})
    until(lambda: core.list_namespaced_service_account(f"{namespace}-x").items)
    config_map(f"{namespace}-x", "a")
    core.delete_namespace(f"{namespace}-x")
    until(lambda: all(n.metadata.name != f"{namespace}-x" for n in core.list_namespace().items))
    assert core.read_namespaced_config_map("a", namespace)


def check(function):
    namespace = "python-" + function.__name__.replace("_", "-")
    try:
        client.CoreV1Api().create_namespace({"metadata": {"name": namespace}})
        function(namespace)
    except Exception:
        return traceback.format_exc()


def main():
    config.load_kube_config()
    lock, failed = threading.Lock(), 0
    with concurrent.futures.ThreadPoolExecutor(len(FACTS)) as pool:
        tried = {pool.submit(check, function): function.__name__ for function in FACTS}
        for done in concurrent.futures.as_completed(tried):
            error = done.result()
            failed += error is not None
            with lock:
                print(f"failed {tried[done]}: {error}" if error else f"ok {tried[done]}", flush=True)
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
