//! Volumes as directories: the files of one (pure), and writing them.
//!
//! A volume is `<pod directory>/volumes/<name>`; what a container calls a mount path is that directory under another
//! name (see [`crate::expand::rewrite`]). Files are replaced whole, by renaming, and only when they changed.

use crate::environment::Downward;
use crate::sources::{Sources, list, text, token_key};
use freehold_machinery::{Value, meta};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

/// The mode of files whose volume names none.
const DEFAULT_MODE: u32 = 0o644;

/// Files of a volume by their path within it.
pub(crate) type Files = BTreeMap<PathBuf, File>;

/// One file of a volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct File {
    /// What is in it.
    pub(crate) content: Vec<u8>,
    /// Its permissions.
    pub(crate) mode: u32,
}

/// What a volume is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Volume {
    /// A directory with exactly these files.
    Files(Files),
    /// A directory that belongs to the containers.
    Scratch,
    /// A directory of the machine.
    Host(PathBuf),
}

/// What a Pod's volume is. The error says what is missing, in kubelet's words.
pub(crate) fn volume(volume: &Value, downward: &Downward<'_>, sources: &Sources) -> Result<Volume, String> {
    let mut files = Files::new();
    if volume["emptyDir"].is_object() {
        return Ok(Volume::Scratch);
    }
    if let Some(path) = text(&volume["hostPath"]["path"]) {
        return Ok(Volume::Host(PathBuf::from(path)));
    }
    let projected = &volume["projected"];
    let known = ["secret", "configMap", "downwardAPI"].into_iter().any(|kind| volume[kind].is_object());
    if known {
        let mode =
            ["secret", "configMap", "downwardAPI"].iter().find_map(|kind| mode(&volume[kind]["defaultMode"]));
        add_source(&mut files, volume, mode.unwrap_or(DEFAULT_MODE), downward, sources)?;
    } else if projected.is_object() {
        let mode = mode(&projected["defaultMode"]).unwrap_or(DEFAULT_MODE);
        for source in list(&projected["sources"]) {
            add_source(&mut files, source, mode, downward, sources)?;
        }
    } else {
        return Err(format!(
            "volume {:?} is of a type that this node does not offer",
            volume["name"].as_str().unwrap_or_default()
        ));
    }
    Ok(Volume::Files(files))
}

fn mode(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|mode| u32::try_from(mode).ok()).map(|mode| mode & 0o777)
}

fn add_source(
    files: &mut Files,
    source: &Value,
    mode: u32,
    downward: &Downward<'_>,
    sources: &Sources,
) -> Result<(), String> {
    let rows = [
        ("secret", &source["secret"], &sources.secrets),
        ("configmap", &source["configMap"], &sources.config_maps),
    ];
    for (kind, given, objects) in rows {
        let Some(name) = text(&given["secretName"]).or_else(|| text(&given["name"])) else { continue };
        match objects.get(&name) {
            Some(content) => add_keys(files, given, content, mode, &name)?,
            None if given["optional"] == true => {}
            None => {
                let namespace = meta::namespace(downward.pod);
                return Err(format!("{kind} {namespace}/{name} not found"));
            }
        }
    }
    for item in list(&source["downwardAPI"]["items"]) {
        let field = item["fieldRef"]["fieldPath"].as_str().unwrap_or_default();
        add(
            files,
            &item["path"],
            downward.field(field).into_bytes(),
            self::mode(&item["mode"]).unwrap_or(mode),
        )?;
    }
    let token = &source["serviceAccountToken"];
    if let Some(text) = sources.tokens.get(&token_key(token)).filter(|_| token.is_object()) {
        add(files, &token["path"], text.clone().into_bytes(), mode & 0o600)?;
    }
    Ok(())
}

/// The keys of an object: those that are listed, under their paths, or else all.
fn add_keys(
    files: &mut Files,
    given: &Value,
    content: &BTreeMap<String, Vec<u8>>,
    mode: u32,
    name: &str,
) -> Result<(), String> {
    let Some(items) = given["items"].as_array().filter(|items| !items.is_empty()) else {
        return content
            .iter()
            .try_for_each(|(key, bytes)| add(files, &key.as_str().into(), bytes.clone(), mode));
    };
    for item in items {
        let key = item["key"].as_str().unwrap_or_default();
        match content.get(key) {
            Some(bytes) => {
                add(files, &item["path"], bytes.clone(), self::mode(&item["mode"]).unwrap_or(mode))?
            }
            None if given["optional"] == true => {}
            None => return Err(format!("references non-existent key {key:?} of {name:?}")),
        }
    }
    Ok(())
}

fn add(files: &mut Files, path: &Value, content: Vec<u8>, mode: u32) -> Result<(), String> {
    let path = PathBuf::from(path.as_str().unwrap_or_default());
    if !is_inside(&path) {
        return Err(format!("path {path:?} leaves its volume"));
    }
    files.insert(path, File { content, mode });
    Ok(())
}

