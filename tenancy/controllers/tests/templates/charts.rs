//! A chart, packed by the real `helm`, behind one address that is a chart repository and an OCI registry.

use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// Where charts are served, until the process ends.
pub(crate) struct Source {
    pub(crate) address: SocketAddr,
}

/// Content by path, with its type.
type Pages = HashMap<String, (&'static str, Vec<u8>)>;

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// Packs the chart `demo` 1.2.3.
fn pack(helm: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a directory");
    let chart = folder.path().join("demo");
    std::fs::create_dir_all(chart.join("templates")).expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(chart.join(name), text).expect("a file");
    write("Chart.yaml", "apiVersion: v2\nname: demo\nversion: 1.2.3\n");
    write("values.yaml", "color: none\n");
    write(
        "templates/settings.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\ndata: {color: {{ .Values.color | quote }}}\n",
    );
    let packed = Command::new(helm)
        .args(["package", "demo"])
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .output()
        .expect("helm can be run");
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    std::fs::read(folder.path().join("demo-1.2.3.tgz")).expect("the chart")
}

fn pages(archive: Vec<u8>) -> Pages {
    let config = json!({"apiVersion": "v2", "name": "demo", "version": "1.2.3"}).to_string().into_bytes();
    let layer =
        |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": layer(CONFIG, &config),
        "layers": [layer(CONTENT, &archive)],
    });
    let manifest = manifest.to_string().into_bytes();
    let index = format!(
        "apiVersion: v1\nentries:\n  demo:\n  - {{apiVersion: v2, name: demo, version: 1.2.3, digest: {}, urls: [demo-1.2.3.tgz]}}\n",
        digest(&archive).trim_start_matches("sha256:")
    );
    let at = |bytes: &[u8]| format!("/v2/charts/demo/blobs/{}", digest(bytes));
    let by_digest = format!("/v2/charts/demo/manifests/{}", digest(&manifest));
    let tags = json!({"name": "charts/demo", "tags": ["1.2.3"]}).to_string().into_bytes();
    [
        ("/v2/".to_owned(), ("application/json", b"{}".to_vec())),
        ("/v2/charts/demo/tags/list".to_owned(), ("application/json", tags)),
        ("/v2/charts/demo/manifests/1.2.3".to_owned(), (MANIFEST, manifest.clone())),
        (by_digest, (MANIFEST, manifest)),
        (at(&config), (CONFIG, config)),
        (at(&archive), (CONTENT, archive.clone())),
        ("/index.yaml".to_owned(), ("application/yaml", index.into_bytes())),
        ("/demo-1.2.3.tgz".to_owned(), ("application/gzip", archive)),
    ]
    .into()
}

/// Serves the chart on a free port.
pub(crate) fn serve(helm: &Path) -> Source {
    let pages = Arc::new(pages(pack(helm)));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let pages = pages.clone();
            std::thread::spawn(move || answer(&stream, &pages));
        }
    });
    Source { address }
}

/// Answers one request, and closes.
fn answer(mut stream: &TcpStream, pages: &Pages) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let _ = lines.take_while(|line| !line.is_empty()).count();
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let nothing: (&str, Vec<u8>) = ("text/plain", Vec::new());
    let (status, (kind, bytes)) = match pages.get(path) {
        Some(page) => ("200 OK", page),
        None => ("404 Not Found", &nothing),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\nConnection: close\r\n\r\n",
        bytes.len(),
        digest(bytes)
    );
    let body: &[u8] = if method == "HEAD" { &[] } else { bytes };
    // A client that went needs no answer.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}
