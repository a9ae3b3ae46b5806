//! The kubeconfig that the project controller keeps in a Secret, where members of the organization can write too. Nothing of
//! it is passed on as it stands: its parts are read, each is checked, and a kubeconfig is made from them.

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_api::{keys, urls::project_path};
use freehold_client::{Config, Identity};
use freehold_machinery::{Value, meta, user::MASTERS};
use freehold_pki::{
    CertificateInfo, Credentials, KubeconfigParams, PrivateKey, certificates_der, kubeconfig,
};
use serde::Deserialize;

/// All that the controller writes, and nothing besides: whatever else stands there fails.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
struct Written {
    apiVersion: String,
    kind: String,
    clusters: [Named; 1],
    users: [Named; 1],
    contexts: [Named; 1],
    #[serde(rename = "current-context")]
    current: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    cluster: Option<Cluster>,
    user: Option<User>,
    context: Option<Refers>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Cluster {
    server: String,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct User {
    client_certificate_data: String,
    client_key_data: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refers {
    cluster: String,
    user: String,
    #[serde(default, rename = "namespace")]
    _namespace: String,
}

/// What a project's admin signs in with.
pub(crate) struct Masters {
    name: String,
    server: String,
    ca_pem: String,
    cert_pem: String,
    key_pem: String,
}

fn pem(data: &str) -> Result<String> {
    Ok(String::from_utf8(BASE64_STANDARD.decode(data)?)?)
}

/// `https://HOST[:PORT]` of a URL.
fn authority(url: &str) -> Option<&str> {
    url.strip_prefix("https://")?.split('/').next()
}

impl Masters {
    /// What the Secret of a project says. `caller` is who asks: where the server is the same, its certificate is checked as
    /// the caller does.
    ///
    /// # Errors
    /// The Secret says anything that the controller did not write, or is for another project or server.
    pub(crate) fn read(project: &Value, secret: &Value, caller: &Config) -> Result<Self> {
        let name = meta::name(project);
        let data = secret["data"][keys::KUBECONFIG_KEY].as_str().context("there is no kubeconfig in it")?;
        let written: Written = freehold_client::kubeconfig_as(&pem(data)?)?;
        ensure!(written.apiVersion == "v1" && written.kind == "Config", "it is no kubeconfig");
        let ([cluster], [user], [context]) = (written.clusters, written.users, written.contexts);
        let refers = context.context.context("it has no context")?;
        let joined =
            context.name == written.current && cluster.name == refers.cluster && user.name == refers.user;
        ensure!(joined, "its context leads nowhere");
        let (cluster, user) = (cluster.cluster.context("no cluster")?, user.user.context("no user")?);
        let url = project["status"]["controlPlane"]["url"].as_str().unwrap_or_default();
        let ours = url.starts_with("https://") && url.ends_with(&project_path(name));
        ensure!(
            ours && cluster.server == url,
            "its server {:?} is not the project's, {url:?}",
            cluster.server
        );
        let own = pem(&cluster.certificate_authority_data.unwrap_or_default())?;
        let ca_pem = if authority(url) == authority(&caller.server) { caller.ca_pem.clone() } else { own };
        let (cert_pem, key_pem) = (pem(&user.client_certificate_data)?, pem(&user.client_key_data)?);
        check(&cert_pem, meta::uid(project))?;
        PrivateKey::from_pem(&key_pem)?;
        Ok(Self { name: name.to_owned(), server: url.to_owned(), ca_pem, cert_pem, key_pem })
    }

    /// The kubeconfig, with the server at another address where one is given (its name in TLS beside it).
    pub(crate) fn kubeconfig(
        &self,
        host: impl FnOnce(&str) -> Result<Option<super::address::Address>>,
    ) -> Result<String> {
        let (server, name) = host(&self.server)?.unwrap_or_else(|| (self.server.clone(), None));
        Ok(kubeconfig(&KubeconfigParams {
            name: &self.name,
            server: &server,
            tls_server_name: name.as_deref().unwrap_or_default(),
            ca_pem: &self.ca_pem,
            user: Credentials::ClientCert { cert_pem: &self.cert_pem, key_pem: &self.key_pem },
            namespace: "default",
        }))
    }

    /// How a client reaches the project's plane.
    pub(crate) fn config(&self) -> Config {
        let (cert_pem, key_pem) = (self.cert_pem.clone(), self.key_pem.clone());
        Config::new(&self.server, &self.ca_pem, Identity::ClientCert { cert_pem, key_pem })
    }
}

/// The admin's certificate, and the authority of the plane that signed it.
const CERTIFICATES: usize = 2;

/// Whether a certificate is one of the admin of that plane. What stands behind it names who signed it, and proves nothing.
fn check(cert_pem: &str, plane: &str) -> Result<()> {
    let all = certificates_der(cert_pem)?;
    let Some(der) = all.first().filter(|_| all.len() <= CERTIFICATES) else {
        bail!("it has {} certificates", all.len())
    };
    let info = CertificateInfo::parse(der)?;
    let is_admin = info.common_name == keys::PROJECT_ADMIN && info.organizations == [MASTERS];
    ensure!(is_admin && info.planes() == [plane], "its certificate is not of the project's admin");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_pki::{Authority, ClientName, PlaneBinding};
    use serde_json::json;
    use std::time::Duration;

    const URL: &str = "https://h:1/projects/web";

    fn project() -> Value {
        json!({"metadata": {"name": "web", "uid": "0c1f"}, "status": {"controlPlane": {"url": URL}}})
    }

    fn made(user: &str, groups: &[&str], plane: &str) -> String {
        let authority = Authority::generate("ca").unwrap();
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let plane = Some(PlaneBinding { plane, generation: 2 });
        let client = ClientName { user, groups: &groups, plane };
        let pair = authority.issue_client(&client, Duration::from_secs(60)).unwrap();
        kubeconfig(&KubeconfigParams {
            name: "web",
            server: URL,
            tls_server_name: "",
            ca_pem: authority.cert_pem(),
            user: Credentials::ClientCert { cert_pem: &pair.cert_pem, key_pem: &pair.key_pem },
            namespace: "default",
        })
    }

    fn read(kubeconfig: &str) -> Result<Masters> {
        let secret = json!({"data": {"kubeconfig": BASE64_STANDARD.encode(kubeconfig)}});
        Masters::read(&project(), &secret, &Config::new("https://h:1", "the caller's", Identity::None))
    }

    #[test]
    fn what_the_controller_wrote_is_read_and_checked_as_the_caller_does() {
        let masters = read(&made(keys::PROJECT_ADMIN, &[MASTERS], "0c1f")).unwrap();
        assert_eq!((&*masters.server, &*masters.ca_pem), (URL, "the caller's"));
        let printed = masters.kubeconfig(|_| Ok(None)).unwrap();
        assert!(printed.contains("client-key-data: "), "{printed}");
    }

    #[test]
    fn what_somebody_planted_is_refused() {
        let good = made(keys::PROJECT_ADMIN, &[MASTERS], "0c1f");
        let user = "\n    client-key-data: ";
        let cluster = "\n    server: ";
        let changes = [
            (user, "\n    exec: {command: sh, args: [-c, id]}\n    client-key-data: "),
            (user, "\n    auth-provider: {name: oidc}\n    client-key-data: "),
            (user, "\n    token: abc\n    client-key-data: "),
            (user, "\n    tokenFile: /etc/shadow\n    client-key-data: "),
            (user, "\n    client-certificate: /etc/x\n    client-key-data: "),
            (user, "\n    as: jane\n    client-key-data: "),
            (cluster, "\n    proxy-url: http://evil\n    server: "),
            (cluster, "\n    insecure-skip-tls-verify: true\n    server: "),
            (cluster, "\n    certificate-authority: /etc/x\n    server: "),
            (cluster, "\n    tls-server-name: evil\n    server: "),
            ("https://h:1/", "https://evil:1/"),
            ("/projects/web", "/projects/lair"),
            ("users:", "users:\n- name: other\n  user: {exec: {command: sh}}"),
            ("kind: Config", "kind: Config\npreferences: {colors: true}"),
            ("current-context: \"web\"", "current-context: other"),
        ];
        for (from, to) in changes {
            assert!(good.contains(from), "{from}");
            let planted = good.replace(from, to);
            assert!(read(&planted).is_err(), "{to}");
        }
        let others = [
            made("jane", &[MASTERS], "0c1f"),
            made(keys::PROJECT_ADMIN, &["devs"], "0c1f"),
            made(keys::PROJECT_ADMIN, &[MASTERS], "another"),
            "apiVersion: v1\nkind: Config\n".to_owned(),
            String::new(),
        ];
        for planted in others {
            assert!(read(&planted).is_err(), "{planted}");
        }
    }
}
