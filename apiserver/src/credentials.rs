//! Who this server is to webhooks: what `--admission-control-config-file` says
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers>).
//!
//! The file names, for each admission plugin that calls webhooks, a kubeconfig whose users are named after the hosts that
//! they are for. Who names the webhooks are the users of all control planes here, and they are not trusted with what is
//! the provider's: a token goes to hosts of URLs alone, since whose a Service is says the control plane; a certificate is
//! shown to both, since who sees it can do nothing with it.

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_apiserver_admission::chain::{MUTATING_WEBHOOK, VALIDATING_WEBHOOK};
use freehold_apiserver_outbound::Identity;
use freehold_apiserver_registry::At;
use freehold_client::Kubeconfig;
use freehold_machinery::Value;
use http::HeaderValue;
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

const GROUP: &str = "apiserver.config.k8s.io/";
/// Where a configuration has the kubeconfig itself and not the name of its file: what pairs are told.
const INLINE: &str = "kubeConfig";

/// What is shown to one webhook.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credential {
    /// A client certificate.
    pub(crate) identity: Option<Arc<Identity>>,
    /// `Authorization`.
    pub(crate) authorization: Option<HeaderValue>,
}

/// What is shown to webhooks, by plugin and host.
#[derive(Clone, Debug, Default)]
pub struct WebhookCredentials {
    plugins: HashMap<String, Users>,
}

/// The users of a kubeconfig.
#[derive(Clone, Debug, Default)]
struct Users {
    named: HashMap<String, Credential>,
    /// The one of the current context.
    current: Option<String>,
}

impl WebhookCredentials {
    /// Reads an `AdmissionConfiguration`, and the kubeconfigs that it names.
    ///
    /// # Errors
    /// A file that can't be read, or says what is not understood.
    pub fn open(file: &Path) -> Result<Self> {
        let read = read(file, "AdmissionConfiguration")
            .and_then(|configuration| Self::of(&configuration, file.parent()));
        read.with_context(|| format!("--admission-control-config-file {}", file.display()))
    }

    fn of(configuration: &Value, base: Option<&Path>) -> Result<Self> {
        let mut plugins = HashMap::new();
        for plugin in configuration["plugins"].as_array().into_iter().flatten() {
            let name = plugin["name"].as_str().unwrap_or_default();
            ensure!(
                [MUTATING_WEBHOOK, VALIDATING_WEBHOOK].contains(&name),
                "plugin {name:?} takes no configuration; {MUTATING_WEBHOOK} and {VALIDATING_WEBHOOK} do"
            );
            let own = match (&plugin["configuration"], plugin["path"].as_str()) {
                (own @ Value::Object(_), _) => own.clone(),
                (_, Some(path)) if !path.is_empty() => {
                    read(&base.unwrap_or(Path::new("")).join(path), "WebhookAdmissionConfiguration")?
                }
                _ => continue,
            };
            check_kind(&own, "WebhookAdmissionConfiguration")?;
            if let inline @ Value::Object(_) = &own[INLINE] {
                plugins.insert(name.to_owned(), Users::read(&inline.to_string(), None)?);
                continue;
            }
            let Some(file) = own["kubeConfigFile"].as_str().filter(|file| !file.is_empty()) else { continue };
            if !Path::new(file).is_absolute() {
                bail!("kubeConfigFile: Invalid value: {file:?}: must be an absolute file path");
            }
            let users = Users::open(Path::new(file)).with_context(|| format!("kubeConfigFile {file}"))?;
            ensure!(plugins.insert(name.to_owned(), users).is_none(), "plugin {name:?} is configured twice");
        }
        Ok(Self { plugins })
    }

    /// One `AdmissionConfiguration` that names no other files, with the certificates and without the tokens: it is for
    /// servers of one project each, and a token is good for whoever has read it. `None` where it says nothing.
    pub fn document(&self) -> Option<String> {
        let plugins: BTreeMap<&String, Value> =
            self.plugins.iter().map(|(name, users)| (name, users.kubeconfig())).collect();
        let plugin = |(name, kubeconfig): (&&String, &Value)| {
            let own = json!({"apiVersion": format!("{GROUP}v1"), "kind": "WebhookAdmissionConfiguration",
                INLINE: kubeconfig});
            json!({"name": name, "configuration": own})
        };
        let plugins: Vec<Value> = plugins.iter().map(plugin).collect();
        let whole = json!({"apiVersion": format!("{GROUP}v1"), "kind": "AdmissionConfiguration",
            "plugins": plugins});
        (!self.plugins.is_empty()).then(|| whole.to_string())
    }

