//! What an object takes in etcd: its key and value there, by Freehold and by kube-apiserver, of the same objects made by
//! the same requests.
//!
//! `make bench` runs it and writes a table of `docs/benchmarks.md`; without `--write` it only prints.
//!
//! Must not know anything of Freehold beyond its program and its API, and of etcd only its HTTP gateway.

mod etcd;
mod objects;

use anyhow::{Context, Result};
use clap::Parser;
use freehold_client::{Client, RawRequest};
use freehold_tests_harness::{Engine, Kube, KubeOptions, Options as ServerOptions, Server};
use objects::{KINDS, Kind};
use serde_json::Value;
use std::{fmt::Write as _, path::PathBuf, time::Duration};

/// How long the number of dictionaries must not change until training is taken to be over.
const TRAINED: u32 = 10;
/// Bytes of 32 times the letter k, base64: a key for a measurement.
const KEYS: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n  - providers:\n      \
                    - aesgcm: {keys: [{name: bench, secret: a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=}]}\n";

/// Measures what objects take in etcd.
#[derive(Parser)]
struct Options {
    /// How many objects of each kind are made before those that are measured: a dictionary is trained on them.
    #[arg(long, default_value_t = 500)]
    before: usize,
    /// How many objects of each kind are measured.
    #[arg(long, default_value_t = 100)]
    measured: usize,
    /// Writes the document's table.
    #[arg(long)]
    write: bool,
    /// The document.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md"))]
    document: PathBuf,
}

/// The mean bytes of each kind's first objects, and of its last ones.
struct Sizes {
    first: Vec<usize>,
    last: Vec<usize>,
}

/// A server with an etcd.
struct Subject<'a> {
    client: Client,
    etcd: String,
    /// The prefix of an object's key.
    prefix: fn(&Kind) -> String,
    is_kube: bool,
    options: &'a Options,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    let folder = tempfile::tempdir()?;
    let keys = folder.path().join("keys.yaml");
    std::fs::write(&keys, KEYS)?;
    let json = json_sizes(&options);
    let kube = {
        let kube = Kube::start(KubeOptions::default());
        let subject = Subject {
            client: kube.client(),
            etcd: kube.etcd_url(),
            prefix: |kind| format!("/registry/{}/{}/", kind.in_kube, objects::NAMESPACE),
            is_kube: true,
            options: &options,
        };
        subject.measure().await?
    };
    let plain = freehold(&options, &["--compression", "none"]).await?;
    let zstd = freehold(&options, &[]).await?;
    let both = freehold(&options, &["--encryption-keys", &keys.display().to_string()]).await?;
    let columns = [&json, &kube.last, &plain.last, &zstd.first, &zstd.last, &both.last];
    let text = table(&columns);
    println!("{text}");
    if options.write {
        write(&options, &text)?;
    }
    Ok(())
}

async fn freehold(options: &Options, args: &[&str]) -> Result<Sizes> {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let server = Server::start(ServerOptions { engine: Engine::Etcd, args, log: "warn".to_owned() });
    let subject = Subject {
        client: server.client(),
        etcd: server.etcd_url().context("it has an etcd")?,
        prefix: |kind| {
            format!(
                "/freehold/planes/core/{}/{}/{}/",
                kind.group_segment(),
                kind.resource,
                objects::NAMESPACE
            )
        },
        is_kube: false,
        options,
    };
    subject.measure().await
}

impl Subject<'_> {
    async fn measure(&self) -> Result<Sizes> {
        objects::prepare(&self.client).await?;
        let (before, measured) = (self.options.before, self.options.measured);
        for kind in KINDS {
            for nth in 0..before {
                objects::make(&self.client, kind, nth, self.is_kube).await?;
            }
        }
        let first = self.sizes(0, measured)?;
        self.wait_for_training().await?;
        for kind in KINDS {
            for nth in before..before + measured {
                objects::make(&self.client, kind, nth, self.is_kube).await?;
            }
        }
        Ok(Sizes { first, last: self.sizes(before, measured)? })
    }

    /// Bytes of key and value of the objects from `from` on, on average, by kind.
    fn sizes(&self, from: usize, count: usize) -> Result<Vec<usize>> {
        let of_kind = |kind: &Kind| {
            let prefix = (self.prefix)(kind);
            let found = etcd::range(&self.etcd, &prefix)?;
            let wanted = |name: &str| (from..from + count).any(|nth| objects::name(nth) == name);
            let lengths: Vec<_> = found
                .iter()
                .filter(|(key, _)| key.strip_prefix(&prefix).is_some_and(wanted))
                .map(|(key, value)| key.len() + value)
                .collect();
            anyhow::ensure!(lengths.len() == count, "{} of {count} {} in etcd", lengths.len(), kind.resource);
            Ok(lengths.iter().sum::<usize>() / count)
        };
        KINDS.iter().map(of_kind).collect()
    }

    async fn wait_for_training(&self) -> Result<()> {
        let (mut before, mut same) = (Value::Null, 0);
        while !self.is_kube && same < TRAINED {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let status = self.client.json(RawRequest::get("/encryption")).await?;
            same = if status["trainedDictionaries"] == before { same + 1 } else { 0 };
            before = status["trainedDictionaries"].clone();
        }
        Ok(())
    }
}

/// What the objects are in JSON before anyone adds to them: what clients sent.
fn json_sizes(options: &Options) -> Vec<usize> {
    let length = |kind: &Kind| {
        let sent = |nth: usize| objects::sent(kind, nth);
        (0..options.measured).map(sent).sum::<usize>() / options.measured
    };
    KINDS.iter().map(length).collect()
}

fn table(columns: &[&Vec<usize>]) -> String {
    let mut text = String::from(
        "| bytes of an object | sent, JSON | kube-apiserver | plain | zstd, the first ones | zstd | zstd, AES-GCM | of kube-apiserver's |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (nth, kind) in KINDS.iter().enumerate() {
        let cells: String = columns.iter().map(|column| format!(" {} |", column[nth])).collect();
        let ratio = 100 * columns[4][nth] / columns[1][nth];
        // Writing to a String can't fail.
        let _ = writeln!(text, "| {} |{cells} {ratio} % |", kind.kind);
    }
    text
}

fn write(options: &Options, table: &str) -> Result<()> {
    let path = &options.document;
    let text = std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?;
    let (begin, end) = ("<!-- size: begin -->", "<!-- size: end -->");
    let parts = text.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.with_context(|| format!("{} has no markers for sizes", path.display()))?;
    std::fs::write(path, format!("{before}{begin}\n{table}{end}{after}"))
        .with_context(|| format!("{} can't be written", path.display()))
}
