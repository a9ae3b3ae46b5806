//! How fast a target may be scaled: limits of replicas, rates and stabilization
//! (<https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#configurable-scaling-behavior>).

use freehold_controllers_context::object::{int, items, text};
use freehold_machinery::Value;
use jiff::{SignedDuration, Timestamp};

/// How long the highest recommendation counts where no behaviour says so, in seconds.
const DOWNSCALE_WINDOW: i64 = 5 * 60;
/// Recommendations and changes that are remembered of a target.
const MAX_KEPT: usize = 1000;

/// What was recommended and done for a target lately.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    recommendations: Vec<(Timestamp, i64)>,
    ups: Vec<(Timestamp, i64)>,
    downs: Vec<(Timestamp, i64)>,
}

/// The range that an autoscaler keeps to, and what is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) least: i64,
    pub(super) most: i64,
    pub(super) current: i64,
}

/// A condition: its status, reason and message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Said {
    pub(super) status: bool,
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

/// How many replicas are to be, and the conditions `AbleToScale` and `ScalingLimited`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limited {
    pub(super) replicas: i64,
    pub(super) able: Said,
    pub(super) limited: Said,
}

const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const STEADY: Said =
    Said { status: true, reason: "ReadyForNewScale", message: "recommended size matches current size" };
const HIGHER: &str =
    "recent recommendations were higher than current one, applying the highest recent recommendation";
const LOWER: &str =
    "recent recommendations were lower than current one, applying the lowest recent recommendation";

