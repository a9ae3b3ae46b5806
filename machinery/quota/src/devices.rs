//! Claims for devices: what one counts by the classes of its devices, and under the names that classes have as extended
//! resources (KEP-5004).

use crate::{
    json::{items, text},
    usage::{self, Usage},
};
use freehold_machinery::{
    GroupResource, Value, meta,
    quantity::{Format, Quantity},
    time,
};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The type of claims, as quotas name it.
pub(crate) const CLAIMS: &str = "resourceclaims.resource.k8s.io";
/// What names of limits for one class end with.
pub(crate) const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// What stands for a device class among extended resources.
const AS_EXTENDED: &str = "deviceclass.resource.kubernetes.io/";
/// On the claim that a scheduler made for the extended resources of a Pod.
const MADE_FOR_POD: &str = "resource.kubernetes.io/extended-resource-claim";
/// As many devices as one claim may get: what counts where it asks for all.
const MOST_DEVICES: i64 = 32;

/// Whether a resource is one that vendors name, or that stands for a device class.
pub(crate) fn is_extended(resource: &str) -> bool {
    resource.contains('/') && (!resource.contains("kubernetes.io/") || resource.starts_with(AS_EXTENDED))
}

/// Whether a quota's limit of this name is of an extended resource.
pub fn limits_extended(name: &str) -> bool {
    name.strip_prefix("requests.").is_some_and(is_extended)
}

pub(crate) fn are_claimed_by(resource: &GroupResource) -> bool {
    resource.group == "resource.k8s.io" && resource.resource == "resourceclaims"
}

/// Name and uid of the Pod for whose extended resources a claim was made.
pub fn made_for(claim: &Value) -> Option<(&str, &str)> {
    let made = meta::annotation(claim, MADE_FOR_POD) == Some("true");
    let owner = items(claim, "/metadata/ownerReferences").find(|owner| owner["controller"] == true)?;
    let is_pod = text(owner, "/kind") == "Pod" && text(owner, "/apiVersion") == "v1";
    (made && is_pod).then(|| (text(owner, "/name"), text(owner, "/uid")))
}

/// Whether what an object uses of extended resources may be what another uses, too: it is a claim made for a Pod, or such a Pod.
pub fn is_shared(resource: &GroupResource, object: &Value) -> bool {
    let of_pod = resource.group.is_empty() && resource.resource == "pods";
    (of_pod && object.pointer("/status/extendedResourceClaimStatus").is_some_and(|status| !status.is_null()))
        || (are_claimed_by(resource) && made_for(object).is_some())
}

/// What decides what an object uses besides itself.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The time of day.
    pub(crate) now: Timestamp,
    /// The extended resource of each class that has one.
    extended: BTreeMap<String, String>,
    /// What the Pod uses that a claim was made for, by the claim's name.
    counted: BTreeMap<String, Usage>,
}

impl Surroundings {
    /// At a time; enough for all but claims for devices.
    pub fn at(now: Timestamp) -> Self {
        Self { now, extended: BTreeMap::new(), counted: BTreeMap::new() }
    }

    /// With the DeviceClasses of a plane, and of a namespace its ResourceClaims and the Pods that they were made for.
    pub fn with_devices(mut self, classes: &[Value], claims: &[Value], pods: &[Value]) -> Self {
        let name = |class: &Value| {
            let extended = Some(text(class, "/spec/extendedResourceName")).filter(|name| !name.is_empty())?;
            Some((meta::name(class).to_owned(), extended.to_owned()))
        };
        self.extended = classes.iter().filter_map(name).collect();
        let mut made: BTreeMap<&str, BTreeSet<(Timestamp, &str)>> = BTreeMap::new();
        for (claim, (_, pod)) in claims.iter().filter_map(|claim| Some((claim, made_for(claim)?))) {
            let created = time::parse(text(claim, "/metadata/creationTimestamp")).unwrap_or(Timestamp::MAX);
            made.entry(pod).or_default().insert((created, meta::name(claim)));
        }
        let told = "/status/extendedResourceClaimStatus/resourceClaimName";
        for pod in pods {
            // A Pod has one such claim: the one that it names, or as long as it names none the first.
            let (made, named) = (made.get(meta::uid(pod)), text(pod, told));
            let mut claims = made.into_iter().flatten().map(|(_, claim)| *claim);
            let claim = claims.find(|claim| named.is_empty() || *claim == named);
            self.counted.extend(claim.map(|claim| (claim.to_owned(), usage::pod(pod, self.now))));
        }
        self
    }

    /// What a claim counts of devices. Under the names of extended resources it is what its Pod does not count already.
    pub(crate) fn devices(&self, claim: &Value) -> Usage {
        let devices = by_class(claim);
        let mut extended = Usage::new();
        for (class, amount) in &devices {
            let names = [Some(format!("requests.{AS_EXTENDED}{class}")), self.extended_limit(class)];
            for name in names.into_iter().flatten() {
                extended.entry(name).and_modify(|sum| *sum = sum.plus(amount)).or_insert(*amount);
            }
        }
        let counted = made_for(claim).and_then(|_| self.counted.get(meta::name(claim)));
        for (name, amount) in counted.into_iter().flatten() {
            extended.entry(name.clone()).and_modify(|own| *own = own.minus(amount));
        }
        extended.retain(|_, amount| amount.sign() > 0);
        extended
            .extend(devices.into_iter().map(|(class, amount)| (format!("{class}{OF_DEVICE_CLASS}"), amount)));
        extended
    }

    fn extended_limit(&self, class: &str) -> Option<String> {
        Some(format!("requests.{}", self.extended.get(class)?))
    }
}

/// The devices that a claim may get of each class: of several choices the one that takes most.
fn by_class(claim: &Value) -> BTreeMap<&str, Quantity> {
    let mut all = BTreeMap::new();
    for request in items(claim, "/spec/devices/requests") {
        let mut most: BTreeMap<&str, i64> = BTreeMap::new();
        for choice in items(request, "/firstAvailable").chain(request.get("exactly")) {
            let devices = match text(choice, "/allocationMode") {
                "ExactCount" => choice["count"].as_i64().unwrap_or(0),
                "All" => MOST_DEVICES,
                _ => 0,
            };
            let known = most.entry(text(choice, "/deviceClassName")).or_default();
            *known = devices.max(*known);
        }
        for (class, devices) in most {
            let devices = Quantity::from_units(devices, Format::DecimalSi);
            all.entry(class).and_modify(|sum: &mut Quantity| *sum = sum.plus(&devices)).or_insert(devices);
        }
    }
    all
}
