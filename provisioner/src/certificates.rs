//! The certificates and keys of a pair: kept in its Secrets, issued where they are missing or due.
//!
//! A certificate is used until two thirds of its life are over; then a new one is issued, and the Pods that read it are
//! rolled by the checksum that the plan puts on them. It is issued anew, too, when what it should say has changed, or
//! its authority.

use crate::plan::{self, Credentials, KeyPair, server_names};
use freehold_api::keys::aggregator_name;
use freehold_pki::authority::BACKDATE;
use freehold_pki::{
    Authority, CertificateInfo, ClientName, PERMANENT, PlaneBinding, PrivateKey, certificates_der,
    is_issued_by, pair_token_keys,
};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The user as which a pair's controller manager acts, in its plane alone.
pub const CONTROLLER_MANAGER_USER: &str = "system:kube-controller-manager";
/// The user of the administrators' kubeconfig, in its plane alone.
pub const ADMIN_USER: &str = "freehold:control-plane-admin";
/// The group that both are in.
const MASTERS: &str = "system:masters";

/// The user that an apiserver is to etcd. Its certificate is bound to the plane as well.
pub fn etcd_user(plane: &str) -> String {
    format!("plane:{plane}")
}

/// Who signs.
#[derive(Clone)]
pub struct Authorities {
    /// Serving certificates.
    pub serving: Arc<Authority>,
    /// The authorities of planes' clients, which follow from this one.
    pub client: Arc<Authority>,
    /// Certificates for etcd; absent where it is plain HTTP.
    pub etcd: Option<Arc<Authority>>,
    /// Certificates for aggregated servers; absent where apiservers are to have none.
    pub proxy: Option<Arc<Authority>>,
    /// The platform's keys of service account tokens, PEM: the pair's own follows from the first.
    pub token_keys: String,
    /// How long what they sign is valid.
    pub validity: Duration,
}

/// What a certificate should say.
#[derive(Clone, Debug, PartialEq)]
struct CertificateSpec {
    /// Host names, for a serving certificate.
    hosts: Vec<String>,
    user: String,
    groups: Vec<String>,
    /// The plane that a client's certificate is bound to.
    plane: Option<String>,
}

impl CertificateSpec {
    fn serving(plane: &str) -> Self {
        let hosts = server_names(plane);
        Self { user: hosts.first().cloned().unwrap_or_default(), hosts, groups: Vec::new(), plane: None }
    }

    fn client(plane: &str, user: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self { hosts: Vec::new(), user: user.to_owned(), groups, plane: Some(plane.to_owned()) }
    }

    fn issue(&self, authority: &Authority, validity: Duration) -> freehold_pki::Result<KeyPair> {
        let plane = self.plane.as_deref().map(|plane| PlaneBinding { plane, generation: PERMANENT });
        let client = ClientName { user: &self.user, groups: &self.groups, plane };
        let pair = if self.hosts.is_empty() {
            authority.issue_client(&client, validity)
        } else {
            authority.issue_server(&self.hosts, validity)
        }?;
        Ok(KeyPair { cert_pem: pair.cert_pem, key_pem: pair.key_pem })
    }

    /// When the certificate has to be replaced; `None`: now.
    fn due(&self, pair: &KeyPair, authority: &Authority, now: Timestamp) -> Option<Timestamp> {
        let der = certificates_der(&pair.cert_pem).ok()?.into_iter().next()?;
        let authority_der = certificates_der(authority.cert_pem()).ok()?.into_iter().next()?;
        let info = CertificateInfo::parse(&der).ok()?;
        let says = self.is_said_by(&info) && is_issued_by(&der, &authority_der);
        let due = Timestamp::from_second(info.not_after - lifetime(&info) / 3).ok()?;
        (says && now < due && PrivateKey::from_pem(&pair.key_pem).is_ok()).then_some(due)
    }

    fn is_said_by(&self, info: &CertificateInfo) -> bool {
        let hosts: BTreeSet<&String> = self.hosts.iter().collect();
        info.common_name == self.user
            && info.organizations == self.groups
            && info.planes() == self.plane.as_deref().into_iter().collect::<Vec<_>>()
            && info.generation().is_ok_and(|at| at == self.plane.as_ref().map_or(0, |_| PERMANENT))
            && info.names.dns.iter().collect::<BTreeSet<_>>() == hosts
    }
}

