//! Subjects and alternative names of certificates, as a client asks for them.

use freehold_apiserver_authn::{Peer, Request, Roots, certified};
use freehold_machinery::{
    PlaneId,
    reserved::{self, Source},
    user::AUTHENTICATED,
};
use freehold_pki::{Authority, CertificateInfo, CsrInfo, CsrTerms, PlaneBinding, certificates_der};
use freehold_tests_fuzz::Fuzz;
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};
use std::time::Duration;

const WORDS: &[&str] = &[
    "\nCu",
    "\nOu",
    "\nCp",
    "\nOp",
    "\nOb",
    "\nCt",
    "\nUu",
    "\nDu",
    "system:masters",
    "system:freehold:controllers",
    "system:freehold:provisioner",
    "freehold:serviceaccounts",
    "organization:acme:jane",
    "urn:freehold:plane:core",
    "urn:freehold:plane:victim",
    "URN:Freehold:Plane:core",
    "plane:victim",
];
const USAGES: &[&str] = &["client auth", "digital signature"];

/// A request made of lines: `C`ommon name, `O`rganization, `U`RI or `D`NS name; how it is encoded; and its text.
fn request(lines: &[u8], key: &KeyPair) -> Option<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for line in String::from_utf8_lossy(lines).lines().take(16) {
        let mut letters = line.chars();
        let (what, encoding) = (letters.next()?, letters.next()?);
        let text = letters.as_str();
        let value = match encoding {
            // The writer of requests panics at what is no printable string, and at `?`.
            'p' if !text.contains('?') => DnValue::PrintableString(text.try_into().ok()?),
            'b' => DnValue::BmpString(text.try_into().ok()?),
            't' => DnValue::TeletexString(text.try_into().ok()?),
            _ => DnValue::Utf8String(text.to_owned()),
        };
        match what {
            'C' => params.distinguished_name.push(DnType::CommonName, value),
            'O' => params.distinguished_name.push(DnType::OrganizationName, value),
            'U' => params.subject_alt_names.push(SanType::URI(text.try_into().ok()?)),
            'D' => params.subject_alt_names.push(SanType::DnsName(text.try_into().ok()?)),
            _ => {}
        }
    }
    params.serialize_request(key).ok()?.pem().ok()
}

#[test]
fn no_request_of_a_plane_becomes_an_identity_of_the_platform() {
    let key = KeyPair::generate().unwrap();
    let authority = Authority::generate("ca").unwrap();
    let roots = Roots::new(authority.cert_pem(), []).unwrap();
    let own: PlaneId = "own".parse().unwrap();
    let now = jiff::Timestamp::now().as_second();
    let seeds = [
        "Cujane\nOudevs\nDua.example",
        "Cpsystem:kube-scheduler\nOpsystem:freehold:controllers",
        "Cujane\nCusystem:freehold:provisioner\nUuurn:freehold:plane:core",
        "Cbplane:own\nObsystem:masters\nOtsystem:masters",
    ];
    let seeds = seeds.map(|seed| seed.as_bytes().to_vec());
    Fuzz::new("subjects of certificates", seeds, 1_500).words(WORDS).run(|lines| {
        let Some(request) = request(lines, &key) else { return "no request".to_owned() };
        let info = match CsrInfo::parse(request.as_bytes()) {
            Ok(info) => info,
            Err(why) => return why.to_string(),
        };
        let checked = reserved::check(Source::Certificate, &info.common_name, &info.organizations, []);
        let plane = Some(PlaneBinding { plane: own.as_str(), generation: 0 });
        let terms = CsrTerms { usages: USAGES, validity: Duration::from_secs(60), plane };
        let pem = match authority.sign_csr(request.as_bytes(), &terms) {
            Ok(pem) => pem,
            Err(why) => return why.to_string(),
        };
        // Also where nobody had looked at the names.
        let der = certificates_der(&pem).unwrap();
        assert_eq!(CertificateInfo::parse(&der[0]).unwrap().planes(), [own.as_str()]);
        let peer = Peer::parse(&der, &roots).unwrap();
        let headers: Vec<(String, String)> = Vec::new();
        let at = |plane: &PlaneId| certified(&Request { plane, peer: Some(&peer), headers: &headers, now });
        assert!(info.common_name.is_empty() || at(&PlaneId::core()).is_err());
        let Some(user) = at(&own).unwrap() else { return "nobody".to_owned() };
        assert!(user.plane == Some(own.clone()) && !reserved::is_component(&user), "{user:?}");
        // What was checked is what the certificate says.
        let groups: Vec<&String> = user.groups.iter().filter(|group| *group != AUTHENTICATED).collect();
        let said = info.organizations.iter().filter(|group| *group != AUTHENTICATED);
        assert_eq!((&user.name, groups), (&info.common_name, said.collect()));
        format!("signed {}", checked.is_ok())
    });
}

#[test]
fn certificates_and_requests_of_any_bytes_are_read_or_refused() {
    let key = KeyPair::generate().unwrap();
    let authority = Authority::generate("ca").unwrap();
    let roots = Roots::new(authority.cert_pem(), []).unwrap();
    let request = request(b"Cujane\nOudevs\nUuurn:freehold:plane:core", &key).unwrap();
    let plane = Some(PlaneBinding { plane: "own", generation: 0 });
    let terms = CsrTerms { usages: USAGES, validity: Duration::from_secs(60), plane };
    let signed = certificates_der(&authority.sign_csr(request.as_bytes(), &terms).unwrap()).unwrap();
    Fuzz::new("certificates", [signed[0].clone(), request.into_bytes()], 4_000).words(WORDS).run(|bytes| {
        let asked = CsrInfo::parse(bytes).map(|info| info.organizations.len());
        let peer = Peer::parse(&[bytes], &roots).map(|peer| peer.plane().is_some());
        format!("{:?} {:?}", asked.map_err(|why| why.to_string()), peer.map_err(|status| status.code))
    });
}
