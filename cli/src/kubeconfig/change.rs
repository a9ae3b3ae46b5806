//! Changing kubeconfigs as `kubectl config` does: several files count as one, and what is new goes into the first.

use super::own::{entry, rebased};
use anyhow::{Context as _, Result, bail};
use freehold_machinery::Value;
use serde_json::json;
use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long another program may take to change the file.
const PATIENCE: Duration = Duration::from_secs(5);
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

/// Named entries that a kubeconfig gets. The context becomes the current one.
pub(crate) struct Additions {
    pub(crate) cluster: Option<Value>,
    pub(crate) user: Option<Value>,
    pub(crate) context: Value,
}

/// Files that count as one kubeconfig.
pub(crate) struct Files {
    paths: Vec<PathBuf>,
}

impl Files {
    /// The named file; otherwise all that `$KUBECONFIG` names and are there, or the default.
    pub(crate) fn chosen(flag: Option<PathBuf>) -> Self {
        let variable = std::env::var_os("KUBECONFIG");
        let named: Vec<PathBuf> = match (&flag, &variable) {
            (None, Some(list)) => {
                std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect()
            }
            _ => Vec::new(),
        };
        let there: Vec<PathBuf> = named.iter().filter(|path| path.exists()).cloned().collect();
        let paths = match (there.is_empty(), named.last()) {
            (false, _) => there,
            (true, Some(last)) => vec![last.clone()],
            (true, None) => vec![super::chosen(flag, None)],
        };
        Self { paths }
    }

    /// The file that is changed.
    pub(crate) fn first(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Adds entries, chosen by what all files say together, and returns the name of the context. Everything else stays. A file
    /// that is not there yet is made, for its owner alone.
    ///
    /// # Errors
    /// A file can't be read or written, or another program holds it.
    pub(crate) fn change(&self, choose: impl FnOnce(&Value) -> Result<Additions>) -> Result<String> {
        let path = self.first();
        let context = || format!("{} can't be changed", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(context)?;
        }
        let _lock = Lock::of(path).with_context(context)?;
        let mut first = read(path)?;
        let mut merged = first.clone();
        for other in &self.paths[1..] {
            merge(&mut merged, read(other)?, other.parent().unwrap_or(Path::new("")))?;
        }
        let chosen = choose(&merged)?;
        let named = [("clusters", chosen.cluster), ("users", chosen.user)];
        for (list, added) in named {
            added.map(|added| put(&mut first, list, added)).transpose()?;
        }
        let name = chosen.context["name"].as_str().unwrap_or_default().to_owned();
        first["current-context"] = name.as_str().into();
        put(&mut first, "contexts", chosen.context)?;
        replace(path, &freehold_client::yaml(&first)?).with_context(context)?;
        Ok(name)
    }
}

/// A file's content; an empty kubeconfig where there is none.
fn read(path: &Path) -> Result<Value> {
    let empty = json!({"apiVersion": "v1", "kind": "Config"});
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("{} can't be read", path.display()))?,
    };
    let found: Value = if text.trim().is_empty() { empty } else { freehold_client::kubeconfig_as(&text)? };
    anyhow::ensure!(found.is_object(), "{} is no kubeconfig", path.display());
    Ok(found)
}

/// Adds what another file says and this one does not: of two entries with one name the first counts.
fn merge(whole: &mut Value, other: Value, base: &Path) -> Result<()> {
    for list in LISTS {
        for added in other[list].as_array().into_iter().flatten() {
            let field = &list[..list.len() - 1];
            let known = entry(whole, list, field, added["name"].as_str().unwrap_or_default()).is_ok();
            if !known {
                let mut added = added.clone();
                added[field] = rebased(added[field].clone(), base)?;
                put(whole, list, added)?;
            }
        }
    }
    if whole["current-context"].as_str().unwrap_or_default().is_empty() {
        whole["current-context"] = other["current-context"].clone();
    }
    Ok(())
}

/// Puts an entry into a list of named ones, in place of the one that has its name.
fn put(whole: &mut Value, list: &str, entry: Value) -> Result<()> {
    if whole[list].is_null() {
        whole[list] = json!([]);
    }
    let entries =
        whole[list].as_array_mut().with_context(|| format!("{list} of the kubeconfig is no list"))?;
    match entries.iter_mut().find(|known| known["name"] == entry["name"]) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
    Ok(())
}

