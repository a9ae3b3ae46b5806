//! Places for requests that dedicated pairs answer.
//!
//! They are counted for each pair and not among those of this server: a pair that does not answer, or whose webhooks are slow,
//! would take the places of everybody.

use freehold_machinery::{PlaneId, Status};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Requests that may wait for the answer of one pair.
const EACH: usize = 200;

/// How many requests wait for each pair.
#[derive(Default)]
pub(crate) struct Places(Mutex<HashMap<PlaneId, usize>>);

/// One of them, until it is dropped.
pub(crate) struct Place<'a> {
    places: &'a Places,
    plane: PlaneId,
}

impl Places {
    /// Takes a place before the pair of a plane.
    ///
    /// # Errors
    /// 429 where it has none left.
    pub(crate) fn take(&self, plane: &PlaneId) -> Result<Place<'_>, Status> {
        let mut places = self.0.lock();
        let taken = places.entry(plane.clone()).or_default();
        if *taken >= EACH {
            let why = "too many requests wait for the control plane of this project, please try again later";
            return Err(Status::too_many_requests(why, 1));
        }
        *taken += 1;
        Ok(Place { places: self, plane: plane.clone() })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut places = self.places.0.lock();
        if let Some(taken) = places.get_mut(&self.plane) {
            *taken -= 1;
            if *taken == 0 {
                places.remove(&self.plane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_does_not_answer_takes_no_place_of_another() {
        let places = Places::default();
        let plane = |name: &str| name.parse::<PlaneId>().unwrap();
        let mut held: Vec<_> = (0..EACH).map(|_| places.take(&plane("a")).ok().unwrap()).collect();
        assert_eq!(places.take(&plane("a")).err().map(|status| status.code), Some(429));
        assert!(places.take(&plane("b")).is_ok());
        held.pop();
        assert!(places.take(&plane("a")).is_ok());
        held.clear();
        assert!(places.0.lock().is_empty(), "what nobody waits for is forgotten");
    }
}
