// Freehold through `@kubernetes/client-node`: what its users do, each thing told as a fact.
//
// KUBECONFIG names a project. Each fact has a namespace of its own, and all run at once; a line `ok NAME` is printed for each
// that holds. The program fails if one doesn't.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const PATIENCE = 60_000;
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for a condition, and gives what it gave. */
async function until(condition) {
  for (const end = Date.now() + PATIENCE; Date.now() < end; await pause(50)) {
    const value = await condition();
    if (value) return value;
  }
  throw new Error('it took too long');
}

/** Wants the server to refuse with this code. */
async function fails(code, promise) {
  try {
    await promise;
  } catch (error) {
    assert.equal(error.code, code, `${error}`);
    return typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
  }
  throw new Error(`${code} was expected`);
}

const configMap = (namespace, name, labels = {}) =>
  core.createNamespacedConfigMap({ namespace, body: { metadata: { name, labels }, data: { k: 'v' } } });

const deployment = (name, image = 'web:1') => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name },
  spec: {
    replicas: 0,
    selector: { matchLabels: { app: name } },
    template: { metadata: { labels: { app: name } }, spec: { containers: [{ name, image }] } },
  },
});

const facts = {
  async objects_are_made_read_replaced_and_deleted(namespace) {
    const made = await configMap(namespace, 'a');
    assert.ok(made.metadata.uid && made.metadata.creationTimestamp instanceof Date);
    await fails(409, configMap(namespace, 'a'));
    const stale = structuredClone(made);
    made.data = { k: 'w' };
    const replaced = await core.replaceNamespacedConfigMap({ namespace, name: 'a', body: made });
    assert.equal(replaced.data.k, 'w');
    const conflict = await fails(409, core.replaceNamespacedConfigMap({ namespace, name: 'a', body: stale }));
    assert.equal(conflict.reason, 'Conflict');
    const dry = await core.createNamespacedConfigMap({ namespace, dryRun: 'All', body: { metadata: { generateName: 'dry-' } } });
    await fails(404, core.readNamespacedConfigMap({ namespace, name: dry.metadata.name }));
    await core.deleteNamespacedConfigMap({ namespace, name: 'a', body: { preconditions: { uid: replaced.metadata.uid } } });
    const gone = await fails(404, core.readNamespacedConfigMap({ namespace, name: 'a' }));
    assert.equal(gone.message, 'configmaps "a" not found');
  },

  async every_kind_of_patch_is_taken(namespace) {
    await apps.createNamespacedDeployment({ namespace, body: deployment('web') });
    const patch = (strategy, body) =>
      apps.patchNamespacedDeployment(
        { namespace, name: 'web', body, fieldManager: 'node' },
        k8s.setHeaderOptions('Content-Type', strategy),
      );
    let patched = await patch(k8s.PatchStrategy.JsonPatch, [{ op: 'replace', path: '/spec/replicas', value: 2 }]);
    assert.equal(patched.spec.replicas, 2);
    patched = await patch(k8s.PatchStrategy.MergePatch, { spec: { replicas: 0, paused: true } });
    assert.deepEqual([patched.spec.replicas, patched.spec.paused], [0, true]);
    const side = { spec: { template: { spec: { containers: [{ name: 'side', image: 'side:1' }] } } } };
    patched = await patch(k8s.PatchStrategy.StrategicMergePatch, side);
    assert.equal(patched.spec.template.spec.containers.length, 2);
    const applied = await patch(k8s.PatchStrategy.ServerSideApply, {
      apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'web', labels: { by: 'node' } },
    });
    assert.equal(applied.metadata.managedFields.find((entry) => entry.operation === 'Apply').manager, 'node');
  },

  async watches_tell_each_change(namespace) {
    const watch = new k8s.Watch(config);
    const seen = [];
    const { metadata } = await core.listNamespacedConfigMap({ namespace });
    let ended;
    const end = new Promise((resolve) => { ended = resolve; });
    const controller = await watch.watch(
      `/api/v1/namespaces/${namespace}/configmaps`,
      { resourceVersion: metadata.resourceVersion, labelSelector: 'w=yes', allowWatchBookmarks: true },
      (type, object) => { if (type !== 'BOOKMARK') seen.push(`${type} ${object.metadata.name}`); },
      ended,
    );
    await configMap(namespace, 'a', { w: 'yes' });
    await configMap(namespace, 'b');
    await core.deleteNamespacedConfigMap({ namespace, name: 'a' });
    await until(() => seen.length === 2);
    controller.abort();
    await end;
    assert.deepEqual(seen, ['ADDED a', 'DELETED a']);
  },

  async informers_keep_what_is_there(namespace) {
    await configMap(namespace, 'before', { i: 'yes' });
    const list = () => core.listNamespacedConfigMap({ namespace, labelSelector: 'i=yes' });
    const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list, 'i=yes');
    const seen = [];
    for (const event of ['add', 'update', 'delete']) {
      informer.on(event, (object) => seen.push(`${event} ${object.metadata.name}`));
    }
    informer.on('error', (error) => seen.push(`error ${error}`));
    await informer.start();
    await configMap(namespace, 'after', { i: 'yes' });
    await until(() => seen.includes('add after'));
    assert.ok(informer.get('before', namespace));
    await core.deleteNamespacedConfigMap({ namespace, name: 'before' });
    await until(() => seen.includes('delete before'));
    const told = [...seen];
    await informer.stop();
    assert.deepEqual(told, ['add before', 'add after', 'delete before']);
  },

  async lists_come_in_pages(namespace) {
    await Promise.all([1, 2, 3, 4, 5].map((index) => configMap(namespace, `page-${index}`, { p: 'yes' })));
    const names = [];
    let _continue;
    do {
      const page = await core.listNamespacedConfigMap({ namespace, labelSelector: 'p=yes', limit: 2, _continue });
      names.push(...page.items.map((item) => item.metadata.name));
      _continue = page.metadata._continue;
    } while (_continue);
    assert.deepEqual(names, ['page-1', 'page-2', 'page-3', 'page-4', 'page-5']);
    await core.deleteCollectionNamespacedConfigMap({ namespace, labelSelector: 'p in (yes)' });
    assert.equal((await core.listNamespacedConfigMap({ namespace, labelSelector: 'p=yes' })).items.length, 0);
  },

  async objects_of_any_kind_are_found_by_discovery(namespace) {
    const body = deployment('any');
    body.metadata.namespace = namespace;
    await objects.create(body);
    const read = await objects.read({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'any', namespace } });
    assert.equal(read.spec.template.spec.restartPolicy, 'Always');
    const patched = await objects.patch(
      { ...body, metadata: { ...body.metadata, labels: { a: 'b' } } },
      undefined, undefined, 'node', true, k8s.PatchStrategy.ServerSideApply,
    );
    assert.equal(patched.metadata.labels.a, 'b');
    const all = await objects.list('apps/v1', 'Deployment', namespace);
    assert.equal(all.items.length, 1);
    await objects.delete(body);
  },

  async custom_resources_have_schemas(namespace) {
    const group = 'node.example.com';
    const extensions = config.makeApiClient(k8s.ApiextensionsV1Api);
    const schema = {
      type: 'object',
      properties: { spec: { type: 'object', required: ['size'], properties: { size: { type: 'integer', minimum: 1 } } } },
    };
    await extensions.createCustomResourceDefinition({ body: {
      metadata: { name: `gizmos.${group}` },
      spec: {
        group, scope: 'Namespaced', names: { plural: 'gizmos', singular: 'gizmo', kind: 'Gizmo' },
        versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: schema } }],
      },
    } });
    await until(async () => {
      const { status } = await extensions.readCustomResourceDefinition({ name: `gizmos.${group}` });
      return status?.conditions?.some((c) => c.type === 'Established' && c.status === 'True');
    });
    const custom = config.makeApiClient(k8s.CustomObjectsApi);
    const place = { group, version: 'v1', namespace, plural: 'gizmos' };
    const gizmo = (name, size) => ({ apiVersion: `${group}/v1`, kind: 'Gizmo', metadata: { name }, spec: { size } });
    await custom.createNamespacedCustomObject({ ...place, body: gizmo('a', 1) });
    const error = await fails(422, custom.createNamespacedCustomObject({ ...place, body: gizmo('b', 0) }));
    assert.match(error.message, /should be greater than or equal to 1/);
    const list = await custom.listNamespacedCustomObject(place);
    assert.equal(list.kind, 'GizmoList');
  },

  async rights_are_reviewed(namespace) {
    const rbac = config.makeApiClient(k8s.RbacAuthorizationV1Api);
    const roleRef = { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'view' };
    const subjects = [{ kind: 'User', name: 'node-jane', apiGroup: 'rbac.authorization.k8s.io' }];
    await rbac.createNamespacedRoleBinding({ namespace, body: { metadata: { name: 'view' }, roleRef, subjects } });
    const reviews = config.makeApiClient(k8s.AuthorizationV1Api);
    const ask = async (resource) => {
      const resourceAttributes = { namespace, verb: 'list', resource };
      const review = await reviews.createSubjectAccessReview({ body: { spec: { user: 'node-jane', resourceAttributes } } });
      return review.status.allowed;
    };
    assert.deepEqual([await ask('configmaps'), await ask('secrets')], [true, false]);
  },

  async manifests_of_several_documents_are_read(namespace) {
    const text = `
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: ${namespace}}
stringData: {k: v}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: p, namespace: ${namespace}}
spec: {minAvailable: 50%, selector: {matchLabels: {a: b}}}
`;
    for (const object of k8s.loadAllYaml(text)) await objects.create(object);
    const secret = await core.readNamespacedSecret({ namespace, name: 's' });
    assert.equal(Buffer.from(secret.data.k, 'base64').toString(), 'v');
    assert.equal(secret.type, 'Opaque');
  },
};

async function check([name, fact]) {
  const namespace = `node-${name.replaceAll('_', '-')}`;
  try {
    await core.createNamespace({ body: { metadata: { name: namespace } } });
    await fact(namespace);
    console.log(`ok ${name}`);
    return true;
  } catch (error) {
    console.log(`failed ${name}: ${error.stack ?? error}`);
    return false;
  }
}

const held = await Promise.all(Object.entries(facts).map(check));
process.exit(held.every(Boolean) ? 0 : 1);