    /// What is shown to a webhook that a plugin asks.
    pub(crate) fn of_webhook(&self, plugin: Option<&str>, at: &At) -> Credential {
        let Some(users) = plugin.and_then(|plugin| self.plugins.get(plugin)) else {
            return Credential::default();
        };
        match at {
            At::Url { host, port, .. } => users.of_url(host, *port),
            At::Service { namespace, name, port } => {
                let found = users.of_host(&format!("{name}.{namespace}.svc"), *port);
                Credential { authorization: None, ..found }
            }
        }
    }
}

impl Users {
    fn open(file: &Path) -> Result<Self> {
        Self::read(&std::fs::read_to_string(file)?, file.parent())
    }

    fn read(text: &str, base: Option<&Path>) -> Result<Self> {
        let kubeconfig = Kubeconfig::parse(text)?;
        let users = kubeconfig.users(base)?.into_iter();
        let named = users.map(|(name, identity)| Ok((name, credential(identity)?)));
        let current = kubeconfig.current_user().map(str::to_owned);
        Ok(Self { named: named.collect::<Result<_>>()?, current })
    }

    /// A kubeconfig with all of them in it.
    fn kubeconfig(&self) -> Value {
        let named: BTreeMap<&String, &Credential> = self.named.iter().collect();
        let user = |(name, credential): (&&String, &&Credential)| {
            let mut user = json!({});
            if let Some(identity) = &credential.identity {
                user["client-certificate-data"] = STANDARD.encode(&identity.chain).into();
                user["client-key-data"] = STANDARD.encode(&identity.key).into();
            }
            json!({"name": name, "user": user})
        };
        let users: Vec<Value> = named.iter().map(user).collect();
        let current = self.current.as_deref().unwrap_or_default();
        json!({"apiVersion": "v1", "kind": "Config", "users": users, "current-context": current,
            "contexts": [{"name": current, "context": {"cluster": "", "user": current}}]})
    }

    /// What is shown to the host of a URL, which any user may have named: a token only where the kubeconfig names that host.
    fn of_url(&self, host: &str, port: u16) -> Credential {
        let bare = || (port == 443).then(|| self.named.get(host)).flatten();
        let named = self.named.get(&authority(host, port)).or_else(bare);
        let found = self.of_host(host, port);
        Credential { authorization: named.and_then(|named| named.authorization.clone()), ..found }
    }

    /// By `host:port`, then by `*.` and what stands behind a dot of that; both without the port where it is 443; then
    /// by `*`, and at last whoever the current context names.
    fn of_host(&self, host: &str, port: u16) -> Credential {
        let steps = |name: &str| {
            let dots = name.match_indices('.').map(|(at, _)| format!("*{}", &name[at..])).collect::<Vec<_>>();
            std::iter::once(name.to_owned()).chain(dots)
        };
        let bare = (port == 443).then(|| steps(host)).into_iter().flatten();
        let last = ["*".to_owned()].into_iter().chain(self.current.clone());
        let found =
            steps(&authority(host, port)).chain(bare).chain(last).find_map(|name| self.named.get(&name));
        found.cloned().unwrap_or_default()
    }
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn credential(identity: freehold_client::Identity) -> Result<Credential> {
    Ok(match identity {
        freehold_client::Identity::None => Credential::default(),
        freehold_client::Identity::ClientCert { cert_pem, key_pem } => {
            let identity = Identity { chain: cert_pem.into_bytes(), key: key_pem.into_bytes() };
            Credential { identity: Some(Arc::new(identity)), authorization: None }
        }
        freehold_client::Identity::Token(token) => {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).context("token")?;
            value.set_sensitive(true);
            Credential { identity: None, authorization: Some(value) }
        }
    })
}

fn read(file: &Path, kind: &str) -> Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let value: Value = serde_saphyr::from_str(&text).with_context(|| file.display().to_string())?;
    check_kind(&value, kind)?;
    Ok(value)
}

