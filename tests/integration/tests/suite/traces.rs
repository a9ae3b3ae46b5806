//! Spans of requests, as a collector gets them: OTLP over HTTP, recorded by a server of this test.

use crate::{PATIENCE, contains_all};
use freehold_tests_integration::{Engine, HookServer, Http, Options, Server, facts, until};
use http::Method;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

facts!(engine:
    a_request_is_traced_through_server_store_and_webhook,
    a_client_does_not_decide_whether_it_is_traced,
);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A span, as far as tests look at it.
#[derive(Clone, Debug, Default)]
struct Span {
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    name: String,
    /// Values of its attributes.
    values: Vec<String>,
}

/// The fields of a protobuf message: numbers with contents, those of other wire types left out.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        while let Some((first, rest)) = bytes.split_first() {
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            shift += 7;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag & 7 {
            0 => {
                varint(&mut bytes);
            }
            1 => bytes = &bytes[8..],
            2 => {
                let length = usize::try_from(varint(&mut bytes)).expect("a length");
                let (content, rest) = bytes.split_at(length);
                found.push((tag >> 3, content));
                bytes = rest;
            }
            5 => bytes = &bytes[4..],
            other => panic!("wire type {other}"),
        }
    }
    found
}

fn within(message: &[u8], number: u64) -> Vec<&[u8]> {
    fields(message).into_iter().filter(|(field, _)| *field == number).map(|(_, content)| content).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The spans of an `ExportTraceServiceRequest`.
fn spans(body: &[u8]) -> Vec<Span> {
    let scopes = within(body, 1).into_iter().flat_map(|resource| within(resource, 2));
    let spans = scopes.flat_map(|scope| within(scope, 2));
    let read = |span: &[u8]| {
        let first = |number| within(span, number).first().map(|found| found.to_vec()).unwrap_or_default();
        let values =
            within(span, 9).into_iter().flat_map(|pair| within(pair, 2)).flat_map(|any| within(any, 1));
        Span {
            trace: first(1),
            id: first(2),
            parent: first(4),
            name: text(&first(5)),
            values: values.map(text).collect(),
        }
    };
    spans.map(read).collect()
}

/// Keeps what it is sent.
struct Collector {
    address: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let kept: Arc<Mutex<Vec<Span>>> = Arc::default();
        let spans = kept.clone();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = kept.clone();
                std::thread::spawn(move || record(&stream, &kept));
            }
        });
        Self { address, spans }
    }

    fn all(&self) -> Vec<Span> {
        self.spans.lock().expect("nobody panicked").clone()
    }
}

/// Answers the requests of one connection (HTTP/1.1).
fn record(stream: &TcpStream, kept: &Mutex<Vec<Span>>) {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        let mut head = String::new();
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            head += &line;
            line.clear();
        }
        if head.is_empty() {
            return;
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        assert!(head.starts_with("POST /v1/traces ") && head.contains("application/x-protobuf"), "{head}");
        kept.lock().expect("nobody panicked").extend(spans(&body));
        if writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// A server that traces so many requests of a million.
fn server(engine: Engine, collector: &Collector, rate: u32) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("tracing.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {}\nsamplingRatePerMillion: {rate}\n",
        collector.address
    );
    std::fs::write(&file, text).expect("the test's folder can be written");
    let args = ["--tracing-config-file", &file.display().to_string(), "--outbound-networks", "any"];
    let args = args.map(str::to_owned).to_vec();
    (Server::start(Options { engine, args, ..Options::default() }), folder)
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn a_request_is_traced_through_server_store_and_webhook(engine: Engine) {
    let collector = Collector::start();
    let (server, _folder) = server(engine, &collector, 1_000_000);
    let hook = HookServer::admission(|_| json!({"allowed": true}));
    let http = Http::of(&server.kubectl());
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "traced"}, "webhooks": [{
            "name": "traced.example.com", "clientConfig": hook.by_url("/"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }],
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(http.json(Method::POST, hooks, &configuration).code, 201);
    // The configuration is in force once it was seen.
    let mut nth = 0;
    let found = until("a create is traced with its webhook", PATIENCE, || {
        nth += 1;
        assert_eq!(http.json(Method::POST, MAPS, &map(&format!("m{nth}"))).code, 201);
        let all = collector.all();
        let hook = all.iter().find(|span| span.name == "outbound")?;
        let of_trace: Vec<Span> = all.iter().filter(|span| span.trace == hook.trace).cloned().collect();
        of_trace.iter().any(|span| span.name == "create configmaps").then_some(of_trace)
    });
    let root = found.iter().find(|span| span.name == "create configmaps").expect("the request's span");
    assert!(root.parent.is_empty() && root.id.len() == 8 && root.trace.len() == 16, "{root:?}");
    contains_all(&root.values.join(" "), &["POST", MAPS, "201"]);
    for name in ["outbound", "store.commit"] {
        let below: Vec<&Span> = found.iter().filter(|span| span.name == name).collect();
        assert!(!below.is_empty() && below.iter().all(|span| span.parent == root.id), "{name}: {found:#?}");
    }
}

fn a_client_does_not_decide_whether_it_is_traced(engine: Engine) {
    let collector = Collector::start();
    let (server, _folder) = server(engine, &collector, 0);
    let url = format!("{}{MAPS}", server.url());
    for _ in 0..5 {
        let mut curl = std::process::Command::new("curl");
        let token = server.kubectl().ok(&["create", "token", "default"]);
        curl.args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", &url]);
        curl.args(["-H", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]);
        curl.arg("-H").arg(format!("Authorization: Bearer {}", token.trim()));
        let answered = curl.output().expect("curl can be run");
        assert_eq!(text(&answered.stdout), "403");
    }
    // The server's last spans go out when it stops.
    drop(server);
    assert!(collector.all().is_empty(), "{:?}", collector.all());
}
