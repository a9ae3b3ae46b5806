//! Tenancy: many namespaces of many teams, with the subsystem's own programs beside the server. On kube-apiserver its
//! webhook keeps limits, on Freehold the server itself.

mod program;

use crate::options::Options;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::{Kind, Subject};
use crate::{load, process};
use anyhow::{Context, Result, bail, ensure};
use freehold_client::{
    Client, Config, DeleteOptions, Identity, ListOptions, Patch, PatchOptions, RawRequest, Resource,
};
use freehold_tests_harness::freehold_binary;
use futures_util::{StreamExt as _, stream};
use http::{HeaderValue, Method};
use program::Program;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const TITLE: &str = "Tenancy";
const GROUP: &str = "tenancy.freehold.dev";
const LABEL: &str = "tenancy.freehold.dev/tenant";
const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments");
const LIMIT_RANGES: Resource = Resource::namespaced("", "v1", "limitranges");
const BINDINGS: Resource = Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
const ROLES: Resource = Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles");
const ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts");
const WEBHOOKS: Resource =
    Resource::cluster("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations");

/// Requests under way at once while the cluster is filled.
const CONCURRENCY: usize = 64;
/// Groups of the member whose lists are measured, each with a tenant of its own.
const GROUPS: usize = 300;
/// One namespace of so many is the first tenant's: of 50,000 it has 10,000.
const LARGE: usize = 5;
/// Namespaces that are timed one by one.
const TIMED: usize = 100;
/// Workloads, and objects of the template, of each namespace.
const EACH: usize = 5;
/// Parallel creates, over how many namespaces, and their limit.
const CREATES: usize = 1000;
const SPACES: usize = 100;
const LIMIT: usize = 400;
/// The webhook, which the server finds at the address that it listens on.
const WEBHOOK: [&str; 2] = ["tenancy", "webhook"];
/// How long anything may take before the run is given up.
const PATIENCE: Duration = Duration::from_secs(3600);
const PERIOD: Duration = Duration::from_millis(250);

const fn kind(plural: &'static str) -> Resource {
    Resource::cluster(GROUP, "v1alpha1", plural)
}

/// What is measured.
struct Site<'a> {
    subject: &'a Subject,
    plane: Client,
    kubeconfig: PathBuf,
    namespaces: usize,
}

/// Measures one server.
pub(crate) async fn measure(of: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start(of, options)?;
    let plane = subject.plane().await?;
    let kubeconfig = subject.kubeconfig().context("a server of ours")?;
    let site = Site { subject: &subject, plane, kubeconfig, namespaces: options.spaces };
    let mut programs = Vec::new();
    if of == Kind::Kube {
        programs.push(Program::manager(&site.kubeconfig)?);
    }
    let installed = Command::new(freehold_binary())
        .args(["install", "tenancy"])
        .env("KUBECONFIG", &site.kubeconfig)
        .status()
        .context("freehold install tenancy")?;
    ensure!(installed.success(), "freehold install tenancy: {installed}");
    let mut controllers = Program::controllers(&site.kubeconfig)?;
    let mut webhook = None;
    if of == Kind::Kube {
        webhook = Some(Program::start(&site.kubeconfig, &WEBHOOK)?);
        site.until("the webhook is registered", async || {
            Ok(site.plane.get_opt(&WEBHOOKS, None, GROUP).await?.is_some())
        })
        .await?;
    }
    site.fill(of, report).await?;
    site.ready(of, report).await?;
    site.quota(of, webhook.as_mut(), report).await?;
    site.admission(of, options, report).await?;
    site.member(of, report).await?;
    site.template(of, &mut controllers, report).await?;
    site.sleep(of, report).await?;
    let resident = process::memory_at_rest(controllers.process.0.id()).await.resident;
    report.add(TITLE, "resident memory of the controllers", of, Value::Bytes(resident));
    site.largest_object(of, report).await?;
    drop(controllers);
    site.cold_start(of, report).await
}

/// The subsystem's controllers, with their metrics.
struct Controllers {
    process: Program,
    metrics: SocketAddr,
}