fn check_kind(value: &Value, kind: &str) -> Result<()> {
    let version = value["apiVersion"].as_str().unwrap_or_default();
    ensure!(
        value["kind"] == kind && version.starts_with(GROUP),
        "it must be a {kind} of {GROUP}v1, not {} of {version:?}",
        value["kind"]
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(names: &[&str], current: Option<&str>) -> Users {
        let token = |name: &&str| {
            let authorization = HeaderValue::from_str(name).ok();
            ((*name).to_owned(), Credential { identity: None, authorization })
        };
        Users { named: names.iter().map(token).collect(), current: current.map(str::to_owned) }
    }

    #[test]
    fn a_host_is_who_is_named_after_it_as_exactly_as_may_be() {
        let all = ["a.example:8443", "*.example:8443", "a.example", "*.example", "*", "me"];
        let rows: [(&str, u16, &[&str], Option<&str>); 8] = [
            ("a.example", 8443, &all, Some("a.example:8443")),
            ("b.example", 8443, &all, Some("*.example:8443")),
            ("a.example", 443, &all, Some("a.example")),
            ("b.example", 443, &all, Some("*.example")),
            ("c.test", 443, &all, Some("*")),
            ("a.example", 1, &["a.example", "me"], Some("me")),
            ("fd00::1", 443, &["[fd00::1]:443"], Some("[fd00::1]:443")),
            ("c.test", 443, &["a.example"], None),
        ];
        for (host, port, names, wanted) in rows {
            let found = users(names, Some("me")).of_host(host, port).authorization;
            assert_eq!(found.as_ref().and_then(|value| value.to_str().ok()), wanted, "{host}:{port}");
        }
    }

    #[test]
    fn a_pair_is_told_certificates_and_no_tokens() {
        let mut all = users(&["Bearer t", "*"], Some("Bearer t"));
        all.named.insert(
            "a.example".into(),
            Credential {
                identity: Some(Arc::new(Identity { chain: b"chain".to_vec(), key: b"key".to_vec() })),
                authorization: None,
            },
        );
        let told = WebhookCredentials { plugins: HashMap::from([(MUTATING_WEBHOOK.to_owned(), all)]) };
        let document = told.document().expect("something to tell");
        let read = WebhookCredentials::of(&serde_json::from_str(&document).unwrap(), None).unwrap();
        let of = |credentials: &WebhookCredentials, host: &str| {
            let at = At::Url { authority: host.into(), host: host.into(), port: 443 };
            let found = credentials.of_webhook(Some(MUTATING_WEBHOOK), &at);
            (found.identity.map(|own| (own.chain.clone(), own.key.clone())), found.authorization)
        };
        assert_eq!(of(&read, "a.example"), of(&told, "a.example"));
        assert!(!document.contains("\"token\""), "{document}");
        assert_eq!(read.document(), told.document());
        assert_eq!(WebhookCredentials::default().document(), None);
    }

    #[test]
    fn a_token_goes_only_to_hosts_of_urls_that_the_operator_named() {
        let plugins = HashMap::from([(
            VALIDATING_WEBHOOK.to_owned(),
            users(&["*", "a.example", "*.test", "me", "hook.ns.svc"], Some("me")),
        )]);
        let credentials = WebhookCredentials { plugins };
        let service = At::Service { namespace: "ns".into(), name: "hook".into(), port: 443 };
        let of_host = |host: &str| At::Url { authority: host.into(), host: host.into(), port: 443 };
        let url = of_host("a.example");
        let token = |plugin, at| credentials.of_webhook(plugin, at).authorization;
        assert!(token(Some(VALIDATING_WEBHOOK), &service).is_none());
        assert!(token(Some(VALIDATING_WEBHOOK), &url).is_some());
        for host in ["b.example", "evil.test", "elsewhere"] {
            let url = of_host(host);
            let shown = credentials.of_webhook(Some(VALIDATING_WEBHOOK), &url).authorization;
            assert!(shown.is_none(), "{host} was named by a tenant alone");
        }
        assert!(token(Some(MUTATING_WEBHOOK), &url).is_none());
        assert!(token(None, &url).is_none(), "conversions");
    }

    #[test]
    fn what_is_not_understood_is_not_passed_over() {
        let of = |plugin: Value| {
            let configuration = json!({"plugins": [plugin]});
            WebhookCredentials::of(&configuration, None).map(|_| ()).map_err(|error| error.to_string())
        };
        let kind = "WebhookAdmissionConfiguration";
        let own = |file: &str| {
            json!({"name": VALIDATING_WEBHOOK, "configuration":
                {"apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "kubeConfigFile": file}})
        };
        assert_eq!(of(own("")), Ok(()));
        let relative = "kubeConfigFile: Invalid value: \"a\": must be an absolute file path";
        assert_eq!(of(own("a")), Err(relative.to_owned()));
        assert_eq!(of(own("/nonexistent/a")), Err("kubeConfigFile /nonexistent/a".to_owned()));
        assert!(of(json!({"name": "PodSecurity"})).unwrap_err().contains("takes no configuration"));
        let other = json!({"name": VALIDATING_WEBHOOK, "configuration": {"kind": kind, "apiVersion": "v1"}});
        assert!(of(other).unwrap_err().contains("it must be a WebhookAdmissionConfiguration"));
    }
}
