//! Helm charts, rendered by the `helm` program in a temporary folder, with limits on time and output.
//!
//! Charts from registries and repositories are pulled once for each source and version, and only from sources that the
//! operator allows: whoever writes a Template names addresses that this process connects to.

use freehold_machinery::Value;
use freehold_tenancy_api::template::{HelmChart, MAX_RENDERED};
use freehold_tenancy_decide::template::{RenderError, chart_objects};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Semaphore;

/// How long a run of the program may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How many runs go on at once: each takes a processor.
const RUNS: usize = 4;
/// Memory that a run may take, in bytes. Helm itself takes less than half of that.
const MEMORY: u64 = 512 << 20;
/// Most bytes of a chart that stands in a Template.
const MAX_FILES: usize = 1 << 20;
/// Most bytes of a pulled chart.
const MAX_ARCHIVE: u64 = 10 << 20;
/// How many pulled charts are kept.
const MAX_PULLED: usize = 100;
/// How much of an error is shown.
const SHOWN: usize = 1000;

/// How charts are rendered.
#[derive(Clone, Debug, Default)]
pub struct HelmOptions {
    /// The program, by path or by a name in `PATH`.
    pub program: PathBuf,
    /// Prefixes of URLs that charts may be pulled from.
    pub sources: Vec<String>,
}

/// Renders charts.
pub(super) struct Helm {
    options: HelmOptions,
    runs: Semaphore,
    /// Pulled charts by source and version.
    pulled: Mutex<HashMap<String, Arc<Pulled>>>,
}

/// A pulled chart. Its folder goes with it.
struct Pulled {
    _folder: TempDir,
    archive: PathBuf,
}

/// A release to be rendered.
pub(super) struct Release<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) values: &'a Value,
    /// The version that charts are told of the API, such as `v1.36.0`.
    pub(super) kube_version: &'a str,
}

fn failed(reason: &'static str, message: impl Into<String>) -> RenderError {
    RenderError::new(reason, message)
}

fn unusable(error: &std::io::Error) -> RenderError {
    failed("RenderFailed", format!("the folder for rendering cannot be used: {error}"))
}

impl Helm {
    pub(super) fn new(options: HelmOptions) -> Self {
        Self { options, runs: Semaphore::new(RUNS), pulled: Mutex::default() }
    }

    /// The objects of a chart.
    pub(super) async fn render(
        &self,
        chart: &HelmChart,
        release: &Release<'_>,
    ) -> Result<Vec<Value>, RenderError> {
        let folder = tempfile::Builder::new().prefix("freehold-helm-").tempdir().map_err(|e| unusable(&e))?;
        let given = [!chart.files.is_empty(), !chart.oci.is_empty(), !chart.repository.is_empty()];
        if given.iter().filter(|given| **given).count() != 1 {
            return Err(failed(
                "ChartInvalid",
                "spec.helm: exactly one of files, oci and repository is required",
            ));
        }
        let pulled;
        let path = if chart.files.is_empty() {
            pulled = self.pull(chart).await?;
            pulled.archive.clone()
        } else {
            write_files(folder.path(), chart)?
        };
        let values = folder.path().join("values.json");
        // JSON is YAML, and what is written is one value: no parameter can end it.
        std::fs::write(&values, release.values.to_string()).map_err(|e| unusable(&e))?;
        let mut args = vec!["template".to_owned(), release.name.to_owned(), path.display().to_string()];
        args.extend(["--namespace".to_owned(), release.namespace.to_owned()]);
        args.extend(["--values".to_owned(), values.display().to_string()]);
        args.extend(["--include-crds", "--no-hooks", "--skip-tests"].map(str::to_owned));
        if !release.kube_version.is_empty() {
            args.extend(["--kube-version".to_owned(), release.kube_version.to_owned()]);
        }
        let output = self.run(folder.path(), &args, "ChartFailed").await?;
        chart_objects(documents(&output)?)
    }