/// Whether a relative path can't lead out of where it starts.
fn is_inside(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Where the containers of a Pod find its volumes.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountedVolumes(BTreeMap<String, PathBuf>);

impl MountedVolumes {
    /// Puts all volumes of a Pod below `directory`. Can be called again: what did not change is left alone.
    pub(crate) fn place(
        directory: &Path,
        pod: &Value,
        downward: &Downward<'_>,
        sources: &Sources,
    ) -> Result<Self, String> {
        let mut placed = Self::default();
        for given in list(&pod["spec"]["volumes"]) {
            let name = text(&given["name"])
                .filter(|name| is_inside(Path::new(name)))
                .ok_or("a volume has no name")?;
            let own = directory.join(&name);
            let place = match volume(given, downward, sources)? {
                Volume::Host(path) => path,
                Volume::Scratch => std::fs::create_dir_all(&own).map(|()| own).map_err(|e| e.to_string())?,
                Volume::Files(files) => write(&own, &files).map(|()| own).map_err(|e| e.to_string())?,
            };
            placed.0.insert(name, place);
        }
        Ok(placed)
    }

    /// The mount paths of a container and what they really are.
    pub(crate) fn mounts(&self, container: &Value) -> Result<Vec<(String, PathBuf)>, String> {
        let mut mounts = Vec::new();
        for mount in list(&container["volumeMounts"]) {
            let name = mount["name"].as_str().unwrap_or_default();
            let directory =
                self.0.get(name).ok_or_else(|| format!("no volume {name:?} is there to be mounted"))?;
            let path = text(&mount["mountPath"]).unwrap_or_default();
            let real = match text(&mount["subPath"]) {
                None => directory.clone(),
                Some(below) if is_inside(Path::new(&below)) => directory.join(below),
                Some(below) => return Err(format!("subPath {below:?} leaves its volume")),
            };
            mounts.push((path.trim_end_matches('/').to_owned(), real));
        }
        mounts.retain(|(path, _)| !path.is_empty());
        Ok(mounts)
    }
}

/// Makes a directory hold exactly these files.
fn write(directory: &Path, files: &Files) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (path, file) in files {
        let target = directory.join(path);
        if std::fs::read(&target).is_ok_and(|there| there == file.content) {
            continue;
        }
        std::fs::create_dir_all(target.parent().unwrap_or(directory))?;
        replace(&target, file)?;
    }
    let wanted: BTreeSet<PathBuf> = files.keys().map(|path| directory.join(path)).collect();
    remove_others(directory, &wanted)
}

fn replace(target: &Path, file: &File) -> io::Result<()> {
    use std::io::Write as _;
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = target.with_file_name(name);
    let _ = std::fs::remove_file(&temporary);
    // The owner reads and writes whatever the mode says: the agent replaces the file later.
    let mode = file.mode & 0o700 | 0o600;
    let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    out.write_all(&file.content)?;
    std::fs::rename(&temporary, target)
}

fn remove_others(directory: &Path, wanted: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sources() -> Sources {
        let content = BTreeMap::from([("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())]);
        Sources {
            secrets: BTreeMap::from([("s".to_owned(), content.clone())]),
            config_maps: BTreeMap::from([("c".to_owned(), content)]),
            tokens: BTreeMap::from([((String::new(), 3600), "token".to_owned())]),
        }
    }

    fn of(given: Value) -> Result<Volume, String> {
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}});
        let downward = Downward { pod: &pod, pod_ip: "127.64.0.1", node: "here", host_ip: "127.0.0.1" };
        volume(&given, &downward, &sources())
    }

    fn contents(given: Value) -> Vec<(String, String)> {
        let Volume::Files(files) = of(given).unwrap() else { panic!("files are expected") };
        let text = |file: &File| String::from_utf8(file.content.clone()).unwrap();
        files.iter().map(|(path, file)| (path.display().to_string(), text(file))).collect()
    }

    #[test]
    fn a_volume_holds_the_keys_of_its_objects() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(contents(json!({"secret": {"secretName": "s"}})), [pair("a", "1"), pair("b", "2")]);
        let items = json!([{"key": "b", "path": "x/y"}]);
        assert_eq!(contents(json!({"configMap": {"name": "c", "items": items}})), [pair("x/y", "2")]);
        let projected = json!([
            {"secret": {"name": "s", "items": [{"key": "a", "path": "a"}]}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"serviceAccountToken": {"path": "t"}},
            {"configMap": {"name": "none", "optional": true}},
        ]);
        let all = contents(json!({"projected": {"sources": projected}}));
        assert_eq!(all, [pair("a", "1"), pair("name", "p"), pair("t", "token")]);
    }

    #[test]
    fn what_is_missing_or_leads_out_is_refused() {
        let rows = [
            (json!({"secret": {"secretName": "x"}}), "secret n/x not found"),
            (
                json!({"secret": {"secretName": "s", "items": [{"key": "z", "path": "z"}]}}),
                "references non-existent key \"z\" of \"s\"",
            ),
            (
                json!({"configMap": {"name": "c", "items": [{"key": "a", "path": "../a"}]}}),
                "path \"../a\" leaves its volume",
            ),
            (json!({"name": "v", "nfs": {}}), "volume \"v\" is of a type that this node does not offer"),
        ];
        for (given, message) in rows {
            assert_eq!(of(given).unwrap_err(), message);
        }
    }

    #[test]
    fn writing_again_changes_only_what_differs() {
        let dir = tempfile::tempdir().unwrap();
        let file = |text: &str| File { content: text.into(), mode: 0o644 };
        let first = Files::from([("a".into(), file("1")), ("d/b".into(), file("2"))]);
        write(dir.path(), &first).unwrap();
        let before = std::fs::metadata(dir.path().join("d/b")).unwrap().modified().unwrap();
        write(dir.path(), &Files::from([("c".into(), file("3")), ("d/b".into(), file("2"))])).unwrap();
        assert!(!dir.path().join("a").exists());
        assert_eq!(std::fs::read_to_string(dir.path().join("c")).unwrap(), "3");
        assert_eq!(std::fs::metadata(dir.path().join("d/b")).unwrap().modified().unwrap(), before);
    }
}
