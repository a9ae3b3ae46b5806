//! Bytes of answers that are being joined: of one answer, of an organization, and of all.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt::Display,
    sync::{Arc, LazyLock, Weak},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one server's answer.
const MAX_ANSWER: usize = 16 << 20;
/// Bytes of an organization's answers that are being joined.
const OF_ORGANIZATION: usize = 64 << 20;
/// Bytes of all answers that are being joined.
const OF_ALL: usize = 192 << 20;
/// Bytes that are taken at once.
const PIECE: usize = 64 << 10;
/// Organizations that are remembered before those are forgotten that hold nothing.
const REMEMBERED: usize = 1024;

static ALL: LazyLock<Arc<Semaphore>> = LazyLock::new(|| pieces(OF_ALL));
static ORGANIZATIONS: LazyLock<Mutex<HashMap<Box<str>, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

/// What one list holds, until it is dropped.
pub(crate) struct Held {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
    taken: Mutex<Vec<OwnedSemaphorePermit>>,
}

fn pieces(bytes: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(bytes / PIECE))
}

impl Held {
    /// Nothing yet, of an organization's lists.
    pub(crate) fn of(organization: &str) -> Self {
        let mut organizations = ORGANIZATIONS.lock();
        if organizations.len() >= REMEMBERED {
            organizations.retain(|_, own| own.strong_count() > 0);
        }
        let known = organizations.get(organization).and_then(Weak::upgrade);
        let own = known.unwrap_or_else(|| {
            let own = pieces(OF_ORGANIZATION);
            organizations.insert(organization.into(), Arc::downgrade(&own));
            own
        });
        Self { own, all: ALL.clone(), taken: Mutex::default() }
    }

    /// Reads an answer, as far as there is room for it.
    ///
    /// # Errors
    /// It breaks off, is too large, or the lists under way hold too much.
    pub(crate) async fn read<B>(&self, mut body: B) -> Result<Bytes, String>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let (mut read, mut room) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
            if read.len() + data.len() > MAX_ANSWER {
                return Err(format!("its answer has more than {MAX_ANSWER} bytes"));
            }
            while room < read.len() + data.len() {
                self.take()?;
                room += PIECE;
            }
            read.extend_from_slice(&data);
        }
        Ok(read.into())
    }

    fn take(&self) -> Result<(), String> {
        let mut taken = self.taken.lock();
        for (room, whose) in [(&self.own, "of this organization"), (&self.all, "of this server")] {
            let piece = room.clone().try_acquire_owned().map_err(|_| {
                format!("the lists {whose} over several projects hold too many bytes; try again later")
            })?;
            taken.push(piece);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    #[tokio::test]
    async fn lists_of_one_organization_hold_so_many_bytes_and_leave_room_for_others() {
        let answer = || Full::new(Bytes::from(vec![b' '; MAX_ANSWER]));
        let (first, second, other) = (Held::of("a"), Held::of("a"), Held::of("b"));
        for _ in 0..OF_ORGANIZATION / MAX_ANSWER {
            first.read(answer()).await.unwrap();
        }
        let refused = second.read(answer()).await.unwrap_err();
        assert!(refused.contains("of this organization"), "{refused}");
        assert_eq!(other.read(answer()).await.unwrap().len(), MAX_ANSWER);
        drop(first);
        assert_eq!(second.read(answer()).await.unwrap().len(), MAX_ANSWER);
        let larger = Full::new(Bytes::from(vec![b' '; MAX_ANSWER + 1]));
        assert!(other.read(larger).await.unwrap_err().contains("more than"));
    }
}
