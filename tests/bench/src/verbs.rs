//! One object at a time: create, get, update, the three patches, watch and delete, of ConfigMaps and custom resources.
//!
//! CPU is that of all server processes, the store's and the controllers' included. It compares best between machines
//! and does not mind that the client runs beside the server.

use crate::goals;
use crate::load::{self, Cost};
use crate::objects::{self, CONFIG_MAPS, CUSTOM, Type};
use crate::options::Options;
use crate::report::Report;
use crate::subject::{Kind, Subject};
use anyhow::Result;
use freehold_client::{Client, RawRequest};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// One request in so many is sent alone, for its latency.
const ALONE: usize = 4;

/// A namespace with objects of one type in one server.
struct Bench<'a> {
    subject: &'a Subject,
    client: Client,
    namespace: String,
    ty: &'static Type,
    options: &'a Options,
}

/// Measures one server.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start(kind, options)?;
    let client = subject.plane().await?;
    objects::define(&client).await?;
    for ty in [&CONFIG_MAPS, &CUSTOM] {
        let namespace = options.namespace(&format!("verbs-{}", ty.resource.plural));
        client.request(&objects::namespace(&namespace)).await?;
        let bench = Bench { subject: &subject, client: client.clone(), namespace, ty, options };
        bench.all(report).await?;
        client.request(&objects::delete_namespace(&bench.namespace)).await?;
    }
    Ok(())
}

impl Bench<'_> {
    async fn all(&self, report: &mut Report) -> Result<()> {
        let (ty, ns) = (self.ty, self.namespace.as_str());
        let cost = self.both(report, "create", |name, _| ty.create(ns, name)).await?;
        if ty.built_in {
            report.reach(&goals::CREATE, self.subject.kind, cost.cpu);
        }
        let cost = self.both(report, "get", |name, _| ty.get(ns, name)).await?;
        if ty.built_in {
            report.reach(&goals::GET, self.subject.kind, cost.cpu);
        }
        if ty.built_in {
            self.both(report, "update", |name, round| ty.update(ns, name, round)).await?;
        }
        self.both(report, "merge patch", |name, round| ty.patch(MERGE, ns, name, round)).await?;
        if ty.built_in {
            self.both(report, "strategic merge patch", |name, round| ty.patch(STRATEGIC, ns, name, round))
                .await?;
        }
        self.both(report, "server-side apply", |name, round| ty.apply(ns, name, round)).await?;
        self.both(report, "delete", |name, _| ty.delete(ns, name)).await?;
        Ok(())
    }

    /// Measures one kind of request, sent one after the other and then several at a time; gives the latter's cost.
    async fn both(
        &self,
        report: &mut Report,
        verb: &str,
        request: impl Fn(&str, usize) -> RawRequest,
    ) -> Result<Cost> {
        let (kind, name, concurrency) = (self.subject.kind, self.ty.name, self.options.concurrency);
        let count = self.options.requests;
        let requests = |prefix: &'static str, count: usize| {
            let request = &request;
            (0..count).map(move |index| request(&format!("{prefix}-{index}"), index))
        };
        let alone =
            load::send_all(self.subject, &self.client, requests("one", count.div_ceil(ALONE)), 1).await?;
        let many = load::send_all(self.subject, &self.client, requests("many", count), concurrency).await?;
        report.add(
            &format!("{name} of 1 KiB: server CPU of each request, {concurrency} at a time"),
            verb,
            kind,
            many.cpu,
        );
        report.add(
            &format!("{name} of 1 KiB: server CPU of each request, one after the other"),
            verb,
            kind,
            alone.cpu,
        );
        let title = format!("{name} of 1 KiB: time of each request, one after the other, median / p99");
        report.add(&title, verb, kind, crate::report::Value::spread(&alone.each));
        report.add(
            &format!("{name} of 1 KiB: requests a second, {concurrency} at a time"),
            verb,
            kind,
            many.rate,
        );
        let title = format!("{name} of 1 KiB: time of each request, {concurrency} at a time, median / p99");
        report.add(&title, verb, kind, crate::report::Value::spread(&many.each));
        Ok(many)
    }
}
