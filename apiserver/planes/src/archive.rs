//! A plane as a file: written as of one revision, read into a layer that a new plane is put above.

use crate::planes::is_own;
use crate::{
    Planes,
    stored::{Merged, Origin, Writer},
};
use bytes::Bytes;
use freehold_apiserver_cache::{
    Entry,
    codec::{self, Stored},
};
use freehold_apiserver_storage::{
    Key, LayerId, ObjectPath,
    archive::{ArchiveError, Decoder, Encoder, Header, Item, Kind, Record},
};
use freehold_machinery::{GroupResource, PlaneId, Result, Status};
use futures_util::{Stream, StreamExt, stream};
use uuid::Uuid;

/// Bytes that one piece of an archive has, about.
const PIECE: usize = 256 << 10;
/// Bytes that an archive can have.
const MAX_ARCHIVE: u64 = 4 << 30;

/// What a client sees of an archive that can't be read.
fn refused(error: ArchiveError) -> Status {
    match error {
        ArchiveError::Store(error) => error.into(),
        other => Status::bad_request(format!("the archive is refused: {other}")),
    }
}

/// An archive on its way out.
struct Outgoing {
    from: Merged,
    plane: PlaneId,
    /// `None` once all is written.
    encoder: Option<Encoder>,
    _hold: freehold_apiserver_storage::Hold,
}

impl Outgoing {
    async fn piece(&mut self) -> Result<Option<Bytes>> {
        let Some(encoder) = &mut self.encoder else { return Ok(None) };
        let mut size = 0;
        while size < PIECE {
            let Some((path, item)) = self.from.next().await? else {
                let Some(mut encoder) = self.encoder.take() else { return Ok(None) };
                let mut last = encoder.take().to_vec();
                last.extend_from_slice(&encoder.finish());
                return Ok(Some(last.into()));
            };
            size += item.value.len() + 128;
            let key = Key::object(&self.plane, &path).as_bytes().clone();
            let record = Record { key, created: item.created, modified: item.modified, value: item.value };
            encoder.push(&record).map_err(refused)?;
        }
        Ok(Some(encoder.take()))
    }
}

impl Planes {
    /// Archives what a plane has now, without tokens of service accounts and what its class and the base bring.
    ///
    /// # Errors
    /// 503 where the store does not answer; later failures are the last item of the stream.
    pub async fn export(
        &self,
        plane: &PlaneId,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + 'static + use<>> {
        if is_own(plane) {
            return Err(Status::no_such_resource());
        }
        let hold = self.hold(plane).await?;
        let now = freehold_machinery::time::format_seconds(jiff::Timestamp::now());
        let mut header = Header::new(Kind::Plane, hold.revision, now);
        if let Some(info) = self.directory.by_plane(plane) {
            header.attributes.insert("project".into(), info.name.to_string());
        }
        let outgoing = Outgoing {
            from: Merged::new(self.stores.of(plane), plane, hold.revision, "").await?,
            encoder: Some(Encoder::new(&header).map_err(refused)?),
            plane: plane.clone(),
            _hold: hold,
        };
        Ok(stream::unfold(Some(outgoing), |outgoing| async move {
            let mut outgoing = outgoing?;
            match outgoing.piece().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(outgoing))),
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        }))
    }

    /// Fills an empty plane from an archive and returns the number of its objects. Nothing of it is visible before
    /// all of it was read and verified; then `switch` puts the plane above the layer that has it, with the operation
    /// `import`.
    ///
    /// # Errors
    /// 409 for a plane that is not empty or not shared, 400 for an archive that is torn, damaged or holds keys that
    /// cannot be imported, 413 for more than 4 GiB, and the errors of `switch`.
    pub async fn import<F>(
        &self,
        plane: &PlaneId,
        mut archive: impl Stream<Item = Result<Bytes>> + Send + Unpin,
        switch: impl FnOnce(LayerId) -> F,
    ) -> Result<u64>
    where
        F: Future<Output = Result<u64>>,
    {
        if is_own(plane) || !self.root.is_core() {
            let why = "an archive can only be imported into a project with a shared control plane";
            return Err(Status::conflict(&GroupResource::new("", "planes"), plane.as_str(), why));
        }
        self.check_empty(plane).await?;
        let layer: LayerId = format!("import-{}", Uuid::new_v4()).parse().map_err(Status::internal)?;
        let revision = self.stores.of(plane).revision().await?;
        let organization = self.organization_of(plane).await?.map(|organization| organization.to_string());
        let origin = Origin { source: format!("an archive for {plane}"), organization, revision };
        let mut writer = Writer::begin(self.stores.of(plane).clone(), layer.clone(), origin).await?;
        let read = read(&mut archive, &mut writer).await;
        let done = match read {
            Ok(()) => writer.seal().await,
            Err(status) => Err(status),
        };
        let put = match done {
            Ok(record) => {
                self.check_empty(plane).await?;
                switch(layer.clone()).await.map(|_| record.objects)
            }
            Err(status) => Err(status),
        };
        // From here on it goes with the plane, or at once.
        let released = self.release(&layer).await;
        let objects = put?;
        released?;
        Ok(objects)
    }

    async fn check_empty(&self, plane: &PlaneId) -> Result<()> {
        if self.is_empty(plane).await? {
            return Ok(());
        }
        let why = "an archive can only be imported into a new or empty project";
        Err(Status::conflict(&GroupResource::new("", "planes"), plane.as_str(), why))
    }
}

async fn read(
    archive: &mut (impl Stream<Item = Result<Bytes>> + Send + Unpin),
    writer: &mut Writer,
) -> Result<()> {
    let (mut decoder, mut size) = (Decoder::default(), 0);
    while let Some(piece) = archive.next().await {
        let piece = piece?;
        size += piece.len() as u64;
        if size > MAX_ARCHIVE {
            return Err(Status::new(413, "RequestEntityTooLarge", "the archive has more than 4 GiB"));
        }
        decoder.feed(&piece);
        while let Some(item) = decoder.next_item().map_err(refused)? {
            match item {
                Item::Header(header) if header.kind != Kind::Plane => {
                    return Err(refused(ArchiveError::Kind { found: header.kind, wanted: Kind::Plane }));
                }
                Item::Header(_) => {}
                Item::Record(record) => {
                    let path = check(&record)?;
                    writer.put(&path, record.value).await?;
                }
            }
        }
    }
    decoder.finish().map_err(refused)?;
    Ok(())
}

/// The path of a record whose value is an object of that name.
pub(crate) fn check(record: &Record) -> Result<ObjectPath> {
    let key = Key::from_store(record.key.clone());
    let wrong = |what: &str| {
        let key = String::from_utf8_lossy(&record.key);
        Status::bad_request(format!("the archive is refused: {key:?} {what}"))
    };
    let (_, path) = key.object_path().ok_or_else(|| wrong("is no object's key"))?;
    let text = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control());
    let parts = [&path.resource, &path.name].into_iter().chain(&path.namespace);
    if !parts.into_iter().all(|part| text(part)) {
        return Err(wrong("is no object's key"));
    }
    match codec::decode(&record.value) {
        Some(Stored::Whiteout) => Ok(path),
        Some(Stored::Json(json)) => {
            let entry = Entry::new(&json, 1, 1).map_err(|error| wrong(&error.to_string()))?;
            if entry.name() != path.name || entry.namespace() != path.namespace.as_deref().unwrap_or("") {
                return Err(wrong("has another object's value"));
            }
            if entry.uid().is_empty() {
                return Err(wrong("has an object without a uid"));
            }
            Ok(path)
        }
        None => Err(wrong("has a value of an unknown format")),
    }
}
