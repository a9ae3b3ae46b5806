//! Create, update and patch: one path from what the client sent to a commit.

use crate::draft::{Draft, Live, Want, operated};
use crate::preconditions::{check_uid, check_version, managers, misnamed, spoken, unchanged, without_head};
use crate::predicates::is_released;
use crate::{
    Body, FieldValidation, Object, Operation, Patch, Registry, WriteOptions, Written, actions, convert,
    prepare::{self, Undecodable},
    scale, strategy, validate,
};
use freehold_apiserver_cache::{Seen, codec};
use freehold_apiserver_kinds as kinds;
use freehold_apiserver_ledger::Posting;
use freehold_apiserver_operation::heavy;
use freehold_apiserver_storage::{Change, Committed, Key, KeyValue, ObjectPath};
use freehold_machinery::{
    Result, Status, Value, go, meta,
    schema::{self},
    status::FieldError,
    strict,
};
use freehold_machinery_patch as patch;
use freehold_machinery_patch::apply::{self};
use std::{borrow::Cow, sync::Arc};

/// How often a write without a precondition is tried again when others write the same object meanwhile.
const ATTEMPTS: usize = 50;
/// How often a generated name is drawn again when it is taken.
const NAMES: usize = 8;

impl Registry {
    /// Creates an object. Its name comes from the body, or is generated.
    ///
    /// # Errors
    /// What validation, admission or the ledger refuses it with; a 409 where the object exists already.
    pub async fn create(&self, op: &Operation, body: &Body, options: &WriteOptions) -> Result<Written> {
        if actions::is_action(&op.ty) {
            return self.act(op, body, options).await;
        }
        let prefix = meta::text(&body.value, "generateName").to_owned();
        let generated = meta::name(&body.value).is_empty() && !prefix.is_empty();
        let mut op = op.clone();
        let mut body = Cow::Borrowed(body);
        for attempt in 0.. {
            if generated {
                meta::set(&mut body.to_mut().value, "name", prepare::generate_name(&prefix));
            }
            op.name = Some(meta::name(&body.value).to_owned());
            match self.write(&op, Want::Create(&body), options).await {
                Err(status) if generated && status.reason == "AlreadyExists" && attempt < NAMES => {}
                done => return done,
            }
        }
        Err(op.not_found())
    }

    /// Replaces an object, or its status or scale.
    ///
    /// # Errors
    /// What validation, admission or the ledger refuses it with; a 409 where the object
    /// is another one than the client has seen.
    pub async fn update(&self, op: &Operation, body: &Body, options: &WriteOptions) -> Result<Written> {
        let name = meta::name(&body.value);
        if name != op.name() {
            return Err(misnamed(op, name));
        }
        self.write(op, Want::Update(body), options).await
    }

    /// Patches an object, or its status or scale. An apply creates the object where it is absent.
    ///
    /// # Errors
    /// What validation, admission or the ledger refuses it with; a 409 where the object
    /// is another one than the client has seen.
    pub async fn patch(&self, op: &Operation, patch: &Patch, options: &WriteOptions) -> Result<Written> {
        self.write(op, Want::Patch(patch), options).await
    }

    /// Writes an object that the server itself changed; its resource version is the precondition.
    pub(crate) async fn replace(
        &self,
        op: &Operation,
        value: Value,
        options: &WriteOptions,
    ) -> Result<Written> {
        let body = Body::from(value);
        self.write(op, Want::Update(&body), options).await
    }

