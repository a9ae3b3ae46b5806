//! `freehold certs`: all certificates of an installation, and when they expire.

use crate::{kubeconfig, terminal::say};
use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_api::keys;
use freehold_client::{Client, Config, Identity, Kubeconfig, ListOptions, Resource};
use freehold_machinery::{Value, meta};
use freehold_pki::{CertificateInfo, certificates_der};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
const DAY: i64 = 86_400;
const HOUR: i64 = 3600;
/// How the names of files with certificates end.
const SUFFIX: &str = ".crt";

/// Where certificates are looked for.
#[derive(clap::Args)]
pub(crate) struct Sources {
    /// An admin's kubeconfig. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig or ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Authorities and keys of core servers: a folder, as `freehold pki` creates it.
    #[arg(long, value_name = "DIR")]
    pki_dir: Option<PathBuf>,
    /// Kubeconfig of the cluster that dedicated pairs run on. Default: the server's own infra plane.
    #[arg(long, value_name = "FILE")]
    infra_kubeconfig: Option<PathBuf>,
}

impl Sources {
    /// The kubeconfig of the core servers, as the flag has it.
    pub(crate) fn kubeconfig(&self) -> Option<PathBuf> {
        self.kubeconfig.clone()
    }

    /// The kubeconfig of the cluster that pairs run on, where it is not the server's own infra plane.
    pub(crate) fn infra_kubeconfig(&self) -> Option<&Path> {
        self.infra_kubeconfig.as_deref()
    }
}

/// Flags of `freehold certs`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    sources: Sources,
    /// Show only certificates that expire within so many days, and fail if there are any.
    #[arg(long, value_name = "DAYS")]
    within: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A certificate, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// A file, or a Secret and a field of it.
    place: String,
    /// The common name.
    name: String,
    authority: bool,
    /// In seconds since 1970.
    expires: i64,
}

impl Found {
    /// Whether the certificate expires within so many days of `now`, in seconds since 1970.
    pub(crate) fn within(&self, days: u32, now: i64) -> bool {
        self.expires - now <= i64::from(days) * DAY
    }
}

/// The certificates of a PEM text; none where it is something else.
fn certificates(place: &str, pem: &str) -> Vec<Found> {
    let ders = certificates_der(pem).unwrap_or_default();
    let infos = ders.iter().filter_map(|der| CertificateInfo::parse(der).ok());
    let found = infos.map(|info| Found {
        place: place.to_owned(),
        name: info.common_name,
        authority: info.is_ca,
        expires: info.not_after,
    });
    found.collect()
}

/// The client certificates of a kubeconfig's users.
fn of_kubeconfig(place: &str, text: &str, base: Option<&Path>) -> Vec<Found> {
    let users = Kubeconfig::parse(text).and_then(|config| config.users(base)).unwrap_or_default();
    let pems = users.into_iter().filter_map(|(_, identity)| match identity {
        Identity::ClientCert { cert_pem, .. } => Some(cert_pem),
        _ => None,
    });
    pems.flat_map(|pem| certificates(place, &pem)).collect()
}

/// The certificates in a Secret: in fields with certificates, and in kubeconfigs.
fn of_secret(secret: &Value) -> Vec<Found> {
    let object = format!("{}/{}", meta::namespace(secret), meta::name(secret));
    let fields = secret["data"].as_object().into_iter().flatten();
    let texts = fields.filter_map(|(field, value)| {
        let bytes = BASE64_STANDARD.decode(value.as_str()?).ok()?;
        Some((field.as_str(), String::from_utf8(bytes).ok()?))
    });
    let found = texts.flat_map(|(field, text)| {
        let place = format!("{object} {field}");
        match field {
            keys::KUBECONFIG_KEY => of_kubeconfig(&place, &text, None),
            _ if field.ends_with(SUFFIX) => certificates(&place, &text),
            _ => Vec::new(),
        }
    });
    found.collect()
}

/// The certificates in the files of a folder.
fn of_folder(dir: &Path) -> Result<Vec<Found>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("{} can't be read", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths.iter().filter(|path| path.to_string_lossy().ends_with(SUFFIX)) {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?;
        found.extend(certificates(&path.display().to_string(), &text));
    }
    Ok(found)
}

async fn of_secrets(client: &Client, labels: &str, suffix: &str) -> Result<Vec<Found>> {
    let options = ListOptions { label_selector: labels.to_owned(), ..ListOptions::default() };
    let list = client.list_all(&SECRETS, None, &options).await?;
    let wanted = list.items.iter().filter(|secret| meta::name(secret).ends_with(suffix));
    Ok(wanted.flat_map(of_secret).collect())
}

