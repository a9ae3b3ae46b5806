//! What a thousand tenants do at once: mostly reads, some writes, each in a plane of its own.
//!
//! kube-apiserver has no planes: its tenants are namespaces.

use crate::load;
use crate::objects::{self, CONFIG_MAPS};
use crate::options::Options;
use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::subject::{Kind, Subject};
use anyhow::Result;
use freehold_client::{Client, RawRequest};

/// Objects of each tenant.
const OBJECTS: usize = 5;
const NAMESPACE: &str = "app";
/// Requests of each tenant, on average.
const REQUESTS: usize = 20;
const MERGE: &str = "application/merge-patch+json";

/// Where a tenant's objects are.
struct Tenant {
    client: Client,
    namespace: String,
}

/// Measures one server.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start(kind, options)?;
    let tenants = tenants(&subject, options).await?;
    let made = tenants.iter().flat_map(|t| {
        (0..OBJECTS).map(|i| (t.client.clone(), CONFIG_MAPS.create(&t.namespace, &format!("object-{i}"))))
    });
    load::send(&subject, made, options.concurrency).await?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let requests = (0..tenants.len() * REQUESTS).map(|round| {
        let tenant = &tenants[random.below(tenants.len())];
        (tenant.client.clone(), request(&tenant.namespace, round, &mut random))
    });
    let cost = load::send(&subject, requests, options.concurrency).await?;
    let title = format!(
        "{} tenants, {} at a time: 70 % get, 10 % list, 15 % merge patch, 5 % update",
        tenants.len(),
        options.concurrency
    );
    report.add(&title, "server CPU of each request", kind, cost.cpu);
    report.add(&title, "time of each request, median / p99", kind, Value::spread(&cost.each));
    report.add(&title, "requests a second", kind, cost.rate);
    let memory = subject.memory(options).await?;
    report.add(&title, "resident memory of the server then", kind, memory.map(|m| Value::Bytes(m.resident)));
    Ok(())
}

async fn tenants(subject: &Subject, options: &Options) -> Result<Vec<Tenant>> {
    let root = subject.root();
    if subject.kind == Kind::Kube {
        let tenant =
            |i| Tenant { client: root.clone(), namespace: options.namespace(&format!("tenant-{i}")) };
        let tenants: Vec<Tenant> = (0..options.tenants).map(tenant).collect();
        let namespaces = tenants.iter().map(|t| objects::namespace(&t.namespace));
        load::send_all(subject, &root, namespaces, options.concurrency).await?;
        return Ok(tenants);
    }
    let names: Vec<String> = (0..options.tenants).map(|i| format!("tenant-{i}")).collect();
    let made = Projects::open(root.clone()).await?.make_all(&names, options.concurrency).await;
    subject.explain(made)?;
    let client = |name: &String| root.at(&format!("/projects/{name}"));
    let tenants: Vec<Tenant> =
        names.iter().map(|name| Tenant { client: client(name), namespace: NAMESPACE.to_owned() }).collect();
    let namespaces = tenants.iter().map(|t| (t.client.clone(), objects::namespace(NAMESPACE)));
    load::send(subject, namespaces, options.concurrency).await?;
    Ok(tenants)
}

fn request(namespace: &str, round: usize, random: &mut Random) -> RawRequest {
    let name = format!("object-{}", random.below(OBJECTS));
    match random.below(100) {
        0..70 => CONFIG_MAPS.get(namespace, &name),
        70..80 => CONFIG_MAPS.list(namespace, ""),
        80..95 => CONFIG_MAPS.patch(MERGE, namespace, &name, round),
        _ => CONFIG_MAPS.update(namespace, &name, round),
    }
}

/// Xorshift: the same requests in each run and for each server.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or_default() % bound.max(1)
    }
}
