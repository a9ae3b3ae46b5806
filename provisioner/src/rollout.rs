//! Which pairs get a new image now: a few at a time, and no further one while a new one does not run.
//!
//! Nothing is remembered but permits of the last moments: what rolls is read from the Deployments, so that another
//! provisioner goes on where this one ended. A pair that does not run may get any image at any time: that is also the way
//! back from an image that fails.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The apiserver of a pair, as its Deployment was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// The image in its Pods' template.
    pub image: String,
    /// Whether all of its Pods run, and are of that template.
    pub available: bool,
    /// Whether it is the first template of this Deployment: a new pair is no rollout.
    pub first: bool,
    /// Whether none of its Pods is to run: it is waited for by nobody.
    pub asleep: bool,
}

/// What a pair does about its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It runs, or gets, this image.
    Go(String),
    /// It keeps this image until the pairs named here run.
    Wait {
        /// The image that it has.
        image: String,
        /// Projects' uids.
        behind: Vec<String>,
    },
}

/// Permits for rollouts.
#[derive(Debug)]
pub struct Rollouts {
    most: usize,
    /// Pairs that may roll and whose Deployment was not seen with its new image yet.
    granted: Mutex<BTreeMap<String, String>>,
}

impl Rollouts {
    /// Lets so many pairs roll at a time; at least one.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), granted: Mutex::default() }
    }

    /// Decides what image `plane` gets. `deployed` tells of all pairs, by the uid of their project.
    pub fn turn(&self, plane: &str, wanted: &str, deployed: &BTreeMap<String, Deployed>) -> Turn {
        let mut granted = self.granted.lock();
        granted.retain(|pair, image| deployed.get(pair).is_some_and(|found| found.image != *image));
        let go = Turn::Go(wanted.to_owned());
        let Some(own) = deployed.get(plane).filter(|own| own.image != wanted) else { return go };
        if !own.available || granted.get(plane).is_some_and(|image| image == wanted) {
            return go;
        }
        let mut behind = rolling(plane, deployed, &granted);
        if behind.len() < self.most {
            granted.insert(plane.to_owned(), wanted.to_owned());
            return go;
        }
        behind.truncate(self.most);
        Turn::Wait { image: own.image.clone(), behind }
    }
}

/// The other pairs that have got, or are to get, an image and do not run with it yet.
fn rolling(
    plane: &str,
    deployed: &BTreeMap<String, Deployed>,
    granted: &BTreeMap<String, String>,
) -> Vec<String> {
    let others = deployed.iter().filter(|(pair, _)| *pair != plane);
    let rolling = others.filter(|(pair, found)| {
        (!found.available && !found.first && !found.asleep) || granted.contains_key(*pair)
    });
    rolling.map(|(pair, _)| pair.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(image: &str, available: bool) -> Deployed {
        Deployed { image: image.to_owned(), available, first: false, asleep: false }
    }

    fn pairs(rows: &[(&str, Deployed)]) -> BTreeMap<String, Deployed> {
        rows.iter().map(|(name, pair)| ((*name).to_owned(), pair.clone())).collect()
    }

    fn go(image: &str) -> Turn {
        Turn::Go(image.to_owned())
    }

    #[test]
    fn pairs_roll_one_by_one() {
        let rollouts = Rollouts::new(1);
        let before = pairs(&[("a", pair("1", true)), ("b", pair("1", true))]);
        assert_eq!(rollouts.turn("a", "2", &before), go("2"));
        let wait = Turn::Wait { image: "1".into(), behind: vec!["a".into()] };
        assert_eq!(rollouts.turn("b", "2", &before), wait, "granted and not seen yet");
        assert_eq!(rollouts.turn("a", "2", &before), go("2"), "asked again");
        let during = pairs(&[("a", pair("2", false)), ("b", pair("1", true))]);
        assert_eq!(rollouts.turn("b", "2", &during), wait);
        let after = pairs(&[("a", pair("2", true)), ("b", pair("1", true))]);
        assert_eq!(rollouts.turn("b", "2", &after), go("2"));
    }

    #[test]
    fn an_image_that_fails_halts_the_others_and_can_be_taken_back() {
        let rollouts = Rollouts::new(1);
        let failed = pairs(&[("a", pair("2", false)), ("b", pair("1", true))]);
        assert!(matches!(rollouts.turn("b", "2", &failed), Turn::Wait { .. }));
        assert_eq!(rollouts.turn("a", "1", &failed), go("1"));
        assert_eq!(rollouts.turn("b", "1", &failed), go("1"));
    }

    #[test]
    fn a_new_pair_neither_waits_nor_is_waited_for() {
        let rollouts = Rollouts::new(1);
        let new = Deployed { first: true, ..pair("2", false) };
        let all = pairs(&[("a", new), ("b", pair("1", true))]);
        assert_eq!(rollouts.turn("b", "2", &all), go("2"));
        assert_eq!(rollouts.turn("c", "2", &all), go("2"), "it has no Deployment yet");
    }

    #[test]
    fn a_pair_that_sleeps_halts_nobody() {
        let rollouts = Rollouts::new(1);
        let asleep = Deployed { asleep: true, ..pair("1", false) };
        let all = pairs(&[("a", asleep), ("b", pair("1", true))]);
        assert_eq!(rollouts.turn("a", "2", &all), go("2"));
        assert_eq!(rollouts.turn("b", "2", &all), go("2"));
    }

    #[test]
    fn several_roll_where_several_may() {
        let rollouts = Rollouts::new(2);
        let all = pairs(&[("a", pair("1", true)), ("b", pair("1", true)), ("c", pair("1", true))]);
        assert_eq!(rollouts.turn("a", "2", &all), go("2"));
        assert_eq!(rollouts.turn("b", "2", &all), go("2"));
        assert!(matches!(rollouts.turn("c", "2", &all), Turn::Wait { .. }));
    }
}