/// Collects all certificates, the next to expire first.
///
/// # Errors
/// A file or the Secrets of a cluster can't be read.
pub(crate) async fn collect(args: &Sources) -> Result<Vec<Found>> {
    let file = kubeconfig::chosen(args.kubeconfig.clone(), std::env::var_os("KUBECONFIG"));
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("kubeconfig {} can't be read", file.display()))?;
    let mut found = of_kubeconfig(&file.display().to_string(), &text, file.parent());
    if let Some(dir) = &args.pki_dir {
        found.extend(of_folder(dir)?);
    }
    let client = Client::new(&kubeconfig::platform(Some(file))?)?;
    let projects = of_secrets(&client, "", keys::KUBECONFIG_SUFFIX).await;
    found.extend(projects.context("Secrets of the core servers can't be listed")?);
    let infra = match &args.infra_kubeconfig {
        Some(path) => Client::new(&Config::from_kubeconfig(path)?)?,
        None => client.at("/planes/infra"),
    };
    let pairs = of_secrets(&infra, keys::PROJECT_UID, "").await;
    found.extend(pairs.context("Secrets of pairs can't be listed; --infra-kubeconfig names their cluster")?);
    found.sort_by(|a, b| (a.expires, &a.place).cmp(&(b.expires, &b.place)));
    Ok(found)
}

/// Time until something, as people say it: `89d`, `5h`, `expired`.
fn left(seconds: i64) -> String {
    match seconds {
        ..=0 => "expired".to_owned(),
        1..HOUR => format!("{}m", seconds / 60),
        HOUR..DAY => format!("{}h", seconds / HOUR),
        _ => format!("{}d", seconds / DAY),
    }
}

fn table(found: &[Found], now: i64) -> Vec<String> {
    let width = |of: fn(&Found) -> usize| found.iter().map(of).max().unwrap_or(0).max(5);
    let (name, place) = (width(|found| found.name.len()), width(|found| found.place.len()));
    let mut lines = vec![format!("{:8}  {:9}  {:name$}  {:place$}", "LEFT", "KIND", "NAME", "PLACE")];
    lines.extend(found.iter().map(|found| {
        let kind = if found.authority { "authority" } else { "leaf" };
        format!("{:8}  {kind:9}  {:name$}  {:place$}", left(found.expires - now), found.name, found.place)
    }));
    lines
}

/// Lists certificates.
///
/// # Errors
/// Something can't be read, or `--within` finds certificates.
pub(crate) async fn run(args: Args) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let mut found = collect(&args.sources).await?;
    if let Some(days) = args.within {
        found.retain(|found| found.within(days, now));
    }
    if args.json {
        let rows = found.iter().map(|found| {
            json!({
                "place": found.place, "name": found.name, "authority": found.authority,
                "expires": found.expires, "secondsLeft": found.expires - now,
            })
        });
        say(format_args!("{:#}", Value::Array(rows.collect())));
    } else {
        table(&found, now).iter().for_each(say);
    }
    match args.within {
        Some(days) if !found.is_empty() => bail!("{} certificates expire within {days} days", found.len()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_pki::{Authority, ClientName};
    use std::time::Duration;

    #[test]
    fn certificates_of_a_secret_are_found_in_files_and_kubeconfigs() {
        let authority = Authority::generate("ca").unwrap();
        let name = ClientName { user: "a", groups: &[], plane: None };
        let pair = authority.issue_client(&name, Duration::from_secs(3600)).unwrap();
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let config = json!({
            "clusters": [], "contexts": [], "current-context": "",
            "users": [{"name": "x", "user": {
                "client-certificate-data": encode(&pair.cert_pem), "client-key-data": encode(&pair.key_pem),
            }}],
        });
        let secret = json!({
            "metadata": {"namespace": "n", "name": "s"},
            "data": {
                "tls.crt": encode(&pair.cert_pem), "tls.key": encode(&pair.key_pem),
                "ca.crt": encode(authority.cert_pem()), "kubeconfig": encode(&config.to_string()),
            },
        });
        let mut places: Vec<_> =
            of_secret(&secret).into_iter().map(|found| (found.place, found.name, found.authority)).collect();
        places.sort();
        let row = |place: &str, name: &str, authority| (place.to_owned(), name.to_owned(), authority);
        let expected = [
            row("n/s ca.crt", "ca", true),
            row("n/s kubeconfig", "a", false),
            row("n/s tls.crt", "a", false),
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn time_is_told_in_one_unit() {
        for (seconds, expected) in [(-1, "expired"), (60, "1m"), (7200, "2h"), (90 * DAY, "90d")] {
            assert_eq!(left(seconds), expected);
        }
    }
}
