//! The servers that are measured: Freehold on each engine, and a kube-apiserver.

use crate::options::Options;
use crate::process::{self, Memory};
use crate::projects::Projects;
use crate::report::Value;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use freehold_client::{Client, Config};
use freehold_tests_harness::{Etcd, Kube, KubeOptions, Options as ServerOptions, Server};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// The project whose plane is used where one plane is enough.
pub(crate) const PROJECT: &str = "web";

/// What kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// Freehold on the embedded engine.
    Embedded,
    /// Freehold on a real etcd with one member, which waits for the disk at each write.
    Etcd,
    /// kube-apiserver on a real etcd of the same kind.
    Kube,
}

impl Kind {
    /// All of them, in the order of the tables' columns.
    pub(crate) const ALL: [Self; 3] = [Self::Embedded, Self::Etcd, Self::Kube];
    /// Those that have planes.
    pub(crate) const FREEHOLD: [Self; 2] = [Self::Embedded, Self::Etcd];

    /// A column's heading.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Etcd => "on etcd",
            Self::Kube => "kube-apiserver",
        }
    }
}

/// A running server.
pub(crate) struct Subject {
    /// What it is.
    pub(crate) kind: Kind,
    server: Running,
}

enum Running {
    // The server is dropped before its etcd.
    Freehold {
        server: Box<Server>,
        etcd: Option<(Etcd, TempDir)>,
    },
    Kube(Box<Kube>),
    /// One that was there before, at a URL.
    Remote {
        client: Client,
        pids: Vec<u32>,
    },
}

impl Subject {
    /// Starts a server on an empty store; one that is only told of is taken as it is.
    pub(crate) fn start(kind: Kind, options: &Options) -> Result<Self> {
        Self::start_with(kind, options, &[])
    }

    /// Starts a server with further arguments of `freehold up`.
    pub(crate) fn start_with(kind: Kind, options: &Options, args: &[&str]) -> Result<Self> {
        let server = match kind {
            Kind::Embedded => Running::freehold(None, args),
            Kind::Etcd => {
                let folder = tempfile::tempdir()?;
                Running::freehold(Some((Etcd::start_durable(folder.path()), folder)), args)
            }
            Kind::Kube => match &options.peer_kubeconfig {
                Some(kubeconfig) => Running::remote(kubeconfig, options)?,
                None => {
                    let options = KubeOptions { durable: true, ..KubeOptions::default() };
                    Running::Kube(Box::new(Kube::start(options)))
                }
            },
        };
        Ok(Self { kind, server })
    }

    /// Who may do anything, at the server's root: the core plane of Freehold.
    pub(crate) fn root(&self) -> Client {
        match &self.server {
            Running::Freehold { server, .. } => server.client(),
            Running::Kube(kube) => kube.client(),
            Running::Remote { client, .. } => client.clone(),
        }
    }

    /// A client of one plane: a new project's, with the project's own kubeconfig; all of kube-apiserver.
    pub(crate) async fn plane(&self) -> Result<Client> {
        match &self.server {
            Running::Freehold { server, .. } => {
                Projects::open(server.client()).await?.make(PROJECT, "Shared").await?;
                Ok(Server::client_of(&server.project(PROJECT)))
            }
            _ => Ok(self.root()),
        }
    }

    /// The kubeconfig of the platform's administrator; `None` where another server is measured than ours.
    pub(crate) fn admin_kubeconfig(&self) -> Option<PathBuf> {
        match &self.server {
            Running::Freehold { server, .. } => Some(server.admin_kubeconfig()),
            _ => None,
        }
    }

    /// The kubeconfig of a project's own administrator; `None` where another server is measured than ours.
    pub(crate) fn kubeconfig_of(&self, project: &str) -> Option<PathBuf> {
        match &self.server {
            Running::Freehold { server, .. } => Some(server.project(project).kubeconfig().to_owned()),
            _ => None,
        }
    }

    /// The kubeconfig of the administrator of what [`Subject::plane`] gives; `None` where another server is measured than ours.
    pub(crate) fn kubeconfig(&self) -> Option<PathBuf> {
        match &self.server {
            Running::Freehold { .. } => self.kubeconfig_of(PROJECT),
            Running::Kube(kube) => Some(kube.admin_kubeconfig()),
            Running::Remote { .. } => None,
        }
    }