/// Seconds for which a certificate was issued: without the time by which its beginning lies before that.
fn lifetime(info: &CertificateInfo) -> i64 {
    let backdate = i64::try_from(BACKDATE.as_secs()).unwrap_or(0);
    let whole = info.not_after - info.not_before;
    if whole > backdate { whole - backdate } else { whole }
}

/// Certificates and keys of a pair, and when the first of them has to be replaced.
#[derive(Debug)]
pub struct Issued {
    /// What there is, as the plan wants it.
    pub credentials: Credentials,
    /// The authority of the plane's clients, PEM.
    pub client_ca_pem: String,
    /// When to look again.
    pub due: Timestamp,
}

/// Collects the credentials of a pair: from its Secrets where they are still valid (`kept` reads certificate and key
/// of one, and the certificate of the authority of the plane's clients without a key), new ones otherwise.
///
/// # Errors
/// An error of [`freehold_pki`] where a certificate cannot be issued.
pub fn credentials(
    plane: &str,
    authorities: &Authorities,
    kept: impl Fn(&str) -> Option<KeyPair>,
    now: Timestamp,
) -> freehold_pki::Result<Issued> {
    let mut due = Timestamp::MAX;
    let mut get =
        |secret: &str, wanted: CertificateSpec, authority: &Authority| -> freehold_pki::Result<KeyPair> {
            let good = kept(secret).and_then(|pair| Some((wanted.due(&pair, authority, now)?, pair)));
            let (until, pair) = match good {
                Some(good) => good,
                None => {
                    let pair = wanted.issue(authority, authorities.validity)?;
                    // One that is due at once (validity of seconds, in tests) is looked at again right away.
                    (wanted.due(&pair, authority, now).unwrap_or(now), pair)
                }
            };
            due = due.min(until);
            Ok(pair)
        };
    let clients = authorities.client.for_plane(plane)?;
    let client = |user: &str| CertificateSpec::client(plane, user, &[MASTERS]);
    let serving = get(plan::SERVING_SECRET, CertificateSpec::serving(plane), &authorities.serving)?;
    let controller_manager = get(plan::CONTROLLER_MANAGER_SECRET, client(CONTROLLER_MANAGER_USER), &clients)?;
    let admin = get(plan::ADMIN_SECRET, client(ADMIN_USER), &clients)?;
    let etcd = match &authorities.etcd {
        Some(authority) => {
            let wanted = CertificateSpec::client(plane, &etcd_user(plane), &[]);
            Some(get(plan::ETCD_SECRET, wanted, authority)?)
        }
        None => None,
    };
    let proxy = match &authorities.proxy {
        // Its name says which plane it is for, because the servers that it is shown to read nothing else.
        Some(authority) => {
            let wanted = CertificateSpec {
                plane: None,
                ..CertificateSpec::client(plane, &aggregator_name(plane), &[])
            };
            Some(get(plan::PROXY_SECRET, wanted, authority)?)
        }
        None => None,
    };
    // One that was made before is as good, and rolls no Pod.
    let kept_ca = kept(plan::TRUST_SECRET).map(|kept| kept.cert_pem).filter(|pem| clients.is(pem));
    let client_ca_pem = match kept_ca {
        Some(kept) => kept,
        None => authorities.client.root_for_plane(plane)?,
    };
    let service_account_keys_pem = pair_token_keys(&authorities.token_keys, plane)?;
    Ok(Issued {
        credentials: Credentials {
            serving,
            etcd,
            proxy,
            controller_manager,
            admin,
            service_account_keys_pem,
        },
        client_ca_pem,
        due,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const DAY: Duration = Duration::from_secs(86_400);

    fn authorities() -> Authorities {
        let authority = || Arc::new(Authority::generate("ca").unwrap());
        Authorities {
            serving: authority(),
            client: authority(),
            etcd: Some(authority()),
            proxy: Some(authority()),
            token_keys: PrivateKey::generate().unwrap().pem().to_owned(),
            validity: 90 * DAY,
        }
    }

    fn kept(credentials: &Credentials) -> HashMap<&'static str, KeyPair> {
        HashMap::from([
            (plan::SERVING_SECRET, credentials.serving.clone()),
            (plan::CONTROLLER_MANAGER_SECRET, credentials.controller_manager.clone()),
            (plan::ADMIN_SECRET, credentials.admin.clone()),
            (plan::ETCD_SECRET, credentials.etcd.clone().unwrap()),
            (plan::PROXY_SECRET, credentials.proxy.clone().unwrap()),
        ])
    }

    fn get(authorities: &Authorities, kept: &HashMap<&'static str, KeyPair>, now: Timestamp) -> Issued {
        credentials("a", authorities, |name| kept.get(name).cloned(), now).unwrap()
    }

    #[test]
    fn certificates_are_kept_for_two_thirds_of_their_life() {
        let authorities = authorities();
        let now = Timestamp::now();
        let first = get(&authorities, &HashMap::new(), now);
        let days = (first.due.as_second() - now.as_second()) / 86_400;
        assert!((59..=60).contains(&days), "{days}");
        let before =
            get(&authorities, &kept(&first.credentials), first.due - jiff::SignedDuration::from_secs(60));
        assert_eq!(before.credentials, first.credentials);
        let after =
            get(&authorities, &kept(&first.credentials), first.due + jiff::SignedDuration::from_secs(60));
        assert_ne!(after.credentials.serving, first.credentials.serving);
    }

    #[test]
    fn a_certificate_that_lives_for_a_minute_is_kept_for_two_thirds_of_it() {
        let authorities = Authorities { validity: Duration::from_secs(60), ..authorities() };
        let now = Timestamp::now();
        let first = get(&authorities, &HashMap::new(), now);
        let left = first.due.as_second() - now.as_second();
        assert!((38..=40).contains(&left), "{left}");
        assert_eq!(get(&authorities, &kept(&first.credentials), now).credentials, first.credentials);
    }

    #[test]
    fn another_authority_name_or_a_broken_key_means_a_new_certificate() {
        let own = authorities();
        let now = Timestamp::now();
        let first = get(&own, &HashMap::new(), now).credentials;
        let mut broken = kept(&first);
        broken.insert(plan::ADMIN_SECRET, KeyPair { key_pem: "?".into(), ..first.admin.clone() });
        broken.insert(plan::CONTROLLER_MANAGER_SECRET, first.admin.clone());
        let again = get(&own, &broken, now).credentials;
        assert_eq!((&again.serving, &again.etcd), (&first.serving, &first.etcd));
        assert_ne!(again.admin, first.admin);
        assert_ne!(again.controller_manager, first.admin);
        let other = Authorities { serving: Arc::new(Authority::generate("ca").unwrap()), ..own };
        assert_ne!(get(&other, &kept(&first), now).credentials.serving, first.serving);
    }

    #[test]
    fn no_pair_has_the_platforms_token_key_or_that_of_another() {
        let authorities = authorities();
        let keys = |plane: &str| {
            let issued = credentials(plane, &authorities, |_| None, Timestamp::now()).unwrap();
            PrivateKey::all_from_pem(&issued.credentials.service_account_keys_pem).unwrap()
        };
        let (a, b) = (keys("a"), keys("b"));
        assert_eq!((a.len(), b.len()), (1, 1));
        assert_ne!(a[0].pem(), b[0].pem());
        assert_ne!(a[0].pem(), authorities.token_keys);
        assert_eq!(keys("a")[0].pem(), a[0].pem(), "it rolls no Pod");
    }

    #[test]
    fn clients_are_bound_to_their_plane() {
        let credentials = get(&authorities(), &HashMap::new(), Timestamp::now()).credentials;
        let rows = [
            (&credentials.controller_manager, CONTROLLER_MANAGER_USER.to_owned()),
            (&credentials.admin, ADMIN_USER.to_owned()),
            (credentials.etcd.as_ref().unwrap(), etcd_user("a")),
        ];
        for (pair, user) in rows {
            let info = CertificateInfo::parse(&certificates_der(&pair.cert_pem).unwrap()[0]).unwrap();
            assert_eq!((info.common_name.as_str(), info.planes()), (user.as_str(), vec!["a"]));
        }
    }
}
