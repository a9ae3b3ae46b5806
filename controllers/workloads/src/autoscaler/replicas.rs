//! How many replicas a metric asks for (<https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details>).
//!
//! Pods without a sample and pods that are not ready count so that they dampen a change, and never turn its direction.

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// How long after its start a pod's CPU may be that of its start-up.
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_secs(5 * 60);
/// How long after its start a pod's first readiness is awaited.
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// What a metrics API says of a pod, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) value: i64,
    pub(super) at: Timestamp,
    pub(super) window: SignedDuration,
}

/// Samples by the names of pods.
pub(super) type Samples = BTreeMap<String, Sample>;

/// What counts of a pod.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) name: String,
    /// It is being deleted or has failed.
    pub(super) is_ignored: bool,
    pub(super) is_pending: bool,
    pub(super) is_ready: bool,
    /// Whether its condition `Ready` is `False`, and since when it is what it is; `None` where it has none.
    pub(super) readiness: Option<(bool, Timestamp)>,
    pub(super) started: Option<Timestamp>,
}

/// How far from 1 a ratio may be without a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

/// What a metric of pods is to be.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// A percentage of what the pods request, in thousandths by their names.
    Utilization { percent: i64, requests: BTreeMap<String, i64> },
    /// An average in thousandths.
    Average(i64),
}

/// How many replicas are wanted, and what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Proposal {
    pub(super) replicas: i64,
    /// Percent of what is requested, for [`Target::Utilization`].
    pub(super) utilization: Option<i64>,
    /// Thousandths.
    pub(super) usage: i64,
}

/// What is measured against what is to be.
#[derive(Clone, Copy)]
struct Measured {
    ratio: f64,
    utilization: Option<i64>,
    usage: i64,
}

impl Tolerances {
    fn admit(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

impl Target {
    fn measure(&self, samples: &Samples) -> Result<Measured, String> {
        match self {
            Self::Average(target) => {
                let total: i64 = samples.values().map(|sample| sample.value).sum();
                let usage = total / count(samples.len()).max(1);
                Ok(Measured { ratio: usage as f64 / *target as f64, utilization: None, usage })
            }
            Self::Utilization { percent, requests } => {
                let known = samples.iter().filter_map(|(pod, s)| Some((s.value, *requests.get(pod)?)));
                let (mut used, mut requested, mut number) = (0, 0, 0);
                for (value, request) in known {
                    (used, requested, number) = (used + value, requested + request, number + 1);
                }
                if requested == 0 {
                    return Err("no metrics returned matched known pods".to_owned());
                }
                let utilization = used * 100 / requested;
                let ratio = utilization as f64 / *percent as f64;
                Ok(Measured { ratio, utilization: Some(utilization), usage: used / number })
            }
        }
    }

    /// What a pod without a sample counts as where fewer pods are wanted.
    fn assumed(&self, pod: &str) -> i64 {
        match self {
            Self::Average(target) => *target,
            Self::Utilization { percent, requests } => {
                requests.get(pod).copied().unwrap_or(0) * percent.max(&100) / 100
            }
        }
    }
}

/// Pods by what is known of them.
#[derive(Default)]
struct Groups<'a> {
    ready: usize,
    unready: Vec<&'a str>,
    missing: Vec<&'a str>,
    ignored: Vec<&'a str>,
}

impl<'a> Groups<'a> {
    fn of(pods: &'a [Counted], samples: &Samples, is_cpu: bool, now: Timestamp) -> Self {
        let mut groups = Self::default();
        for pod in pods {
            match samples.get(&pod.name) {
                _ if pod.is_ignored => groups.ignored.push(&pod.name),
                _ if pod.is_pending => groups.unready.push(&pod.name),
                None => groups.missing.push(&pod.name),
                Some(sample) if is_cpu && is_starting(pod, sample, now) => groups.unready.push(&pod.name),
                Some(_) => groups.ready += 1,
            }
        }
        groups
    }
}

/// Whether a pod's CPU may be that of its start-up.
fn is_starting(pod: &Counted, sample: &Sample, now: Timestamp) -> bool {
    let Some(((unready, since), started)) = pod.readiness.zip(pod.started) else { return true };
    if started + CPU_INITIALIZATION > now {
        return unready || sample.at < since + sample.window;
    }
    unready && started + INITIAL_READINESS > since
}

/// The replicas that samples of pods ask for.
pub(super) fn of_pods(
    pods: &[Counted],
    mut samples: Samples,
    target: &Target,
    (current, is_cpu): (i64, bool),
    tolerances: Tolerances,
    now: Timestamp,
) -> Result<Proposal, String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let groups = Groups::of(pods, &samples, is_cpu, now);
    samples.retain(|pod, _| !groups.ignored.contains(&&**pod) && !groups.unready.contains(&&**pod));
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let Measured { ratio, utilization, usage } = target.measure(&samples)?;
    let proposal = |replicas| Ok(Proposal { replicas, utilization, usage });
    let grows_unready = !groups.unready.is_empty() && ratio > 1.0;
    if !grows_unready && groups.missing.is_empty() {
        let wanted = if tolerances.admit(ratio) { current } else { ceil(ratio * groups.ready as f64) };
        return proposal(wanted);
    }
    let mut assume = |pod: &str, value| {
        samples.insert(pod.to_owned(), Sample { value, at: now, window: SignedDuration::ZERO });
    };
    for pod in &groups.missing {
        match ratio {
            less if less < 1.0 => assume(pod, target.assumed(pod)),
            more if more > 1.0 => assume(pod, 0),
            _ => {}
        }
    }
    for pod in groups.unready.iter().filter(|_| grows_unready) {
        assume(pod, 0);
    }
    let dampened = target.measure(&samples)?.ratio;
    let turns = ratio < 1.0 && dampened > 1.0 || ratio > 1.0 && dampened < 1.0;
    if tolerances.admit(dampened) || turns {
        return proposal(current);
    }
    let wanted = ceil(dampened * samples.len() as f64);
    let turns = dampened < 1.0 && wanted > current || dampened > 1.0 && wanted < current;
    proposal(if turns { current } else { wanted })
}

