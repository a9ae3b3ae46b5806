//! Class layers of dedicated pairs. A pair sees the keys of its plane alone, so a record there names the layer of the
//! plane's class. The core server keeps that record current and marks the layer as one that the plane stands on.

use crate::{Planes, directory::ProjectInfo, layers::ClassRecord, stored};
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, KeyRange, LayerId, Range};
use freehold_machinery::{PlaneId, Result, Status};
use std::{collections::BTreeMap, sync::Arc};

/// Where it is listed which planes have such a record, with the record.
const LISTED: &str = "classes";

fn listed(plane: &PlaneId) -> Key {
    Key::system(&format!("{LISTED}/{plane}"))
}

impl Planes {
    /// Makes the records what they have to be: in the planes of dedicated projects whose class has a layer, and nowhere
    /// else. Doing it again changes nothing; what others change meanwhile is for the next time.
    pub(crate) async fn hand_out_classes(&self) -> Result<()> {
        let store = self.stores.system();
        let mut all: BTreeMap<PlaneId, Option<Arc<ProjectInfo>>> = BTreeMap::new();
        for item in store.range(Range::all(KeyRange::system(LISTED))).await?.items {
            let name = std::str::from_utf8(item.key.as_bytes()).ok().and_then(|text| text.rsplit('/').next());
            if let Some(Ok(plane)) = name.map(str::parse) {
                all.insert(plane, None);
            }
        }
        for info in self.directory.dedicated().await? {
            all.insert(info.plane.clone(), Some(info));
        }
        for (plane, info) in all {
            self.hand_out(&plane, info.as_deref()).await?;
        }
        Ok(())
    }

    async fn hand_out(&self, plane: &PlaneId, info: Option<&ProjectInfo>) -> Result<()> {
        let store = self.stores.of(plane);
        let read = async |key: &Key| store.get(key).await.map_err(Status::from);
        let parse = |value: &[u8]| serde_json::from_slice::<ClassRecord>(value).ok();
        let wanted = match info {
            Some(info) => read(&Key::class(&info.class)).await?.and_then(|found| parse(&found.value)),
            None => None,
        };
        // Which one was before is no matter for a pair, and would make it begin anew.
        let wanted = wanted.map(|record| ClassRecord { previous: None, ..record });
        let noted = read(&listed(plane)).await?;
        let before = noted.as_ref().and_then(|noted| parse(&noted.value));
        if wanted == before && (wanted.is_some() || noted.is_none()) {
            return Ok(());
        }
        let mut expect =
            vec![Expect { key: listed(plane), modified: noted.map_or(0, |noted| noted.modified) }];
        let mut changes = Vec::new();
        let layer_of = |record: &ClassRecord| record.layer.parse::<LayerId>().map_err(Status::internal);
        if let Some(wanted) = &wanted {
            let layer = layer_of(wanted)?;
            let Some((found, modified)) = stored::record(&**store, &layer).await? else {
                return Ok(());
            };
            if !found.sealed || found.released {
                return Ok(());
            }
            expect.push(Expect { key: Key::layer(&layer), modified });
            let value = serde_json::to_vec(wanted).map_err(Status::internal)?;
            changes.push(Change::Put(Key::plane_class(plane), value.clone().into()));
            changes.push(Change::Put(listed(plane), value.into()));
            changes.push(Change::Put(Key::layer_plane(&layer, plane), b"{}"[..].into()));
        } else {
            changes.extend([Change::Delete(Key::plane_class(plane)), Change::Delete(listed(plane))]);
        }
        let left = before.filter(|before| wanted.as_ref().is_none_or(|wanted| wanted.layer != before.layer));
        let left = left.as_ref().map(layer_of).transpose()?;
        changes.extend(left.iter().map(|left| Change::Delete(Key::layer_plane(left, plane))));
        let done = store.commit(Commit { expect, changes }).await?;
        match (done, left) {
            (Committed::Done(_), Some(left)) => stored::collect(store, &left).await,
            _ => Ok(()),
        }
    }
}