impl Program {
    fn controllers(kubeconfig: &Path) -> Result<Controllers> {
        let metrics = free_address()?;
        let listen = metrics.to_string();
        let process = Self::start(kubeconfig, &["tenancy", "controller", "--metrics-listen", &listen])?;
        Ok(Controllers { process, metrics })
    }
}

/// An address of this machine with a port that nothing listens at.
fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

impl Controllers {
    /// Whether they have begun and have nothing left to do.
    async fn is_at_rest(&self) -> bool {
        let client = Config::new(format!("http://{}", self.metrics), "", Identity::None);
        let Ok(client) = Client::new(&client) else { return false };
        let Ok(answer) = client.request(&RawRequest::get("/metrics")).await else { return false };
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let sum = |metric: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(metric) && line.contains("template"));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        sum("workqueue_adds_total") > 0.0 && sum("workqueue_depth") == 0.0
    }
}

impl Site<'_> {
    async fn until(&self, what: &str, done: impl AsyncFn() -> Result<bool>) -> Result<Duration> {
        let begun = Instant::now();
        while !done().await? {
            if begun.elapsed() > PATIENCE {
                bail!("{what}: not after {} s", PATIENCE.as_secs());
            }
            tokio::time::sleep(PERIOD).await;
        }
        Ok(begun.elapsed())
    }

    /// Creates objects; the time of all together.
    async fn create(&self, objects: impl Iterator<Item = (Resource, Json)>) -> Result<Duration> {
        let requests = objects.map(|(resource, object)| {
            let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
            let path = resource.collection_path(namespace.as_deref());
            (self.plane.clone(), RawRequest::new(Method::POST, path).json(&object))
        });
        let begun = Instant::now();
        load::send(self.subject, requests, CONCURRENCY).await?;
        Ok(begun.elapsed())
    }

    async fn tenant(&self, name: &str, spec: Json) -> Result<()> {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Tenant", "metadata": {"name": name}, "spec": spec,
        });
        self.plane.create(&kind("tenants"), &object).await?;
        Ok(())
    }

    fn namespace(&self, n: usize) -> (Resource, Json) {
        let tenant = if n.is_multiple_of(LARGE) { 0 } else { n % self.tenants() };
        let tenant = format!("t{tenant}");
        let labels = json!({LABEL: tenant, "env": "dev"});
        (NAMESPACES, json!({"metadata": {"name": format!("{tenant}-{n}"), "labels": labels}}))
    }

    /// One for ten namespaces.
    fn tenants(&self) -> usize {
        (self.namespaces / 10).max(1)
    }

    async fn is_ready(&self, name: &str) -> Result<bool> {
        let namespace = self.plane.get(&NAMESPACES, None, name).await?;
        Ok(is_ready(&namespace))
    }

    async fn fill(&self, of: Kind, report: &mut Report) -> Result<()> {
        for n in 0..self.tenants() {
            let spec = json!({
                "members": [{"role": "owner", "subjects": [{"kind": "Group", "name": format!("group-{n}")}]}],
                "networkPolicies": [{"name": "own", "spec": {"podSelector": {}}}],
                "limitRanges": [{"name": "own", "spec": {"limits": [{"type": "Container", "default": {"cpu": "500m"}}]}}],
            });
            self.tenant(&format!("t{n}"), spec).await?;
        }
        let begun = Instant::now();
        self.create((0..self.namespaces).map(|n| self.namespace(n))).await?;
        self.until("all namespaces are ready", async || {
            let list = self.plane.list_all(&NAMESPACES, None, &ListOptions::default()).await?;
            Ok(list.items.iter().filter(|namespace| is_ready(namespace)).count() >= self.namespaces)
        })
        .await?;
        let rate = self.namespaces as f64 / begun.elapsed().as_secs_f64();
        let row = format!("{} namespaces of {} tenants created and ready", self.namespaces, self.tenants());
        report.add(TITLE, row, of, Value::Rate(rate));
        Ok(())
    }

    async fn ready(&self, of: Kind, report: &mut Report) -> Result<()> {
        let mut times = Vec::new();
        for n in self.namespaces..self.namespaces + TIMED {
            let (_, object) = self.namespace(n);
            let begun = Instant::now();
            self.plane.create(&NAMESPACES, &object).await?;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            while !self.is_ready(name).await? {
                ensure!(begun.elapsed() < PATIENCE, "{name} is never ready");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            times.push(begun.elapsed());
        }
        let times: Samples = times.into_iter().collect();
        report.add(TITLE, "one more beside them, until it is ready, median / p99", of, Value::spread(&times));
        Ok(())
    }

    /// Kills the webhook while it decides, twice, with another in its place each time.
    async fn kill(&self, webhook: Option<&mut Program>) -> Result<()> {
        let Some(webhook) = webhook else { return Ok(()) };
        for _ in 0..2 {
            tokio::time::sleep(PERIOD).await;
            *webhook = Program::start(&self.kubeconfig, &WEBHOOK)?;
        }
        Ok(())
    }

    async fn quota(&self, of: Kind, webhook: Option<&mut Program>, report: &mut Report) -> Result<()> {
        let quota = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Quota", "metadata": {"name": "some"},
            "spec": {"hard": {"secrets": LIMIT.to_string()}},
        });
        self.plane.create(&kind("quotas"), &quota).await?;
        let declared: Vec<Json> = (0..SPACES).map(|n| json!({"name": n.to_string()})).collect();
        let members = json!([{"role": "owner", "subjects": [{"kind": "User", "name": "ann"}]}]);
        let spec = json!({"quota": "some", "members": members, "namespaces": {"declared": declared}});
        self.tenant("metered", spec).await?;
        for n in 0..SPACES {
            let name = format!("metered-{n}");
            self.until("a metered namespace is ready", async || {
                let found = self.plane.get_opt(&NAMESPACES, None, &name).await?;
                Ok(found.is_some_and(|namespace| is_ready(&namespace)))
            })
            .await?;
        }
        let begun = Instant::now();
        let creates = stream::iter(0..CREATES).map(|n| self.secret(n % SPACES, n)).buffer_unordered(CREATES);
        let (answers, killed): (Vec<Result<(bool, Duration)>>, _) =
            tokio::join!(creates.collect(), self.kill(webhook));
        killed?;
        let took = begun.elapsed();
        let answers: Vec<(bool, Duration)> = answers.into_iter().collect::<Result<_>>()?;
        let created = answers.iter().filter(|(created, _)| *created).count();
        let kills = if of == Kind::Kube { ", the webhook killed twice" } else { "" };
        let row =
            format!("created of {CREATES} parallel creates over {SPACES} namespaces, limit {LIMIT}{kills}");
        report.add(TITLE, row, of, Value::Count(created));
        report.add(TITLE, "all of them decided within", of, Value::Time(took));
        // Each of these needs what the delete before it gave back.
        let mut freed = Vec::new();
        for n in 0..TIMED {
            let list = self.plane.list(&SECRETS, Some("metered-0"), &ListOptions::default()).await?;
            let victim = list.items.iter().find_map(|item| item["metadata"]["name"].as_str());
            let victim = victim.context("a Secret")?;
            self.plane.delete(&SECRETS, Some("metered-0"), victim, &DeleteOptions::default()).await?;
            let begun = Instant::now();
            while !self.secret(0, CREATES + n).await?.0 {
                ensure!(begun.elapsed() < PATIENCE, "freed capacity is never used");
            }
            freed.push(begun.elapsed());
        }
        let freed: Samples = freed.into_iter().collect();
        report.add(TITLE, "freed capacity used, after the delete, median / p99", of, Value::spread(&freed));
        Ok(())
    }

    /// Creates a Secret as a member, and tries again where the answer is that it cannot be decided now.
    async fn secret(&self, space: usize, n: usize) -> Result<(bool, Duration)> {
        let namespace = format!("metered-{space}");
        let path = SECRETS.collection_path(Some(&namespace));
        let object = json!({"metadata": {"name": format!("s{n}"), "namespace": namespace}});
        let begun = Instant::now();
        loop {
            let mut request = RawRequest::new(Method::POST, path.clone()).json(&object);
            request.headers.insert("impersonate-user", HeaderValue::from_static("ann"));
            match self.plane.request(&request).await {
                Ok(_) => return Ok((true, begun.elapsed())),
                Err(error) if error.is_already_exists() => return Ok((true, begun.elapsed())),
                Err(error) if error.code() == 403 && error.to_string().contains("exceeded quota") => {
                    return Ok((false, begun.elapsed()));
                }
                Err(error) if begun.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// What the rules of a tenant add to a create of a member.
    async fn admission(&self, of: Kind, options: &Options, report: &mut Report) -> Result<()> {
        let binding = json!({
            "metadata": {"name": "bench-ann"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        });
        self.plane.create(&BINDINGS, &binding).await?;
        self.plane.create(&NAMESPACES, &json!({"metadata": {"name": "free"}})).await?;
        let creates = |namespace: &'static str| -> Vec<_> {
            let create = |n| {
                let object = json!({"metadata": {"name": format!("c{n}"), "namespace": namespace}, "data": {"a": "b"}});
                let path = CONFIG_MAPS.collection_path(Some(namespace));
                let mut request = RawRequest::new(Method::POST, path).json(&object);
                request.headers.insert("impersonate-user", HeaderValue::from_static("ann"));
                (self.plane.clone(), request)
            };
            (0..options.requests).map(create).collect()
        };
        let [free, ruled] = load::in_turns(self.subject, [creates("free"), creates("metered-1")]).await?;
        report.add(
            TITLE,
            "a member's create outside of tenants, median / p99",
            of,
            Value::spread(&free.each),
        );
        report.add(
            TITLE,
            "in a namespace of a tenant with a quota, median / p99",
            of,
            Value::spread(&ruled.each),
        );
        let added = |with: Duration, without: Duration| Value::Time(with.saturating_sub(without));
        let (median, p99) =
            (added(ruled.each.median(), free.each.median()), added(ruled.each.p99(), free.each.p99()));
        report.add(TITLE, "added to the median", of, median);
        report.add(TITLE, "added to the p99", of, p99);
        Ok(())
    }

    /// Lists of a member with many groups.
    async fn member(&self, of: Kind, report: &mut Report) -> Result<()> {
        let mut request = RawRequest::get("/api/v1/namespaces");
        request.headers.insert("impersonate-user", HeaderValue::from_static("many"));
        // The first tenant is the large one.
        for n in 1..=GROUPS {
            request.headers.append("impersonate-group", HeaderValue::try_from(format!("group-{n}"))?);
        }
        // kube-apiserver cannot filter a list: the subsystem's proxy does it in front of one.
        let proxy = if of == Kind::Kube { Some(self.proxy().await?) } else { None };
        let client = proxy.as_ref().map_or(&self.plane, |(_, client)| client);
        self.until("the member sees namespaces", async || {
            let list = client.json(request.clone()).await;
            Ok(list.is_ok_and(|list| list["items"].as_array().is_some_and(|items| !items.is_empty())))
        })
        .await?;
        let shown = client.json(request.clone()).await?["items"].as_array().map_or(0, Vec::len);
        let requests = (0..TIMED).map(|_| request.clone());
        let lists = load::send_all(self.subject, client, requests, 1).await?;
        let row = format!("a member with {GROUPS} groups lists own namespaces, median / p99");
        report.add(TITLE, row, of, Value::spread(&lists.each));
        report.add(TITLE, "namespaces in that list", of, Value::Count(shown));
        Ok(())
    }

    /// The proxy in front of the server, and a client of it that may act as anybody.
    async fn proxy(&self) -> Result<(Program, Client)> {
        let account = json!({"metadata": {"name": "front", "namespace": "default"}});
        self.plane.create(&ACCOUNTS, &account).await?;
        let binding = json!({
            "metadata": {"name": "bench-front"},
            "subjects": [{"kind": "ServiceAccount", "name": "front", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench-impersonator"},
        });
        let role = json!({
            "metadata": {"name": "bench-impersonator"},
            "rules": [{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}],
        });
        self.plane.create(&ROLES, &role).await?;
        self.plane.create(&BINDINGS, &binding).await?;
        let path = format!("{}/front/token", ACCOUNTS.collection_path(Some("default")));
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}});
        let answer = self.plane.json(RawRequest::new(Method::POST, path).json(&asked)).await?;
        let token = answer["status"]["token"].as_str().context("a token")?.to_owned();
        let folder = self.kubeconfig.parent().context("a folder")?.join("tenancy-proxy");
        let listen = free_address()?.to_string();
        let certificates = folder.display().to_string();
        let program = Program::start(
            &self.kubeconfig,
            &["tenancy", "proxy", "--listen", &listen, "--certificates", &certificates],
        )?;
        let ca = folder.join("ca.crt");
        self.until("the proxy has a certificate", async || Ok(ca.exists())).await?;
        let config =
            Config::new(format!("https://{listen}"), std::fs::read_to_string(&ca)?, Identity::Token(token));
        Ok((program, Client::new(&config)?))
    }

    /// The largest object that the subsystem keeps for tenants.
    async fn largest_object(&self, of: Kind, report: &mut Report) -> Result<()> {
        let mut largest = (0, String::new());
        for plural in [
            "tenants",
            "quotas",
            "quotaledgers",
            "resourcesupervisors",
            "templates",
            "sleeprecords",
            "templateinstances",
        ] {
            let namespaced = matches!(plural, "sleeprecords" | "templateinstances");
            let resource = Resource::dynamic(GROUP, "v1alpha1", plural, namespaced);
            let list = self.plane.list_all(&resource, None, &ListOptions::default()).await?;
            let sizes = list.items.iter().map(|item| (item.to_string().len(), plural.to_owned()));
            largest = sizes.fold(largest, std::cmp::max);
        }
        let bytes = i64::try_from(largest.0)?;
        report.add(TITLE, "largest object of the subsystem", of, Value::Bytes(bytes));
        Ok(())
    }

    /// The resource versions of what templates keep, by kind, namespace and name.
    async fn versions(&self) -> Result<BTreeSet<String>> {
        let mut versions = BTreeSet::new();
        let instances = Resource::namespaced(GROUP, "v1alpha1", "templateinstances");
        for resource in [CONFIG_MAPS, instances, kind("templategroupinstances"), kind("templates")] {
            let list = self.plane.list_all(&resource, None, &ListOptions::default()).await?;
            let version = |item: &Json| {
                let metadata = &item["metadata"];
                format!(
                    "{resource} {} {} {}",
                    metadata["namespace"], metadata["name"], metadata["resourceVersion"]
                )
            };
            versions.extend(list.items.iter().map(version));
        }
        Ok(versions)
    }

    /// How many objects are written when the controllers of templates start anew.
    async fn second_run(&self, of: Kind, controllers: &mut Controllers, report: &mut Report) -> Result<()> {
        self.until("the controllers have nothing to do", async || Ok(controllers.is_at_rest().await)).await?;
        let before = self.versions().await?;
        let kubeconfig = self.kubeconfig.clone();
        drop(controllers.process.0.kill());
        *controllers = Program::controllers(&kubeconfig)?;
        // An answer of the metrics may come before the first key: it has to be so twice in a row.
        for _ in 0..2 {
            self.until("the second run is over", async || Ok(controllers.is_at_rest().await)).await?;
            tokio::time::sleep(PERIOD).await;
        }
        let written = self.versions().await?.difference(&before).count();
        report.add(TITLE, "objects that a second run of the template writes", of, Value::Count(written));
        Ok(())
    }

    async fn template(&self, of: Kind, controllers: &mut Controllers, report: &mut Report) -> Result<()> {
        let manifests: Vec<Json> = (0..EACH)
            .map(|at| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("own{at}")}, "data": {"n": "${namespace.name}"}}))
            .collect();
        let writer = json!({"metadata": {"name": "writer", "namespace": "default"}});
        self.plane.create(&ACCOUNTS, &writer).await?;
        let binding = json!({
            "metadata": {"name": "bench-writer"},
            "subjects": [{"kind": "ServiceAccount", "name": "writer", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        });
        self.plane.create(&BINDINGS, &binding).await?;
        let api_version = format!("{GROUP}/v1alpha1");
        let template = json!({"apiVersion": api_version, "kind": "Template", "metadata": {"name": "own"}, "spec": {"manifests": manifests}});
        self.plane.create(&kind("templates"), &template).await?;
        let group = json!({
            "apiVersion": api_version, "kind": "TemplateGroupInstance", "metadata": {"name": "own"},
            "spec": {
                "template": "own", "target": {"selector": {"matchLabels": {"env": "dev"}}},
                "serviceAccount": {"namespace": "default", "name": "writer"},
            },
        });
        self.plane.create(&kind("templategroupinstances"), &group).await?;
        let wanted = self.namespaces as u64;
        let took = self.until("the template is everywhere", async || {
            let group = self.plane.get(&kind("templategroupinstances"), None, "own").await?;
            Ok(group["status"]["ready"].as_u64().unwrap_or(0) >= wanted)
        });
        let took = took.await?;
        let row = format!("a template of {EACH} objects to {} namespaces", self.namespaces);
        report.add(TITLE, row, of, Value::Time(took));
        let drift = Patch::Merge(json!({"data": {"n": "drift"}}));
        let namespace = self.namespace(0).1["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut times = Vec::new();
        for _ in 0..TIMED {
            self.plane
                .patch(&CONFIG_MAPS, Some(&namespace), "own0", &drift, &PatchOptions::default())
                .await?;
            let begun = Instant::now();
            while self.plane.get(&CONFIG_MAPS, Some(&namespace), "own0").await?["data"]["n"] == "drift" {
                ensure!(begun.elapsed() < PATIENCE, "drift is never repaired");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            times.push(begun.elapsed());
        }
        let times: Samples = times.into_iter().collect();
        report.add(TITLE, "drift repaired, median / p99", of, Value::spread(&times));
        self.second_run(of, controllers, report).await?;
        self.plane.delete(&kind("templategroupinstances"), None, "own", &DeleteOptions::default()).await?;
        Ok(())
    }

    async fn sleep(&self, of: Kind, report: &mut Report) -> Result<()> {
        let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let deployment = |n: usize, at: usize| {
            let namespace = self.namespace(n).1["metadata"]["name"].clone();
            let spec = json!({"replicas": at + 1, "selector": {"matchLabels": {"a": "b"}}, "paused": true, "template": pod});
            (
                DEPLOYMENTS,
                json!({"metadata": {"name": format!("d{at}"), "namespace": namespace}, "spec": spec}),
            )
        };
        self.create(
            (0..self.namespaces)
                .flat_map(|n| (0..EACH).map(move |at| (n, at)))
                .map(|(n, at)| deployment(n, at)),
        )
        .await?;
        for (state, what) in [("Asleep", "asleep"), ("Awake", "awake again")] {
            let supervisor = json!({
                "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "ResourceSupervisor", "metadata": {"name": "all"},
                "spec": {"target": {"selector": {"matchLabels": {"env": "dev"}}}, "override": {"state": state}},
            });
            self.plane.apply(&kind("resourcesupervisors"), "bench", &supervisor).await?;
            let took = self.until(what, async || {
                let list = self.plane.list_all(&DEPLOYMENTS, None, &ListOptions::default()).await?;
                let sleeps = |deployment: &Json| deployment["spec"]["replicas"] == 0;
                let is = |deployment: &Json| sleeps(deployment) == (state == "Asleep");
                Ok(list.items.iter().all(is))
            });
            let row = format!("{} namespaces with {EACH} workloads {what}", self.namespaces);
            report.add(TITLE, row, of, Value::Time(took.await?));
        }
        Ok(())
    }

    /// How long new controllers take until they repair what went while none ran.
    async fn cold_start(&self, of: Kind, report: &mut Report) -> Result<()> {
        let namespace = self.namespace(0).1["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.plane.delete(&LIMIT_RANGES, Some(&namespace), "tenancy-own", &DeleteOptions::default()).await?;
        let _controllers = Program::start(&self.kubeconfig, &["tenancy", "controller"])?;
        let took = self.until("the controllers work", async || {
            Ok(self.plane.get_opt(&LIMIT_RANGES, Some(&namespace), "tenancy-own").await?.is_some())
        });
        report.add(TITLE, "correct after a cold start of the controllers", of, Value::Time(took.await?));
        Ok(())
    }
}

fn is_ready(namespace: &Json) -> bool {
    let conditions = namespace["status"]["conditions"].as_array();
    conditions.is_some_and(|list| {
        list.iter().any(|c| c["type"] == "tenancy.freehold.dev/Ready" && c["status"] == "True")
    })
}