/// The replicas that one value for all pods asks for, where `ready` pods are there.
pub(super) fn of_value(
    usage: i64,
    target: i64,
    current: i64,
    ready: i64,
    tolerances: Tolerances,
) -> Proposal {
    let ratio = usage as f64 / target as f64;
    let replicas = match current {
        0 => ceil(ratio),
        current if tolerances.admit(ratio) => current,
        _ => ceil(ratio * ready as f64),
    };
    Proposal { replicas, utilization: None, usage }
}

/// The replicas that a value asks for that is to be so much for each of `current` pods.
pub(super) fn of_average(usage: i64, target: i64, current: i64, tolerances: Tolerances) -> Proposal {
    let wanted = ceil(usage as f64 / target as f64);
    let ratio = usage as f64 / (target as f64 * current as f64);
    let replicas = if tolerances.admit(ratio) { current } else { wanted };
    Proposal { replicas, utilization: None, usage: ceil(usage as f64 / current as f64) }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The next whole number, within what a replica count can be.
fn ceil(number: f64) -> i64 {
    number.ceil().clamp(0.0, f64::from(i32::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 100_000;
    const EVEN: Tolerances = Tolerances { down: 0.1, up: 0.1 };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(NOW + seconds).unwrap()
    }

    /// Pods as words: a name and a state (`r`eady, `u`nready since its start, `p`ending, `d`eleting).
    fn pods(words: &str) -> Vec<Counted> {
        let one = |word: &str| Counted {
            name: word[..1].to_owned(),
            is_ignored: word.ends_with('d'),
            is_pending: word.ends_with('p'),
            is_ready: word.ends_with('r'),
            readiness: Some((word.ends_with('u'), at(if word.ends_with('u') { -1000 } else { -900 }))),
            started: Some(at(-1000)),
        };
        words.split_whitespace().map(one).collect()
    }

    fn samples(values: &[(&str, i64)]) -> Samples {
        let sample = |value| Sample { value, at: at(-10), window: SignedDuration::from_secs(30) };
        values.iter().map(|(pod, value)| ((*pod).to_owned(), sample(*value))).collect()
    }

    fn utilization(percent: i64) -> Target {
        let requests = ["a", "b", "c", "d"].map(|pod| (pod.to_owned(), 1000));
        Target::Utilization { percent, requests: requests.into() }
    }

    #[test]
    fn utilization_asks_for_replicas() {
        for (words, values, percent, expected) in [
            ("ar br cr", vec![("a", 300), ("b", 500), ("c", 700)], 30, 5),
            ("ar br cr", vec![("a", 300), ("b", 500), ("c", 700)], 50, 3),
            ("ar br cr", vec![("a", 310), ("b", 500), ("c", 700)], 48, 3),
            ("ar br cr", vec![("a", 100), ("b", 100), ("c", 100)], 50, 1),
            // One that is not ready counts as idle where more are wanted, and not at all where fewer are.
            ("ar br cu", vec![("a", 600), ("b", 600), ("c", 900)], 30, 4),
            ("ar br cp", vec![("a", 100), ("b", 100)], 50, 1),
            // One without a sample counts as busy where fewer are wanted, and as idle where more are.
            ("ar br cr", vec![("a", 100), ("b", 100)], 50, 3),
            ("ar br cr", vec![("a", 900), ("b", 900)], 50, 4),
            ("ar br cd", vec![("a", 900), ("b", 900), ("c", 900)], 50, 4),
        ] {
            let current = 3;
            let proposal =
                of_pods(&pods(words), samples(&values), &utilization(percent), (current, true), EVEN, at(0));
            assert_eq!(proposal.unwrap().replicas, expected, "{words} {values:?} {percent}");
        }
    }

    #[test]
    fn averages_and_values_ask_for_replicas() {
        let pods = pods("ar br");
        let values = samples(&[("a", 10_000), ("b", 20_000)]);
        let proposal = of_pods(&pods, values, &Target::Average(5_000), (2, false), EVEN, at(0)).unwrap();
        assert_eq!(proposal, Proposal { replicas: 6, utilization: None, usage: 15_000 });
        assert_eq!(of_value(20_000, 10_000, 2, 2, EVEN).replicas, 4);
        assert_eq!(of_value(10_500, 10_000, 2, 2, EVEN).replicas, 2);
        assert_eq!(of_value(20_000, 10_000, 0, 0, EVEN).replicas, 2);
        assert_eq!(
            of_average(30_000, 10_000, 2, EVEN),
            Proposal { replicas: 3, utilization: None, usage: 15_000 }
        );
        assert_eq!(of_average(21_000, 10_000, 2, EVEN).replicas, 2);
    }

    #[test]
    fn nothing_is_proposed_without_samples_or_pods() {
        let target = Target::Average(1);
        let none = of_pods(&[], samples(&[]), &target, (1, true), EVEN, at(0));
        assert!(none.unwrap_err().starts_with("no pods returned by selector"));
        let unready = of_pods(&pods("au"), samples(&[("a", 1)]), &target, (1, true), EVEN, at(0));
        assert!(unready.unwrap_err().starts_with("did not receive metrics"));
        let stranger = of_pods(&pods("xr"), samples(&[("x", 1)]), &utilization(1), (1, true), EVEN, at(0));
        assert_eq!(stranger.unwrap_err(), "no metrics returned matched known pods");
    }
}