impl History {
    /// Notes what is there when a target is seen first.
    pub(super) fn begin(&mut self, current: i64, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// Limits a recommendation by an autoscaler's `spec.behavior`, which may be null, and notes it.
    pub(super) fn limit(&mut self, wanted: i64, range: Range, behavior: &Value, now: Timestamp) -> Limited {
        let (stable, reason, message) = match behavior.is_object() {
            true => self.stabilize(wanted, range.current, behavior, now),
            false => (self.highest(wanted, DOWNSCALE_WINDOW, now), "ScaleDownStabilized", HIGHER),
        };
        let longest = window(behavior, "scaleUp", 0).max(window(behavior, "scaleDown", DOWNSCALE_WINDOW));
        retain(&mut self.recommendations, longest, now);
        self.recommendations.push((now, wanted));
        let able = if stable == wanted { STEADY } else { Said { status: true, reason, message } };
        let (replicas, (reason, message)) = match behavior.is_object() {
            true => self.by_rates(stable, range, behavior, now),
            false => by_rules(stable, range),
        };
        Limited { replicas, able, limited: Said { status: replicas != stable, reason, message } }
    }

    /// Notes a change of a target.
    pub(super) fn scaled(&mut self, from: i64, to: i64, behavior: &Value, now: Timestamp) {
        if !behavior.is_object() {
            return;
        }
        let (events, direction) =
            if to > from { (&mut self.ups, "scaleUp") } else { (&mut self.downs, "scaleDown") };
        let periods =
            items(&behavior[direction], "/policies").iter().map(|p| int(p, "/periodSeconds").unwrap_or(0));
        retain(events, periods.max().unwrap_or(0), now);
        events.push((now, (to - from).abs()));
    }

    fn since(&self, seconds: i64, now: Timestamp) -> impl Iterator<Item = i64> {
        let cutoff = now - SignedDuration::from_secs(seconds);
        self.recommendations.iter().filter(move |(at, _)| *at > cutoff).map(|(_, wanted)| *wanted)
    }

    fn highest(&self, wanted: i64, seconds: i64, now: Timestamp) -> i64 {
        self.since(seconds, now).fold(wanted, i64::max)
    }

    /// Brings a recommendation between the lowest one that counts for more replicas and the highest one for fewer.
    fn stabilize(
        &self,
        wanted: i64,
        current: i64,
        behavior: &Value,
        now: Timestamp,
    ) -> (i64, &'static str, &'static str) {
        let up = self.since(window(behavior, "scaleUp", 0), now).fold(wanted, i64::min);
        let down = self.highest(wanted, window(behavior, "scaleDown", DOWNSCALE_WINDOW), now);
        let (reason, message) =
            if wanted >= current { ("ScaleUpStabilized", LOWER) } else { ("ScaleDownStabilized", HIGHER) };
        (current.max(up).min(down), reason, message)
    }

    /// Limits by the rates of a behaviour.
    fn by_rates(
        &self,
        wanted: i64,
        range: Range,
        behavior: &Value,
        now: Timestamp,
    ) -> (i64, (&'static str, &'static str)) {
        let Range { least, most, current } = range;
        if wanted > current {
            let limit = self.rate_limit(current, &behavior["scaleUp"], true, now).max(current);
            let (bound, why) = if most > limit { (limit, UP_LIMIT) } else { (most, TOO_MANY) };
            return if wanted > bound { (bound, why) } else { (wanted, WITHIN) };
        }
        if wanted < current {
            let limit = self.rate_limit(current, &behavior["scaleDown"], false, now).min(current);
            let (bound, why) = if least < limit { (limit, DOWN_LIMIT) } else { (least, TOO_FEW) };
            return if wanted < bound { (bound, why) } else { (wanted, WITHIN) };
        }
        (wanted, WITHIN)
    }

    /// How many replicas the policies of one direction allow.
    fn rate_limit(&self, current: i64, rules: &Value, up: bool, now: Timestamp) -> i64 {
        let select = text(rules, "/selectPolicy");
        if select == "Disabled" {
            return current;
        }
        let changed = |events: &[(Timestamp, i64)], seconds: i64| {
            let cutoff = now - SignedDuration::from_secs(seconds);
            events.iter().filter(|(at, _)| *at > cutoff).map(|(_, change)| change).sum::<i64>()
        };
        let proposed = items(rules, "/policies").iter().map(|policy| {
            let (value, period) =
                (int(policy, "/value").unwrap_or(0), int(policy, "/periodSeconds").unwrap_or(0));
            let start = current - changed(&self.ups, period) + changed(&self.downs, period);
            match (text(policy, "/type") == "Pods", up) {
                (true, true) => start + value,
                (true, false) => start - value,
                (false, true) => (start as f64 * (1.0 + value as f64 / 100.0)).ceil() as i64,
                (false, false) => (start as f64 * (1.0 - value as f64 / 100.0)) as i64,
            }
        });
        // The largest change, or the smallest one.
        let largest_number = up == (select != "Min");
        let chosen = if largest_number { proposed.max() } else { proposed.min() };
        chosen.unwrap_or(if up { i64::MAX } else { i64::MIN })
    }
}

/// Limits where no behaviour says how fast: at most twice as many, or four, at once.
fn by_rules(wanted: i64, range: Range) -> (i64, (&'static str, &'static str)) {
    let limit = (range.current * 2).max(4);
    let (bound, why) = if range.most > limit { (limit, UP_LIMIT) } else { (range.most, TOO_MANY) };
    match wanted {
        few if few < range.least => (range.least, TOO_FEW),
        many if many > bound => (bound, why),
        wanted => (wanted, WITHIN),
    }
}

/// The stabilization window of a direction, in seconds.
fn window(behavior: &Value, direction: &str, default: i64) -> i64 {
    int(behavior, &format!("/{direction}/stabilizationWindowSeconds")).unwrap_or(default)
}

fn retain(events: &mut Vec<(Timestamp, i64)>, seconds: i64, now: Timestamp) {
    let cutoff = now - SignedDuration::from_secs(seconds);
    events.retain(|(at, _)| *at > cutoff);
    if events.len() >= MAX_KEPT {
        events.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(10_000 + seconds).unwrap()
    }

    fn limited(
        history: &mut History,
        wanted: i64,
        current: i64,
        behavior: &Value,
        second: i64,
    ) -> (i64, &'static str) {
        let range = Range { least: 2, most: 20, current };
        let limited = history.limit(wanted, range, behavior, at(second));
        (limited.replicas, limited.limited.reason)
    }

    #[test]
    fn without_a_behaviour_growth_doubles_and_shrinking_waits() {
        let (mut history, none) = (History::default(), Value::Null);
        history.begin(3, at(0));
        assert_eq!(limited(&mut history, 1, 3, &none, 1), (3, "DesiredWithinRange"), "3 was wanted just now");
        assert_eq!(limited(&mut history, 10, 3, &none, 15), (6, "ScaleUpLimit"));
        assert_eq!(limited(&mut history, 30, 12, &none, 20), (20, "TooManyReplicas"));
        assert_eq!(limited(&mut history, 1, 20, &none, 400), (2, "TooFewReplicas"), "nothing else is recent");
    }

    #[test]
    fn rates_count_what_was_done_in_their_period() {
        let behavior = json!({
            "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 100, "periodSeconds": 60},
            ]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": [
                {"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60},
            ]},
        });
        let mut history = History::default();
        assert_eq!(limited(&mut history, 19, 3, &behavior, 0), (7, "ScaleUpLimit"));
        history.scaled(3, 7, &behavior, at(0));
        assert_eq!(
            limited(&mut history, 19, 7, &behavior, 10),
            (7, "ScaleUpLimit"),
            "4 of the minute are used"
        );
        assert_eq!(limited(&mut history, 19, 7, &behavior, 70), (14, "ScaleUpLimit"), "double");
        assert_eq!(limited(&mut history, 2, 7, &behavior, 100), (6, "ScaleDownLimit"));
        let disabled =
            json!({"scaleUp": {"selectPolicy": "Disabled"}, "scaleDown": {"selectPolicy": "Disabled"}});
        assert_eq!(limited(&mut History::default(), 19, 7, &disabled, 0), (7, "ScaleUpLimit"));
    }

    #[test]
    fn windows_stabilize_in_both_directions() {
        let behavior = json!({
            "scaleUp": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 50, "periodSeconds": 1}]},
            "scaleDown": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 50, "periodSeconds": 1}]},
        });
        let mut history = History::default();
        history.begin(5, at(0));
        assert_eq!(limited(&mut history, 9, 5, &behavior, 10).0, 5, "the lowest of the window counts");
        assert_eq!(limited(&mut history, 9, 5, &behavior, 65).0, 9);
        assert_eq!(limited(&mut history, 3, 9, &behavior, 70).0, 9, "the highest of the window counts");
        assert_eq!(limited(&mut history, 3, 9, &behavior, 200).0, 3);
    }
}