    async fn write(&self, op: &Operation, want: Want<'_>, options: &WriteOptions) -> Result<Written> {
        let path = op.path();
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            self.see_for(op, refused).await?;
            let (entry, own) = self.cache.get_for_update(&op.plane, &path).await?;
            let live = match entry {
                Some(entry) => {
                    let stored = heavy(entry.cost(), || entry.value());
                    let mut value = self.converter.to_served(&op.plane, &op.ty, stored).await?;
                    // What was written before the schema became what it is counts as it is read now.
                    if op.ty.custom && entry.modified < convert::schema_since(&self.cache, &op.plane, &op.ty)
                    {
                        validate::prune(&op.ty, &mut value);
                        validate::default(&op.ty, &mut value);
                    }
                    Some(Live { value, modified: entry.modified, entry })
                }
                None => None,
            };
            let mut warnings = Vec::new();
            let bytes = want.bytes() + live.as_ref().map_or(0, |live| live.entry.cost());
            if live.is_some() && matches!(want, Want::Create(_)) {
                // What else is wrong with it is told first.
                if let Some(draft) = self.draft(op, &want, None, options, &mut warnings)? {
                    let dry = WriteOptions { dry_run: true, ..options.clone() };
                    self.settle(op, (draft, bytes), None, own, &path, &dry).await?;
                }
                return Err(Status::already_exists(&op.ty.group_resource(), op.name()));
            }
            let draft = heavy(bytes, || self.draft(op, &want, live.as_ref(), options, &mut warnings));
            let Some(draft) = draft.map_err(|status| status.warned(&warnings))? else {
                let live = live.ok_or_else(|| op.not_found())?;
                return self.answer(op, made(live.value), false, warnings);
            };
            let settled = self.settle(op, (draft, bytes), live.as_ref(), own, &path, options).await;
            let (outcome, more) = settled.map_err(|status| {
                warnings.extend(op.annotations.take_warnings());
                status.warned(&warnings)
            })?;
            match outcome {
                Outcome::Done(object) => {
                    warnings.extend(more);
                    let value = (op.ty.terminating && !options.dry_run).then(|| object.value());
                    if let Some(value) = value.filter(|value| is_released(value)) {
                        let revision = meta::resource_version(&value).parse().unwrap_or(0);
                        self.object_gone(op, revision).await?;
                    }
                    return self.answer(op, object, live.is_none(), warnings);
                }
                Outcome::Raced(revision) => refused = Some(revision),
            }
        }
        Err(Status::modified(&op.ty.group_resource(), op.name()))
    }

    fn answer(
        &self,
        op: &Operation,
        object: Object,
        created: bool,
        warnings: Vec<String>,
    ) -> Result<Written> {
        let object = match op.subresource.as_deref() {
            Some("scale") => made(scale::read(op, &object.value())?),
            _ => object,
        };
        Ok(Written { object, created, pending: false, warnings })
    }

    /// The object as the client wants it; `None` where nothing changes.
    fn draft(
        &self,
        op: &Operation,
        want: &Want<'_>,
        live: Option<&Live>,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Draft>> {
        let now = freehold_apiserver_operation::now();
        let name = op.name();
        let draft = match (want, live) {
            (Want::Create(body), _) => self.read(op, body, options, warnings)?,
            (Want::Update(_), None) if !strategy::of(&op.ty).create_on_update || op.subresource.is_some() => {
                return Err(op.not_found());
            }
            (Want::Update(body), _) => self.read(op, body, options, warnings)?,
            (Want::Patch(Patch::Apply(body)), _) => {
                if live.is_none() && op.subresource.is_some() {
                    return Err(op.not_found());
                }
                return self.apply(op, body, live, options, &now, warnings);
            }
            (Want::Patch(_), None) => return Err(op.not_found()),
            (Want::Patch(patch), Some(live)) => self.patched(op, patch, &live.value, options, warnings)?,
        };
        let mut draft = match (op.subresource.as_deref(), live) {
            (Some("scale"), Some(live)) => {
                let mut whole = scale::write(op, &live.value, &draft)?;
                // What a Scale does not say is not asked for.
                for field in ["resourceVersion", "uid"] {
                    let given = draft["metadata"].get(field).filter(|given| *given != "");
                    given.cloned().into_iter().for_each(|given| meta::set(&mut whole, field, given));
                }
                whole
            }
            _ => draft,
        };
        let given = meta::resource_version(&draft).to_owned();
        match live {
            // What is no number counts as none.
            None if given.parse().is_ok_and(|version: u64| version != 0)
                && matches!(want, Want::Create(_)) =>
            {
                return Err(Status::new(
                    500,
                    "",
                    "resourceVersion should not be set on objects to be created",
                ));
            }
            Some(_)
                if given.is_empty()
                    && matches!(want, Want::Update(_))
                    && !strategy::of(&op.ty).unconditional_update =>
            {
                let detail = "must be specified for an update";
                let error = FieldError::invalid("metadata.resourceVersion", 0.into(), detail);
                return Err(Status::invalid(&op.ty.group, &op.ty.plural, name, &[error]));
            }
            Some(live) => {
                if matches!(want, Want::Update(_)) {
                    check_uid(op, &draft, live, options.dry_run)?;
                }
                check_version(op, &given, live)?;
            }
            None => {}
        }
        let empties = validate::default(&op.ty, &mut draft);
        match live {
            Some(live) => prepare::for_update(op, &mut draft, &live.value),
            None => prepare::for_create(&op.ty, &mut draft, &now),
        }
        validate::default_status(&op.ty, &mut draft);
        self.own(op, live, &mut draft, options, &now)?;
        Ok(Some(Draft { value: draft, empties }))
    }

    /// Brings managed fields up to date.
    fn own(
        &self,
        op: &Operation,
        live: Option<&Live>,
        draft: &mut Value,
        options: &WriteOptions,
        now: &str,
    ) -> Result<()> {
        let api_version = op.ty.api_version();
        let options = managers(op, options, &api_version, now);
        // Who binds a pod owns nothing of it.
        match (op.subresource.as_deref(), live) {
            (Some("binding"), _) => {}
            (Some("scale"), Some(live)) => {
                let mut owned = scale::as_owned(op, draft)?;
                apply::update(Some(&scale::as_owned(op, &live.value)?), &mut owned, &options);
                scale::drop_times(&mut owned["metadata"]["managedFields"]);
                match owned["metadata"]["managedFields"].take() {
                    Value::Null => meta::remove(draft, "managedFields"),
                    managed => meta::set(draft, "managedFields", managed),
                }
            }
            (_, live) => apply::update(live.map(|live| &live.value), draft, &options),
        }
        Ok(())
    }

    /// An object that the client sent whole.
    fn read(
        &self,
        op: &Operation,
        body: &Body,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        self.decode(op, body, options, warnings, false).map_err(|failed| failed.of(&spoken(op)))
    }

    fn decode(
        &self,
        op: &Operation,
        body: &Body,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
        patched: bool,
    ) -> Result<Value, Undecodable> {
        let mut value = body.value.clone();
        let kind = spoken(op);
        prepare::check_kind(op, &mut value, &kind, patched)?;
        if op.subresource.as_deref() == Some("scale") {
            let schema = freehold_apiserver_catalog::schema_of_kind(&kind);
            if let Some(why) = schema.and_then(|schema| go::mismatch(&value, schema)) {
                return Err(Undecodable::Why(why));
            }
        } else {
            if let Some(why) = validate::unreadable(&op.ty, &value) {
                return Err(Undecodable::Why(why));
            }
            self.check_fields(op, &value, body, options.field_validation, warnings)?;
            validate::prune(&op.ty, &mut value);
            if op.ty.custom {
                go::whole_numbers(&mut value);
            }
        }
        prepare::check_namespace(op, &mut value)?;
        Ok(value)
    }

    /// Unknown and duplicate fields: an error, warnings or nothing.
    fn check_fields(
        &self,
        op: &Operation,
        value: &Value,
        body: &Body,
        mode: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<(), Undecodable> {
        if mode == FieldValidation::Ignore {
            return Ok(());
        }
        let schema = op.ty.schema.get();
        let told = |text: &String| text.trim_start_matches("error converting YAML to JSON: ").to_owned();
        let mut problems: Vec<_> = body.duplicates.iter().map(told).collect();
        let mut unknown = schema.map(|s| strict::unknown(value, s)).unwrap_or_default();
        if op.ty.custom {
            // The metadata is read for itself, before the schema counts.
            unknown.sort_by_key(|text| !text.starts_with("unknown field \"metadata."));
        }
        problems.append(&mut unknown);
        if problems.len() > 1 && !op.ty.custom {
            strict::in_order(&body.written, &mut problems);
        }
        match mode {
            FieldValidation::Strict if !problems.is_empty() => {
                Err(Undecodable::Why(format!("strict decoding error: {}", problems.join(", "))))
            }
            _ => {
                warnings.extend(problems.iter().map(|problem| without_head(problem).to_owned()));
                Ok(())
            }
        }
    }

    fn patched(
        &self,
        op: &Operation,
        patch: &Patch,
        live: &Value,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        let scaled;
        let base = if op.subresource.as_deref() == Some("scale") {
            scaled = scale::read(op, live)?;
            &scaled
        } else {
            live
        };
        let mut shown = None;
        let (value, duplicates) = match patch {
            Patch::Json(body) => operated(base, body, options)?,
            Patch::Merge(body) => (patch::merge(base, &body.value), body.duplicates.clone()),
            Patch::Strategic(body) => {
                let schema = op.ty.schema.get().filter(|_| !op.ty.custom).ok_or_else(|| {
                    let accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                    Status::unsupported_media_type("application/strategic-merge-patch+json", accepted)
                })?;
                let mut merged = patch::strategic(base, &body.value, schema)?;
                prepare::set_kind(&mut merged, &spoken(op));
                let text = patch::go_text(&body.value);
                if let Some(why) = go::unrestorable(&merged, schema) {
                    return Err(Status::unreadable_patch(&text, &why));
                }
                shown = Some(text);
                (merged, body.duplicates.clone())
            }
            Patch::Apply(_) => return Err(Status::internal("an apply is not merged here")),
        };
        let body = Body { duplicates, ..Body::from(value) };
        let value = self.decode(op, &body, options, warnings, true).map_err(|failed| match failed {
            Undecodable::Why(why) | Undecodable::Other { why, .. } => {
                Status::unreadable_patch(&shown.unwrap_or_else(|| go::json(&body.value)), &why)
            }
            failed => failed.of(&spoken(op)),
        })?;
        if meta::name(&value) != op.name() {
            return Err(misnamed(op, meta::name(&value)));
        }
        let uid = meta::uid(&value);
        if !uid.is_empty() && uid != meta::uid(live) {
            // The rules for all objects and those for updates both find it.
            let error = FieldError::invalid("metadata.uid", uid.into(), "field is immutable");
            return Err(Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &[error.clone(), error]));
        }
        Ok(value)
    }

    fn apply(
        &self,
        op: &Operation,
        body: &Body,
        live: Option<&Live>,
        options: &WriteOptions,
        now: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Draft>> {
        let mut config = body.value.clone();
        let scale = op.subresource.as_deref() == Some("scale");
        if scale {
            // The replicas of a Scale are applied as the field of the object that they stand for.
            let live = live.ok_or_else(|| op.not_found())?;
            config = scale::apply_config(op, &live.value, &config)?;
        } else {
            prepare::check_namespace(op, &mut config.clone())?;
            // Fields that the schema does not know are refused by the apply itself, whatever the client asked for.
            match (options.field_validation, body.duplicates.join("\n  ")) {
                (FieldValidation::Ignore, _) => {}
                (_, found) if found.is_empty() => {}
                (FieldValidation::Strict, found) => {
                    return Err(Status::bad_request(format!("error strict decoding YAML: {found}")));
                }
                (FieldValidation::Warn, found) => warnings.push(without_head(&found).to_owned()),
            }
        }
        match meta::name(&config) {
            "" => meta::set(&mut config, "name", op.name()),
            name if name != op.name() => return Err(misnamed(op, name)),
            _ => {}
        }
        if op.ty.custom {
            go::whole_numbers(&mut config);
        }
        let given = meta::resource_version(&config).to_owned();
        let uid = meta::uid(&config);
        match live {
            Some(live) if !uid.is_empty() && uid != meta::uid(&live.value) => {
                let error = FieldError::invalid("metadata.uid", uid.into(), "field is immutable");
                return Err(Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &[error.clone(), error]));
            }
            Some(live) => check_version(op, &given, live)?,
            None if !meta::uid(&config).is_empty() => {
                let uid = meta::uid(&config);
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Status::conflict(&op.ty.group_resource(), op.name(), &why));
            }
            None => {}
        }
        let api_version = op.ty.api_version();
        let owned = live.filter(|_| scale).map(|live| scale::as_owned(op, &live.value)).transpose()?;
        let base = owned.as_ref().or(live.map(|live| &live.value));
        let applied = apply::apply(base, &config, &managers(op, options, &api_version, now))?;
        let Some(mut draft) = applied else { return Ok(None) };
        if let Some(namespace) = &op.namespace {
            meta::set(&mut draft, "namespace", namespace.clone());
        }
        let empties = validate::default(&op.ty, &mut draft);
        match live {
            Some(live) => prepare::for_update(op, &mut draft, &live.value),
            None => prepare::for_create(&op.ty, &mut draft, now),
        }
        Ok(Some(Draft { value: draft, empties }))
    }

    /// Admission, validation and commit of what comes from so many bytes; gives the warnings of admission too.
    async fn settle(
        &self,
        op: &Operation,
        (draft, bytes): (Draft, usize),
        live: Option<&Live>,
        own: Seen,
        path: &ObjectPath,
        options: &WriteOptions,
    ) -> Result<(Outcome, Vec<String>)> {
        let Draft { value: mut draft, empties } = draft;
        let old = live.map(|live| &live.value);
        if old.is_none() && op.ty.terminating {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&op.ty.group_resource(), op.name(), why));
        }
        match old {
            Some(old) => meta::set(&mut draft, "resourceVersion", meta::resource_version(old)),
            None => meta::remove(&mut draft, "resourceVersion"),
        }
        let mut warnings = match options.admitted {
            true => Vec::new(),
            false => self.admit(op, &mut draft, old, options).await?,
        };
        if let Some(old) = old {
            prepare::count_generation(op, &mut draft, old);
        }
        self.strategize(op, &mut draft, old, options.dry_run).await?;
        warnings.extend(heavy(bytes, || {
            validate::prune(&op.ty, &mut draft);
            let told = validate::object(op, &validate::as_written(&draft, &empties), old)?;
            if let Some(schema) = op.ty.schema.get() {
                schema::zeros::complete(&mut draft, schema);
            }
            Ok::<_, Status>(told)
        })?);
        self.check_references(op, &draft, old).await?;
        if !op.ty.custom && op.subresource.is_none() {
            warnings.extend(kinds::check::warnings::of(&op.ty, &draft, old));
        }
        if !options.admitted {
            warnings.extend(self.validate_admission(op, &mut draft, old, options).await?);
        }
        warnings.extend(validate::warnings(op, &draft, old));
        draft = convert::through_stored(&op.ty, draft)?;
        if let Some(live) = live {
            if unchanged(&draft, &live.value) {
                return Ok((Outcome::Done(made(live.value.clone())), warnings));
            }
            if is_released(&draft) {
                return Ok((self.remove(op, path, own, (draft, live), options.dry_run).await?, warnings));
            }
        }
        let versionless = |draft: &Value| {
            let mut draft = draft.clone();
            meta::remove(&mut draft, "resourceVersion");
            draft
        };
        let is_stored = freehold_apiserver_operation::is_stored(&op.ty);
        let encoded = match is_stored {
            true => heavy(bytes, || codec::Encoded::new(&draft)),
            false => codec::Encoded::new(&self.to_stored(op, versionless(&draft)).await?),
        };
        let entry = live.map(|live| &*live.entry);
        let posting = Posting { new: Some(&draft), old, entry, stored: &encoded.stored };
        if options.dry_run {
            self.ledger.check_posted(op, own, posting).await?;
            return Ok((Outcome::Done(made(draft)), warnings));
        }
        let also = self.companions(op, Some(&draft), old).await?;
        let change = vec![Change::Put(Key::object(&op.plane, path), encoded.stored.clone())];
        let outcome = match self.ledger.commit_posted(op, (path, own), change, also, posting).await? {
            Committed::Done(revision) => Outcome::Done(match encoded.json(revision).filter(|_| is_stored) {
                Some(json) => Object::Bytes(json),
                None => versioned(draft, revision),
            }),
            Committed::Refused(now) => Outcome::raced(&now),
        };
        Ok((outcome, warnings))
    }

    /// The last finalizer went: the object goes with it.
    async fn remove(
        &self,
        op: &Operation,
        path: &ObjectPath,
        own: Seen,
        (last, live): (Value, &Live),
        dry_run: bool,
    ) -> Result<Outcome> {
        if dry_run {
            return Ok(Outcome::Done(made(last)));
        }
        let also = self.companions(op, None, Some(&last)).await?;
        let change = self.removal(op, path, &last, own.below).await?;
        let posting = Posting { new: None, old: Some(&live.value), entry: Some(&live.entry), stored: &[] };
        match self.ledger.commit_posted(op, (path, own), change, also, posting).await? {
            Committed::Done(revision) => Ok(Outcome::Done(versioned(last, revision))),
            Committed::Refused(now) => Ok(Outcome::raced(&now)),
        }
    }
}

/// How an attempt to commit ended.
enum Outcome {
    Done(Object),
    /// Somebody else wrote first; the revision to wait for.
    Raced(u64),
}

impl Outcome {
    fn raced(now: &[Option<KeyValue>]) -> Self {
        Self::Raced(freehold_apiserver_ledger::newest(now))
    }
}

/// An object that was made for its request.
fn made(value: Value) -> Object {
    Object::Value(Arc::new(value))
}

/// Object that was made for its request, as of the revision that wrote it.
fn versioned(mut value: Value, revision: u64) -> Object {
    meta::set(&mut value, "resourceVersion", revision.to_string());
    made(value)
}
