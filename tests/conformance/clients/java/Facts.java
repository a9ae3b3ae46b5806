import io.fabric8.kubernetes.api.model.*;
import io.fabric8.kubernetes.api.model.apiextensions.v1.*;
import io.fabric8.kubernetes.api.model.apps.*;
import io.fabric8.kubernetes.client.*;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.dsl.base.*;
import io.fabric8.kubernetes.client.extended.leaderelection.*;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.*;
import io.fabric8.kubernetes.client.informers.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.function.*;

/**
 * Freehold through fabric8's client, which Java operators are built on: what its users do, each thing told as a fact.
 *
 * KUBECONFIG names a project. Each fact has a namespace of its own, and all run at once; a line `ok NAME` is printed for each
 * that holds. The program fails if one doesn't.
 */
class Facts {
    static final Duration PATIENCE = Duration.ofSeconds(60);
    static final KubernetesClient client = new KubernetesClientBuilder().withConfig(config()).build();

    interface Fact {
        void hold(String namespace) throws Exception;
    }

    static Config config() {
        Config config = Config.autoConfigure(null);
        // A refusal that asks to come again is one that a fact waits for.
        config.setRequestRetryBackoffLimit(0);
        return config;
    }

    static void check(boolean holds, Object what) {
        if (!holds) throw new AssertionError(what);
    }

    static void until(BooleanSupplier condition) throws Exception {
        for (long end = System.nanoTime() + PATIENCE.toNanos(); System.nanoTime() < end; Thread.sleep(50)) {
            if (condition.getAsBoolean()) return;
        }
        throw new AssertionError("it took too long");
    }

    static void fails(int code, Runnable call) {
        try {
            call.run();
        } catch (KubernetesClientException error) {
            check(error.getCode() == code, error);
            return;
        }
        throw new AssertionError(code + " was expected");
    }

    /** Tries again where a controller wrote in between. */
    static <T> T retried(Supplier<T> write) {
        while (true) {
            try {
                return write.get();
            } catch (KubernetesClientException error) {
                if (error.getCode() != 409) throw error;
            }
        }
    }

    static ConfigMap configMap(String namespace, String name, Map<String, String> labels) {
        return client.configMaps().inNamespace(namespace).resource(new ConfigMapBuilder()
            .withNewMetadata().withName(name).withLabels(labels).endMetadata().addToData("k", "v").build()).create();
    }

    static Deployment deployment(String name, String image) {
        return new DeploymentBuilder().withNewMetadata().withName(name).endMetadata()
            .withNewSpec().withReplicas(0).withNewSelector().addToMatchLabels("app", name).endSelector()
            .withNewTemplate().withNewMetadata().addToLabels("app", name).endMetadata()
            .withNewSpec().addNewContainer().withName(name).withImage(image).endContainer().endSpec()
            .endTemplate().endSpec().build();
    }

    static void objects_are_made_edited_and_deleted(String namespace) {
        ConfigMap made = configMap(namespace, "a", Map.of());
        check(made.getMetadata().getUid() != null, made);
        fails(409, () -> configMap(namespace, "a", Map.of()));
        var maps = client.configMaps().inNamespace(namespace);
        ConfigMap edited = maps.withName("a").edit(map -> new ConfigMapBuilder(map).addToData("k", "w").build());
        check("w".equals(edited.getData().get("k")), edited);
        fails(409, () -> maps.resource(made).lockResourceVersion(made.getMetadata().getResourceVersion()).update());
        check(maps.withName("a").delete().size() == 1, "deleted");
        check(maps.withName("a").get() == null, "gone");
        ConfigMap dry = maps.resource(new ConfigMapBuilder().withNewMetadata().withGenerateName("dry-").endMetadata().build())
            .dryRun().create();
        check(maps.withName(dry.getMetadata().getName()).get() == null, dry);
    }

    static void apply_has_owners_and_conflicts(String namespace) {
        var deployments = client.apps().deployments().inNamespace(namespace);
        deployments.resource(deployment("web", "web:1")).fieldManager("one").serverSideApply();
        fails(409, () -> deployments.resource(deployment("web", "web:2")).fieldManager("two").serverSideApply());
        Deployment forced = deployments.resource(deployment("web", "web:2")).fieldManager("two").forceConflicts().serverSideApply();
        check(forced.getMetadata().getManagedFields().stream().map(ManagedFieldsEntry::getManager).toList()
            .containsAll(List.of("one", "two")), forced.getMetadata());
        check(retried(() -> deployments.withName("web").scale(2)).getSpec().getReplicas() == 2, "scaled");
    }