/// A name for an entry that leads to a server: the wished one, unless an entry of that name leads elsewhere.
pub(crate) fn free_name(merged: &Value, wished: &str, server: &str) -> String {
    let leads = |cluster: &Value| cluster["server"].as_str() == Some(server);
    let cluster = entry(merged, "clusters", "cluster", wished);
    let context = entry(merged, "contexts", "context", wished);
    let of_context = context.as_ref().ok().and_then(|context| context["cluster"].as_str());
    let of_context = of_context.map(|name| entry(merged, "clusters", "cluster", name).is_ok_and(leads));
    if cluster.is_ok_and(|cluster| !leads(cluster)) || of_context == Some(false) {
        let host = server.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or(server);
        return format!("{wished}@{host}");
    }
    wished.to_owned()
}

/// A file beside a kubeconfig that says that somebody changes it; kubectl looks for it too.
struct Lock(PathBuf);

impl Lock {
    fn of(path: &Path) -> Result<Self> {
        let beside = suffixed(path, ".lock");
        let begun = Instant::now();
        loop {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside) {
                Ok(_) => return Ok(Self(beside)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    bail!("another program changes it; remove {} if there is none", beside.display())
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut whole: OsString = path.as_os_str().to_owned();
    whole.push(suffix);
    whole.into()
}

/// Replaces a file as a whole; whoever reads it meanwhile sees the old or the new text. Its mode stays; a new file is its
/// owner's alone.
fn replace(path: &Path, text: &str) -> Result<()> {
    // What a link leads to is replaced, and not the link.
    let path = if path.exists() { fs::canonicalize(path)? } else { path.to_owned() };
    let mode = fs::metadata(&path).map_or(0o600, |found| found.permissions().mode());
    let beside = suffixed(&path, &format!(".{}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode & 0o777).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    if written.is_err() {
        drop(fs::remove_file(&beside));
    }
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "apiVersion: v1\nkind: Config\ncurrent-context: web\npreferences: {colors: true}\nclusters:\n\
        - {name: web, cluster: {server: 'https://h/projects/web'}}\nusers: []\ncontexts:\n\
        - {name: web, context: {cluster: web, user: ann}}\n";
    const OTHER: &str = "current-context: far\nclusters:\n\
        - {name: web, cluster: {server: 'https://lost'}}\n- {name: far, cluster: {certificate-authority: ca.crt}}\n\
        users:\n- {name: ann, user: {tokenFile: t}}\ncontexts: []\n";

    fn added(name: &str) -> Additions {
        let entry = |field: &str| json!({"name": name, field: {"server": "https://h"}});
        Additions { cluster: Some(entry("cluster")), user: None, context: entry("context") }
    }

    #[test]
    fn several_files_count_as_one_and_the_first_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own"), folder.path().join("far/other"));
        fs::create_dir(folder.path().join("far")).unwrap();
        fs::write(&own, OWN).unwrap();
        fs::write(&other, OTHER).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o640)).unwrap();
        let files = Files { paths: vec![own.clone(), other.clone()] };
        let mut seen = Value::Null;
        let outcome = files.change(|merged| {
            seen = merged.clone();
            Ok(added("new"))
        });
        outcome.unwrap();
        assert_eq!(seen["clusters"][0]["cluster"]["server"], "https://h/projects/web", "the first counts");
        let authority = seen["clusters"][1]["cluster"]["certificate-authority"].as_str().unwrap();
        assert_eq!(Path::new(authority), folder.path().join("far/ca.crt"));
        assert_eq!(seen["current-context"], "web");
        let changed = read(&own).unwrap();
        assert_eq!(
            (changed["current-context"].as_str(), changed["clusters"][1]["name"].as_str()),
            (Some("new"), Some("new"))
        );
        assert_eq!(
            (&changed["contexts"][0]["name"], &changed["preferences"]["colors"]),
            (&json!("web"), &json!(true))
        );
        assert_eq!(fs::read_to_string(&other).unwrap(), OTHER);
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
    }

    #[test]
    fn a_file_that_is_not_there_is_made_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".kube/config");
        Files { paths: vec![path.clone()] }.change(|_| Ok(added("a"))).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap()["contexts"][0]["name"], "a");
    }

    #[test]
    fn programs_that_change_a_file_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::thread::scope(|scope| {
            for name in 0..8 {
                let path = path.clone();
                scope.spawn(move || {
                    Files { paths: vec![path] }.change(|_| Ok(added(&format!("c{name}")))).unwrap();
                });
            }
        });
        assert_eq!(read(&path).unwrap()["contexts"].as_array().unwrap().len(), 8);
    }

    #[test]
    fn a_name_that_leads_elsewhere_stays() {
        let merged: Value = freehold_client::kubeconfig_as(OWN).unwrap();
        let rows = [
            ("web", "https://h/projects/web", "web"),
            ("web", "https://other:7443/projects/web", "web@other:7443"),
            ("new", "https://h/projects/new", "new"),
        ];
        for (wished, server, expected) in rows {
            assert_eq!(free_name(&merged, wished, server), expected);
        }
    }
}
