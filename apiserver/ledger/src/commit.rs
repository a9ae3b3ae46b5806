//! Charging a write, and committing it with what it is charged to.

use crate::{
    Ledger,
    plan::{Also, Plan, Posting, changing, newest, path, too_many},
};

use freehold_apiserver_admission::{
    Verb,
    quota::{self, Surroundings},
};
use freehold_apiserver_cache::{Seen, codec};
use freehold_apiserver_operation::{Operation, attributes};
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, ObjectPath, StoreError};
use freehold_machinery::{Result, Value, meta};
use jiff::Timestamp;

/// How often a commit is tried again because others, on other servers, changed the accounts meanwhile.
const ATTEMPTS: usize = 100;

impl Ledger {
    /// Commits the change of one object, with what must change along with it.
    ///
    /// # Errors
    /// Fails where the store does. A lost race is an answer, no error.
    pub async fn commit(
        &self,
        op: &Operation,
        path: &ObjectPath,
        own: Seen,
        mut changes: Vec<Change>,
        also: Vec<Also>,
    ) -> Result<Committed> {
        let key = Key::object(&op.plane, path);
        // What was read holds as long as the plane stands on the same: a restore takes it away and leaves the key.
        let stack = Expect { key: Key::stack(&op.plane), modified: own.record };
        let mut expect = vec![Expect { key, modified: own.own }, stack];
        for (condition, change) in also {
            expect.push(condition);
            changes.extend(change);
        }
        self.stores.of(&op.plane).commit(Commit { expect, changes }).await.map_err(StoreError::of_commit)
    }

    /// Commits the change of one object, with what is charged for it.
    ///
    /// # Errors
    /// A 403 where more is charged than there is, a 429 where others change the accounts all the time, and what the store fails with.
    pub async fn commit_posted(
        &self,
        op: &Operation,
        (path, own): (&ObjectPath, Seen),
        changes: Vec<Change>,
        also: Vec<Also>,
        posting: Posting<'_>,
    ) -> Result<Committed> {
        let plan = self.plan(op, own, posting).await?;
        self.commit_planned(op, (path, own), changes, also, (posting, plan)).await
    }