    /// Pulls a chart, unless it was pulled before.
    async fn pull(&self, chart: &HelmChart) -> Result<Arc<Pulled>, RenderError> {
        let source = if chart.oci.is_empty() { &chart.repository } else { &chart.oci };
        let scheme = if chart.oci.is_empty() { "https://" } else { "oci://" };
        if !source.starts_with(scheme) && !source.starts_with("http://127.0.0.1:") {
            return Err(failed(
                "ChartInvalid",
                format!("spec.helm: {source:?} does not begin with {scheme}"),
            ));
        }
        if !self.options.sources.iter().any(|prefix| source.starts_with(prefix.as_str())) {
            let message = format!("charts may not be pulled from {source:?}; the operator allows sources");
            return Err(failed("SourceNotAllowed", message));
        }
        if chart.version.is_empty() || chart.version.starts_with('-') || chart.chart.starts_with('-') {
            return Err(failed("ChartInvalid", "spec.helm.version: an exact version is required"));
        }
        let id = format!("{source}\n{}\n{}", chart.chart, chart.version);
        if let Some(pulled) = self.pulled.lock().get(&id) {
            return Ok(pulled.clone());
        }
        let folder =
            tempfile::Builder::new().prefix("freehold-chart-").tempdir().map_err(|e| unusable(&e))?;
        let mut args = vec!["pull".to_owned()];
        match chart.oci.as_str() {
            "" => args.extend([chart.chart.clone(), "--repo".to_owned(), source.clone()]),
            oci => args.push(oci.to_owned()),
        }
        args.extend(["--version".to_owned(), chart.version.clone()]);
        args.extend(["--destination".to_owned(), folder.path().display().to_string()]);
        if source.starts_with("http://127.0.0.1:") || source.starts_with("oci://127.0.0.1:") {
            args.push("--plain-http".to_owned());
        }
        self.run(folder.path(), &args, "ChartUnavailable").await?;
        let archive = archive_in(folder.path())?;
        let pulled = Arc::new(Pulled { _folder: folder, archive });
        let mut all = self.pulled.lock();
        if all.len() >= MAX_PULLED {
            all.clear();
        }
        all.insert(id, pulled.clone());
        Ok(pulled)
    }

    /// Runs the program with nothing of this process's environment, and gives its output.
    async fn run(
        &self,
        folder: &Path,
        args: &[String],
        reason: &'static str,
    ) -> Result<Vec<u8>, RenderError> {
        let _permit = self.runs.acquire().await.map_err(|_| failed(reason, "the process stops"))?;
        let home = |name: &str| folder.join(name).display().to_string();
        let mut command = Command::new(&self.options.program);
        command.args(args).current_dir(folder).env_clear();
        command.envs([
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", home("home")),
            ("HELM_CACHE_HOME", home("cache")),
            ("HELM_CONFIG_HOME", home("config")),
            ("HELM_DATA_HOME", home("data")),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let message = format!(
                    "there is no {}; install helm or set FREEHOLD_TENANCY_HELM",
                    self.options.program.display()
                );
                failed("HelmNotInstalled", message)
            }
            _ => failed(reason, format!("helm cannot be started: {error}")),
        })?;
        bound(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (out, err) = tokio::join!(read(stdout, MAX_RENDERED + 1), read(stderr, 64 << 10));
            (out, err, child.wait().await)
        };
        let Ok((out, err, status)) = tokio::time::timeout(TIMEOUT, work).await else {
            return Err(failed(reason, format!("helm took longer than {} s", TIMEOUT.as_secs())));
        };
        if out.len() > MAX_RENDERED {
            return Err(failed("TooLarge", format!("the chart prints more than {MAX_RENDERED} bytes")));
        }
        if !status.is_ok_and(|status| status.success()) {
            if err.starts_with(b"fatal error: runtime: ") && contains(&err, b"memory") {
                return Err(failed(
                    "TooLarge",
                    format!("the chart takes more than {} MiB of memory", MEMORY >> 20),
                ));
            }
            let text = String::from_utf8_lossy(&err).replace(&folder.display().to_string(), "");
            return Err(failed(reason, text.trim().chars().take(SHOWN).collect::<String>()));
        }
        Ok(out)
    }
}

/// Bounds the memory of a run: a template of one line can ask for any amount.
fn bound(child: &tokio::process::Child) {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    if let Some(Err(error)) = pid.map(|pid| prlimit(Some(pid), Resource::Data, limit)) {
        tracing::warn!(%error, "the memory of helm is not bounded");
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Reads up to a limit. The rest is not read: the program ends when its pipe closes.
async fn read(pipe: Option<impl tokio::io::AsyncRead + Unpin>, limit: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What was read before a broken pipe counts.
        let _ = pipe.take(limit as u64).read_to_end(&mut bytes).await;
    }
    bytes
}

fn archive_in(folder: &Path) -> Result<PathBuf, RenderError> {
    let entries = std::fs::read_dir(folder).map_err(|e| unusable(&e))?;
    let archive = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "tgz"));
    let archive = archive.ok_or_else(|| failed("ChartUnavailable", "helm pulled no chart"))?;
    match std::fs::metadata(&archive).map(|metadata| metadata.len()) {
        Ok(bytes) if bytes <= MAX_ARCHIVE => Ok(archive),
        _ => Err(failed("TooLarge", format!("the chart has more than {MAX_ARCHIVE} bytes"))),
    }
}

