//! Certificates are read back with another library than wrote them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use base64::{Engine, engine::general_purpose::STANDARD};
use freehold_pki::{
    Authority, CertificateInfo, ClientName, Credentials, CsrInfo, CsrTerms, Error, KubeconfigParams, Pair,
    PlaneBinding, PrivateKey, certificates_der, csr, is_issued_by, kubeconfig, not_after, usage,
    write_private,
};
use std::{os::unix::fs::PermissionsExt, time::Duration};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn der(pem: &str) -> Vec<u8> {
    certificates_der(pem).unwrap().remove(0)
}

fn info(pem: &str) -> CertificateInfo {
    CertificateInfo::parse(&der(pem)).unwrap()
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn a_client_certificate_names_user_groups_and_plane() {
    let authority = Authority::generate("clients").unwrap();
    let rows: [(&str, &[&str], Option<&str>); 4] = [
        ("jane", &[], None),
        ("jane", &["dev"], Some("4b9c")),
        ("system:kube-controller-manager", &["z", "a", "system:masters", "a"], None),
        ("jürgen", &["größe, O=x", "+,\"\\<>;"], Some("core")),
    ];
    for (user, groups, plane) in rows {
        let groups = strings(groups);
        let bound = plane.map(|plane| PlaneBinding { plane, generation: groups.len() as u64 });
        let pair = authority.issue_client(&ClientName { user, groups: &groups, plane: bound }, DAY).unwrap();
        let read = info(&pair.cert_pem);
        assert_eq!(read.generation().unwrap(), bound.map_or(0, |bound| bound.generation));
        assert_eq!((read.common_name.as_str(), &read.organizations), (user, &groups));
        assert_eq!(read.planes(), plane.into_iter().collect::<Vec<_>>());
        assert!(read.client_auth && !read.is_ca);
        assert!(is_issued_by(&der(&pair.cert_pem), &der(authority.cert_pem())));
        PrivateKey::from_pem(&pair.key_pem).unwrap();
    }
}

#[test]
fn a_serving_certificate_has_names_and_no_client_auth() {
    let authority = Authority::generate("servers").unwrap();
    let names = ["api.example", "*.planes.example", "127.0.0.1", "::1"];
    let read = info(&authority.issue_server(&names, DAY).unwrap().cert_pem);
    assert_eq!(read.names.dns, ["api.example", "*.planes.example"]);
    assert_eq!(read.names.ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.1", "::1"]);
    assert!(!read.client_auth);
    let client = ClientName { user: "system:freehold:front-proxy", ..ClientName::default() };
    let both = info(&authority.issue_peer(&client, &names, DAY).unwrap().cert_pem);
    assert_eq!((both.common_name.as_str(), both.names.dns.len(), both.client_auth), (client.user, 2, true));
}

#[test]
fn names_that_can_not_stand_in_a_certificate_are_refused() {
    let authority = Authority::generate("ca").unwrap();
    for user in ["", "a\0b"] {
        assert!(matches!(
            authority.issue_client(&ClientName { user, ..ClientName::default() }, DAY),
            Err(Error::Name(_))
        ));
    }
    for host in ["", "with space", "ümlaut.example"] {
        assert!(matches!(authority.issue_server(&["ok", host], DAY), Err(Error::Name(_))), "{host:?}");
    }
}

#[test]
fn an_authority_survives_its_pem_form() {
    let first = Authority::generate("ca").unwrap();
    let second = Authority::from_pem(first.cert_pem(), first.key_pem()).unwrap();
    let pair = second.issue_client(&ClientName { user: "jane", ..ClientName::default() }, DAY).unwrap();
    assert!(is_issued_by(&der(&pair.cert_pem), &der(first.cert_pem())));
    let other = Authority::generate("ca").unwrap();
    assert!(
        !is_issued_by(&der(&pair.cert_pem), &der(other.cert_pem())),
        "an authority of the same name is another"
    );
    assert!(matches!(Authority::from_pem(first.cert_pem(), other.key_pem()), Err(Error::Mismatch)));
    assert!(matches!(Authority::from_pem("", first.key_pem()), Err(Error::NotPem(_))));
}

/// Keys and a certificate made with OpenSSL: P-384 in SEC 1 form and RSA in PKCS#8 form.
#[test]
fn an_authority_that_is_brought_along_signs() {
    for (cert, key) in [
        (include_str!("data/p384.crt"), include_str!("data/p384.key")),
        (include_str!("data/rsa.crt"), include_str!("data/rsa.key")),
    ] {
        let authority = Authority::from_pem(cert, key).unwrap();
        let pair =
            authority.issue_client(&ClientName { user: "jane", ..ClientName::default() }, DAY).unwrap();
        assert!(is_issued_by(&der(&pair.cert_pem), &der(cert)));
    }
}

#[test]
fn a_certificate_does_not_outlive_its_authority() {
    let authority = Authority::generate("ca").unwrap();
    let client = ClientName { user: "jane", ..ClientName::default() };
    let long = authority.issue_client(&client, 100 * 365 * DAY).unwrap();
    assert_eq!(not_after(&long.cert_pem).unwrap(), not_after(authority.cert_pem()).unwrap());
    let short = info(&authority.issue_client(&client, DAY).unwrap().cert_pem);
    assert_eq!(short.not_after - short.not_before, 24 * 3600 + 300);
}

#[test]
fn a_signed_request_keeps_its_subject_and_names() {
    let authority = Authority::generate("ca").unwrap();
    let key = PrivateKey::generate().unwrap();
    let groups = strings(&["b", "a", "c"]);
    let client = ClientName { user: "jane", groups: &groups, plane: None };
    let request = csr::request(&key, &client, &["a.example", "10.0.0.1"]).unwrap();
    let asked = CsrInfo::parse(request.as_bytes()).unwrap();
    assert_eq!((asked.common_name.as_str(), &asked.organizations), ("jane", &groups));
    let terms = CsrTerms {
        usages: &["digital signature", "client auth"],
        validity: DAY,
        plane: Some(PlaneBinding { plane: "p1", generation: 0 }),
    };
    let read = info(&authority.sign_csr(request.as_bytes(), &terms).unwrap());
    assert_eq!((read.common_name.as_str(), &read.organizations), ("jane", &groups));
    assert_eq!((&read.names.dns, &read.names.ips), (&asked.names.dns, &asked.names.ips));
    assert_eq!(read.planes(), ["p1"]);
    let unknown = CsrTerms { usages: &["world domination"], validity: DAY, plane: None };
    assert!(matches!(authority.sign_csr(request.as_bytes(), &unknown), Err(Error::Usage(_))));
}

/// The request was made with OpenSSL: its three organizations stand before and after the common name.
#[test]
fn a_request_of_another_tool_is_signed() {
    let authority = Authority::generate("ca").unwrap();
    let terms = CsrTerms { usages: usage::CLIENT, validity: DAY, plane: None };
    let read = info(&authority.sign_csr(include_bytes!("data/three-groups.csr"), &terms).unwrap());
    assert_eq!(
        (read.common_name.as_str(), read.organizations),
        ("openssl-user", strings(&["one", "two", "three"]))
    );
}

#[test]
fn a_request_that_was_tampered_with_is_refused() {
    let authority = Authority::generate("ca").unwrap();
    let key = PrivateKey::generate().unwrap();
    let request =
        csr::request(&key, &ClientName { user: "jane", ..ClientName::default() }, &[] as &[&str]).unwrap();
    let body: String = request.lines().filter(|line| !line.starts_with('-')).collect();
    let mut der = STANDARD.decode(body).unwrap();
    let terms = CsrTerms { usages: usage::CLIENT, validity: DAY, plane: None };
    authority.sign_csr(&der, &terms).unwrap();
    let at = der.windows(4).position(|w| w == b"jane").unwrap();
    der[at..at + 4].copy_from_slice(b"root");
    assert!(matches!(authority.sign_csr(&der, &terms), Err(Error::Signature(_))));
    for garbage in [&b""[..], b"0\x82", b"-----BEGIN CERTIFICATE REQUEST-----", &[0x30; 70_000]] {
        assert!(authority.sign_csr(garbage, &terms).is_err());
    }
}

#[test]
fn a_kubeconfig_is_yaml_that_says_what_it_was_told() {
    let pair = Pair { cert_pem: "CERT".into(), key_pem: "KEY".into() };
    let certificate = Credentials::ClientCert { cert_pem: &pair.cert_pem, key_pem: &pair.key_pem };
    let rows = [
        (certificate, serde_json::json!({"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"})),
        (Credentials::Token("a\"b\\c"), serde_json::json!({"token": "a\"b\\c"})),
        (Credentials::TokenFile("/run/token"), serde_json::json!({"tokenFile": "/run/token"})),
    ];
    for (user, expected) in rows {
        let params = KubeconfigParams {
            tls_server_name: "",
            name: "acme: \"x\"\n#",
            server: "https://h:6443/projects/p",
            ca_pem: "CA",
            user,
            namespace: "",
        };
        let read: serde_json::Value = serde_saphyr::from_str(&kubeconfig(&params)).unwrap();
        assert_eq!(read["users"][0]["user"], expected);
        assert_eq!(read["current-context"], params.name);
        assert_eq!(read["contexts"][0]["context"]["namespace"], "default");
        let cluster = &read["clusters"][0]["cluster"];
        assert_eq!(
            (cluster["server"].as_str(), cluster["certificate-authority-data"].as_str()),
            (Some(params.server), Some("Q0E="))
        );
    }
}

#[test]
fn private_files_are_replaced_whole_and_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key.pem");
    std::fs::write(&path, "old").unwrap();
    write_private(&path, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn secrets_do_not_reach_debug_output() {
    let authority = Authority::generate("ca").unwrap();
    let pair = authority.issue_client(&ClientName { user: "jane", ..ClientName::default() }, DAY).unwrap();
    let shown = format!("{authority:?} {pair:?} {:?}", Credentials::Token("secret"));
    assert!(!shown.contains("PRIVATE KEY") && !shown.contains("secret"));
}