    static void every_kind_of_patch_is_taken(String namespace) {
        var deployments = client.apps().deployments().inNamespace(namespace);
        deployments.resource(deployment("web", "web:1")).create();
        Function<PatchContext, Function<String, Deployment>> patch =
            context -> body -> deployments.withName("web").patch(context, body);
        var merged = patch.apply(PatchContext.of(PatchType.JSON_MERGE)).apply("{\"spec\":{\"paused\":true}}");
        check(merged.getSpec().getPaused(), merged);
        var json = patch.apply(PatchContext.of(PatchType.JSON)).apply("[{\"op\":\"remove\",\"path\":\"/spec/paused\"}]");
        check(json.getSpec().getPaused() == null, json);
        var strategic = patch.apply(PatchContext.of(PatchType.STRATEGIC_MERGE)).apply(
            "{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"side\",\"image\":\"side:1\"}]}}}}");
        check(strategic.getSpec().getTemplate().getSpec().getContainers().size() == 2, strategic);
    }

    static void watches_tell_each_change(String namespace) throws Exception {
        var seen = new CopyOnWriteArrayList<String>();
        var watcher = new Watcher<ConfigMap>() {
            public void eventReceived(Action action, ConfigMap map) {
                seen.add(action + " " + map.getMetadata().getName());
            }

            public void onClose(WatcherException cause) {}
        };
        configMap(namespace, "before", Map.of("w", "yes"));
        try (var watch = client.configMaps().inNamespace(namespace).withLabel("w", "yes").watch(watcher)) {
            until(() -> seen.size() == 1);
            configMap(namespace, "after", Map.of("w", "yes"));
            client.configMaps().inNamespace(namespace).withName("before").delete();
            until(() -> seen.size() == 3);
        }
        check(seen.equals(List.of("ADDED before", "ADDED after", "DELETED before")), seen);
    }

    static void informers_keep_what_is_there(String namespace) throws Exception {
        for (int index = 0; index < 5; index++) configMap(namespace, "i-" + index, Map.of("i", "yes"));
        var deleted = new AtomicInteger();
        try (var informer = client.configMaps().inNamespace(namespace).withLabel("i", "yes").withLimit(2L).inform(
            new ResourceEventHandler<ConfigMap>() {
                public void onAdd(ConfigMap map) {}

                public void onUpdate(ConfigMap before, ConfigMap after) {}

                public void onDelete(ConfigMap map, boolean unknown) {
                    deleted.incrementAndGet();
                }
            })) {
            check(informer.getStore().list().size() == 5, informer.getStore().list());
            client.configMaps().inNamespace(namespace).withLabel("i", "yes").delete();
            until(() -> deleted.get() == 5 && informer.getStore().list().isEmpty());
        }
    }

    static void conditions_are_waited_for(String namespace) throws Exception {
        configMap(namespace, "a", Map.of());
        var map = client.configMaps().inNamespace(namespace).withName("a");
        var waiting = CompletableFuture.supplyAsync(() -> map.waitUntilCondition(
            found -> found != null && found.getMetadata().getLabels().containsKey("done"), 60, TimeUnit.SECONDS));
        map.edit(found -> new ConfigMapBuilder(found).editMetadata().addToLabels("done", "yes").endMetadata().build());
        check("yes".equals(waiting.get().getMetadata().getLabels().get("done")), "the label");
    }