    /// How long the last start took; `None` where somebody else started it.
    pub(crate) fn started_in(&self) -> Option<Duration> {
        match &self.server {
            Running::Freehold { server, .. } => Some(server.started_in()),
            Running::Kube(kube) => Some(kube.started_in()),
            Running::Remote { .. } => None,
        }
    }

    /// Stops the server, its etcd aside, and starts it again. False where that is not ours to do.
    pub(crate) fn restart(&mut self) -> bool {
        match &mut self.server {
            Running::Freehold { server, .. } => server.restart(),
            Running::Kube(kube) => kube.restart(),
            Running::Remote { .. } => return false,
        }
        true
    }

    /// The server, then its etcd; none where they are not known.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match &self.server {
            Running::Freehold { server, etcd } => {
                [server.pid()].into_iter().chain(etcd.iter().map(|(etcd, _)| etcd.pid())).collect()
            }
            Running::Kube(kube) => kube.pids().to_vec(),
            Running::Remote { pids, .. } => pids.clone(),
        }
    }

    /// CPU time of all server processes since they started; `None` where they are not known. Fails if one is gone.
    pub(crate) fn cpu(&self) -> Result<Option<Duration>> {
        let pids = self.pids();
        let mut total = Duration::ZERO;
        for pid in &pids {
            let used = process::cpu(*pid);
            total += used
                .with_context(|| format!("{}: process {pid} has died{}", self.kind.heading(), self.log()))?;
        }
        Ok((!pids.is_empty()).then_some(total))
    }

    /// CPU for each of `operations` since `before`.
    pub(crate) fn cpu_each(&self, before: Option<Duration>, operations: usize) -> Result<Option<Value>> {
        let Some((now, before)) = self.cpu()?.zip(before) else { return Ok(None) };
        Ok(Some(Value::Cpu(now.saturating_sub(before).div_f64(operations.max(1) as f64))))
    }

    /// Waits until the memory of the server, its etcd aside, rests, and reads it.
    pub(crate) async fn memory(&self, options: &Options) -> Result<Option<Memory>> {
        let Some(pid) = self.pids().first().copied() else { return Ok(None) };
        let memory = process::memory_at_rest(pid).await;
        ensure!(memory.resident > 0, "{}: process {pid} has died{}", self.kind.heading(), self.log());
        if options.maps {
            process::print_maps(pid);
        }
        Ok(Some(memory))
    }

    /// Bytes on disk of all that is kept, in the data directory and in etcd; `None` where that is not known.
    pub(crate) fn disk(&self) -> Option<i64> {
        match &self.server {
            Running::Freehold { server, etcd } => {
                let etcd = etcd.as_ref().map_or(0, |(_, folder)| process::disk(folder.path()));
                Some(process::disk(&server.data_dir()) + etcd)
            }
            Running::Kube(kube) => Some(process::disk(kube.folder())),
            Running::Remote { .. } => None,
        }
    }

    /// The end of the log, for messages.
    fn log(&self) -> String {
        let log = match &self.server {
            Running::Freehold { server, .. } => server.log(),
            Running::Kube(kube) => kube.log(),
            Running::Remote { .. } => return String::new(),
        };
        let lines: Vec<&str> = log.lines().collect();
        format!("; the end of its log:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// Whether the server's processes run: a failure of theirs is told as one.
    pub(crate) fn explain<T>(&self, result: Result<T>) -> Result<T> {
        match (result, self.cpu()) {
            (Err(_), Err(died)) => Err(died),
            (result, _) => result,
        }
    }
}

impl Running {
    fn freehold(etcd: Option<(Etcd, TempDir)>, args: &[&str]) -> Self {
        let own = etcd.iter().flat_map(|(etcd, _)| ["--etcd".to_owned(), etcd.url()]);
        let args = own.chain(args.iter().map(|arg| (*arg).to_owned())).collect();
        let options = ServerOptions { args, log: "warn".to_owned(), ..ServerOptions::default() };
        Self::Freehold { server: Box::new(Server::start(options)), etcd }
    }

    fn remote(kubeconfig: &PathBuf, options: &Options) -> Result<Self> {
        let mut config = Config::from_kubeconfig(kubeconfig)?;
        if let Some(url) = &options.peer_url {
            config.server.clone_from(url);
        }
        for pid in &options.peer_pids {
            if process::cpu(*pid).is_none() {
                bail!("--peer-pids names {pid}, and there is no such process");
            }
        }
        Ok(Self::Remote { client: Client::new(&config)?, pids: options.peer_pids.clone() })
    }
}