    pub(crate) async fn commit_planned(
        &self,
        op: &Operation,
        (path, own): (&ObjectPath, Seen),
        mut changes: Vec<Change>,
        mut also: Vec<Also>,
        (posting, mut plan): (Posting<'_>, Plan),
    ) -> Result<Committed> {
        let accounts = plan.accounts(&op.plane);
        if changes.iter().any(|change| matches!(change, Change::DeleteRange(_))) {
            also.extend(self.recount_later(&op.plane).await?.map(changing));
            plan.usage = None;
        }
        changes.extend(plan.shared.take_forgotten());
        if accounts.is_empty() {
            also.extend(plan.also.into_iter().map(changing));
            return self.commit(op, path, own, changes, also).await;
        }
        let key = Key::object(&op.plane, path);
        for _ in 0..ATTEMPTS {
            let mut turn = self.books.turns.take(accounts.clone()).await;
            self.cache.wait_for(turn.seen()).await?;
            let mut fixed = also.clone();
            let Some(record) = self.book_held(op, &plan.held).await? else {
                // Somebody else took it since it was found free: the write is drafted again.
                return Ok(Committed::Refused(Vec::new()));
            };
            let mut booked = self.book(op, own, posting, &plan).await?;
            booked.accounts.extend(record);
            fixed.extend(booked.with.into_iter().map(changing));
            // The object itself, the plane's record and what comes along: who changed those is the caller's matter.
            let conditions = [own.own, own.record].into_iter().chain(fixed.iter().map(|(e, _)| e.modified));
            let conditions: Vec<u64> = conditions.collect();
            let charged = booked.accounts.into_iter().filter(|(expect, _)| expect.key != key);
            fixed.extend(charged.map(changing));
            fixed.extend(booked.shared);
            match self.commit(op, path, own, changes.clone(), fixed).await? {
                Committed::Done(revision) => {
                    turn.done(revision);
                    return Ok(Committed::Done(revision));
                }
                Committed::Refused(now) => {
                    let held = conditions.iter().zip(&now);
                    let mut found = held.map(|(want, now)| *want == now.as_ref().map_or(0, |kv| kv.modified));
                    if !found.all(|same| same) {
                        return Ok(Committed::Refused(now));
                    }
                    drop(turn);
                    self.cache.see(newest(&now)).await?;
                }
            }
        }
        Err(too_many())
    }

    /// Checks that a write could be charged, as of now: a dry run.
    ///
    /// # Errors
    /// A 403 where more is charged than there is, and what the store or the cache fails with.
    pub async fn check_posted(&self, op: &Operation, own: Seen, posting: Posting<'_>) -> Result<()> {
        let plan = self.plan(op, own, posting).await?;
        self.book(op, own, posting, &plan).await.map(drop)
    }

    async fn plan(&self, op: &Operation, own: Seen, posting: Posting<'_>) -> Result<Plan> {
        let mut plan = Plan { held: self.taken(op, posting), ..Plan::default() };
        if self.has_quotas
            && let Some(namespace) = op.namespace.as_deref().filter(|_| op.ty.namespaced)
            && !self.cache.peek_list(&op.plane, "", "resourcequotas", Some(namespace)).is_empty()
        {
            plan.quotas = Some(namespace.to_owned());
        }
        self.plan_usage(op, own, posting, &mut plan)?;
        self.plan_shared(op, posting, &mut plan).await?;
        if self.tenancy.has_core() {
            self.plan_allowances(op, own, posting, &mut plan).await?;
            self.plan_provider(op, posting, &mut plan);
        }
        Ok(plan)
    }

    /// The accounts as they are after the write, each on the condition that it is as it was read.
    async fn book(&self, op: &Operation, own: Seen, posting: Posting<'_>, plan: &Plan) -> Result<Booked> {
        let mut accounts = Vec::new();
        if let Some(namespace) = &plan.quotas {
            accounts.extend(self.book_quotas(op, posting, namespace)?);
        }
        if let Some((delta, limits)) = &plan.usage {
            accounts.push(self.book_usage(op, *delta, limits).await?);
        }
        accounts.extend(self.book_counted(op, plan).await?);
        let mut with = plan.also.clone();
        match self.book_buckets((&op.ty.group_resource(), op.name()), plan).await {
            Ok(buckets) => accounts.extend(buckets),
            Err(status) if plan.optional && status.code == 403 => with.clear(),
            Err(status) => return Err(status),
        }
        let shared = self.book_shared(op, own, posting, plan).await?;
        Ok(Booked { with, accounts, shared })
    }

    fn book_quotas(
        &self,
        op: &Operation,
        posting: Posting<'_>,
        namespace: &str,
    ) -> Result<Vec<(Expect, Change)>> {
        let entries = self.cache.peek_list(&op.plane, "", "resourcequotas", Some(namespace));
        let quotas: Vec<Value> = entries.iter().map(|entry| entry.value()).collect();
        let mut new = posting.new.cloned();
        let verb = match (posting.new, posting.old) {
            (Some(_), Some(_)) => Verb::Update,
            (Some(_), None) => Verb::Create,
            (None, _) => Verb::Delete,
        };
        let mut attributes = attributes(op, verb, new.as_mut(), posting.old, (false, &Value::Null));
        if verb == Verb::Delete {
            // The last finalizer may go with an update of any subresource.
            attributes.subresource = "";
        }
        let around = self.surroundings(op, posting, namespace);
        let changed = quota::check(&attributes, &quotas, &around)?;
        let put = |mut quota: Value| {
            let modified = meta::resource_version(&quota).parse().ok()?;
            let path = path("", "resourcequotas", meta::namespace(&quota), meta::name(&quota));
            let key = Key::object(&op.plane, &path);
            meta::remove(&mut quota, "resourceVersion");
            let value = codec::encode(&quota);
            Some((Expect { key: key.clone(), modified }, Change::Put(key, value)))
        };
        Ok(changed.into_iter().filter_map(put).collect())
    }

    /// What decides what a write uses of quotas besides its object: of claims for devices their classes, and where one was made
    /// for a Pod that Pod and the namespace's other claims.
    fn surroundings(&self, op: &Operation, posting: Posting<'_>, namespace: &str) -> Surroundings {
        let around = Surroundings::at(Timestamp::now());
        let (group, claims) = (op.ty.group.as_str(), op.ty.plural.as_str());
        if (group, claims) != ("resource.k8s.io", "resourceclaims") {
            return around;
        }
        let read = |group, resource, namespace| {
            let entries = self.cache.peek_list(&op.plane, group, resource, namespace);
            entries.iter().map(|entry| entry.value()).collect::<Vec<Value>>()
        };
        let made_for = [posting.new, posting.old].into_iter().flatten().find_map(quota::made_for);
        let pod = made_for.and_then(|(pod, _)| self.cache.peek(&op.plane, &path("", "pods", namespace, pod)));
        let mut claims = pod.as_ref().map_or_else(Vec::new, |_| read(group, claims, Some(namespace)));
        claims.extend(posting.new.filter(|_| pod.is_some() && posting.old.is_none()).cloned());
        let pods: Vec<Value> = pod.iter().map(|pod| pod.value()).collect();
        around.with_devices(&read(group, "deviceclasses", None), &claims, &pods)
    }
}

/// What is committed besides the object.
struct Booked {
    /// What comes with it and has its own conditions.
    with: Vec<(Expect, Change)>,
    /// Accounts.
    accounts: Vec<(Expect, Change)>,
    /// Ledgers of limits that namespaces share, and what they rest on.
    shared: Vec<Also>,
}