    static void custom_resources_are_generic(String namespace) throws Exception {
        String group = "java.example.com";
        var schema = new JSONSchemaPropsBuilder().withType("object").addToProperties("spec", new JSONSchemaPropsBuilder()
            .withType("object").addToProperties("size", new JSONSchemaPropsBuilder().withType("integer").withMaximum(9.0).build())
            .build()).build();
        client.apiextensions().v1().customResourceDefinitions().resource(new CustomResourceDefinitionBuilder()
            .withNewMetadata().withName("doodads." + group).endMetadata()
            .withNewSpec().withGroup(group).withScope("Namespaced")
            .withNewNames().withKind("Doodad").withPlural("doodads").withSingular("doodad").endNames()
            .addNewVersion().withName("v1").withServed(true).withStorage(true)
            .withNewSchema().withOpenAPIV3Schema(schema).endSchema().endVersion().endSpec().build()).create();
        client.apiextensions().v1().customResourceDefinitions().withName("doodads." + group).waitUntilCondition(
            crd -> crd != null && crd.getStatus() != null && crd.getStatus().getConditions().stream()
                .anyMatch(c -> c.getType().equals("Established") && c.getStatus().equals("True")), 60, TimeUnit.SECONDS);
        var context = new ResourceDefinitionContext.Builder().withGroup(group).withVersion("v1").withKind("Doodad")
            .withPlural("doodads").withNamespaced(true).build();
        var doodads = client.genericKubernetesResources(context).inNamespace(namespace);
        Function<Integer, GenericKubernetesResource> doodad = size -> {
            var object = new GenericKubernetesResource();
            object.setApiVersion(group + "/v1");
            object.setKind("Doodad");
            object.setMetadata(new ObjectMetaBuilder().withName("d" + size).build());
            object.setAdditionalProperty("spec", Map.of("size", size));
            return object;
        };
        doodads.resource(doodad.apply(5)).create();
        fails(422, () -> doodads.resource(doodad.apply(10)).create());
        check(doodads.list().getItems().get(0).get("spec", "size").equals(5), doodads.list());
    }

    static void manifests_of_several_kinds_are_loaded(String namespace) {
        String text = """
            apiVersion: v1
            kind: Service
            metadata: {name: web}
            spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
            ---
            apiVersion: v1
            kind: Secret
            metadata: {name: web}
            stringData: {k: v}
            """;
        var made = client.load(new java.io.ByteArrayInputStream(text.getBytes())).inNamespace(namespace).serverSideApply();
        check(made.size() == 2, made);
        check(client.services().inNamespace(namespace).withName("web").get().getSpec().getClusterIP() != null, "an address");
        check(client.secrets().inNamespace(namespace).withName("web").get().getData().get("k").equals("dg=="), "base64");
    }

    static void a_leader_is_elected(String namespace) throws Exception {
        var leading = new CountDownLatch(1);
        var elector = client.leaderElector().withConfig(new LeaderElectionConfigBuilder()
            .withName("fact").withLock(new LeaseLock(namespace, "leader", "java"))
            .withLeaseDuration(Duration.ofSeconds(15)).withRenewDeadline(Duration.ofSeconds(10)).withRetryPeriod(Duration.ofMillis(200))
            .withReleaseOnCancel().withLeaderCallbacks(new LeaderCallbacks(leading::countDown, () -> {}, who -> {})).build()).build();
        var running = elector.start();
        check(leading.await(PATIENCE.toSeconds(), TimeUnit.SECONDS), "it leads");
        check("java".equals(client.leases().inNamespace(namespace).withName("leader").get().getSpec().getHolderIdentity()), "it holds");
        running.cancel(true);
    }

    static boolean tried(Map.Entry<String, Fact> fact) {
        String namespace = "java-" + fact.getKey().replace('_', '-');
        try {
            client.namespaces().resource(new NamespaceBuilder().withNewMetadata().withName(namespace).endMetadata().build()).create();
            fact.getValue().hold(namespace);
            System.out.println("ok " + fact.getKey());
            return true;
        } catch (Throwable error) {
            System.out.println("failed " + fact.getKey() + ": " + error);
            error.printStackTrace(System.out);
            return false;
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, Fact> facts = new LinkedHashMap<>();
        facts.put("objects_are_made_edited_and_deleted", Facts::objects_are_made_edited_and_deleted);
        facts.put("apply_has_owners_and_conflicts", Facts::apply_has_owners_and_conflicts);
        facts.put("every_kind_of_patch_is_taken", Facts::every_kind_of_patch_is_taken);
        facts.put("watches_tell_each_change", Facts::watches_tell_each_change);
        facts.put("informers_keep_what_is_there", Facts::informers_keep_what_is_there);
        facts.put("conditions_are_waited_for", Facts::conditions_are_waited_for);
        facts.put("custom_resources_are_generic", Facts::custom_resources_are_generic);
        facts.put("manifests_of_several_kinds_are_loaded", Facts::manifests_of_several_kinds_are_loaded);
        facts.put("a_leader_is_elected", Facts::a_leader_is_elected);
        ExecutorService pool = Executors.newFixedThreadPool(facts.size());
        List<Future<Boolean>> tried = new ArrayList<>();
        for (var fact : facts.entrySet()) tried.add(pool.submit(() -> tried(fact)));
        boolean all = true;
        for (var outcome : tried) all &= outcome.get();
        client.close();
        System.exit(all ? 0 : 1);
    }
}