/// Writes the chart that stands in a Template; gives its folder.
fn write_files(folder: &Path, chart: &HelmChart) -> Result<PathBuf, RenderError> {
    let root = folder.join("chart");
    if chart.files.values().map(String::len).sum::<usize>() > MAX_FILES {
        return Err(failed("TooLarge", format!("spec.helm.files: more than {MAX_FILES} bytes")));
    }
    for (name, text) in &chart.files {
        let path = Path::new(name);
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || name.is_empty() {
            return Err(failed(
                "ChartInvalid",
                format!("spec.helm.files: {name:?} is no path below the chart"),
            ));
        }
        let path = root.join(path);
        let written = std::fs::create_dir_all(path.parent().unwrap_or(&root))
            .and_then(|()| std::fs::write(&path, text));
        written.map_err(|e| unusable(&e))?;
    }
    Ok(root)
}

/// The documents of YAML text, read as Kubernetes reads them.
fn documents(output: &[u8]) -> Result<Vec<Value>, RenderError> {
    let unreadable = |error: String| failed("RenderFailed", format!("the chart prints no YAML: {error}"));
    let text = std::str::from_utf8(output).map_err(|error| unreadable(error.to_string()))?;
    let mut parts = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.starts_with("---") {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
        }
    }
    let has_content =
        |part: &&String| part.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let read = |part: &String| {
        let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
        let mut value: Value = serde_saphyr::from_str_with_options(part, options)
            .map_err(|error| unreadable(error.to_string()))?;
        freehold_machinery::go::whole_numbers(&mut value);
        Ok(value)
    };
    parts.iter().filter(has_content).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_read_as_kubernetes_reads_them() {
        let text =
            "---\n# Source: a\nmode: 0644\ntext: |\n  a\n  b\n---\n# nothing\n---\nlist: [yes, \"no\"]\n";
        let read = documents(text.as_bytes()).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0], json!({"mode": 420, "text": "a\nb\n"}));
        assert!(documents(b"a: [").is_err());
    }

    #[test]
    fn files_stay_below_the_chart() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["../evil", "/etc/evil", "a/../../evil", ""] {
            let chart =
                HelmChart { files: [(name.to_owned(), String::new())].into(), ..HelmChart::default() };
            assert_eq!(write_files(folder.path(), &chart).unwrap_err().reason, "ChartInvalid", "{name}");
        }
    }

    #[tokio::test]
    async fn what_a_chart_prints_is_bounded() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("helm");
        std::fs::write(&program, "#!/bin/sh\nexec yes 'a: b'\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let helm = Helm::new(HelmOptions { program, sources: Vec::new() });
        let release = Release { name: "r", namespace: "n", values: &json!({}), kube_version: "" };
        let chart =
            HelmChart { files: [("Chart.yaml".to_owned(), String::new())].into(), ..HelmChart::default() };
        assert_eq!(helm.render(&chart, &release).await.unwrap_err().reason, "TooLarge");
    }

    #[tokio::test]
    async fn memory_of_a_run_is_bounded() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("helm");
        std::fs::write(
            &program,
            "#!/bin/sh\nuntil ulimit -d | grep -q 524288; do :; done\necho bounded: yes\n",
        )
        .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let helm = Helm::new(HelmOptions { program, ..HelmOptions::default() });
        let out = helm.run(folder.path(), &[], "RenderFailed").await.unwrap();
        assert_eq!(out, b"bounded: yes\n");
    }

    #[tokio::test]
    async fn missing_programs_and_forbidden_sources_have_a_reason() {
        let helm = Helm::new(HelmOptions {
            program: "/nowhere/helm".into(),
            sources: vec!["https://good.example/".into()],
        });
        let release = Release { name: "r", namespace: "n", values: &json!({}), kube_version: "" };
        let inline =
            HelmChart { files: [("Chart.yaml".to_owned(), String::new())].into(), ..HelmChart::default() };
        assert_eq!(helm.render(&inline, &release).await.unwrap_err().reason, "HelmNotInstalled");
        let chart = |repository: &str, version: &str| HelmChart {
            repository: repository.into(),
            chart: "a".into(),
            version: version.into(),
            ..HelmChart::default()
        };
        let rows = [
            (chart("https://169.254.169.254/", "1.0.0"), "SourceNotAllowed"),
            (chart("file:///etc", "1.0.0"), "ChartInvalid"),
            (chart("https://good.example/", ""), "ChartInvalid"),
            (HelmChart::default(), "ChartInvalid"),
        ];
        for (chart, reason) in rows {
            assert_eq!(helm.render(&chart, &release).await.unwrap_err().reason, reason);
        }
    }
}
