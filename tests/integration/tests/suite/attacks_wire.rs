//! Tricks of the wire that somebody of one project could play on another one: paths, heads, frames, floods and bodies that no
//! client library would send.

use crate::PATIENCE;
use crate::access::{becomes, member};
use crate::aggregation::{GROUP, expose, reason, registration};
use crate::attacks::{WHO_AM_I, leaks, parties};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_tests_integration::{Frame, Kubectl, Rogue, Way, Wire, World, facts, fields, frame, until};
use serde_json::json;
use std::io::Write as _;

facts!(world:
    no_spelling_of_a_path_leads_into_another_project,
    no_form_of_a_request_target_leads_into_another_project,
    no_pseudo_header_of_http2_leads_into_another_project,
    a_head_that_two_readers_would_read_differently_is_refused,
    what_is_hidden_in_a_body_never_reaches_a_server_behind,
    heads_without_end_are_refused_and_others_are_served,
    continuations_without_end_are_cut_off,
    a_compressed_head_that_unfolds_without_end_is_refused,
    frames_without_end_stop_nobody,
    rapid_resets_stop_nobody,
    answers_that_nobody_takes_hold_up_nobody,
    what_comes_behind_a_body_makes_nobody_of_anybody,
    slow_bodies_and_heads_hold_up_nobody,
    thousands_of_watches_hold_up_nobody,
    deep_giant_and_compressed_bodies_are_refused,
);

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// END_HEADERS and END_STREAM.
const WHOLE: u8 = 0x5;

/// The answer to a request of HTTP/1.1 whose request line is `METHOD TARGET`.
fn ask(kubectl: &Kubectl, method: &str, target: &str, lines: &str, body: &str) -> String {
    let mut wire = Wire::http1(kubectl);
    let authorization = wire.authorization();
    let host = wire.authority.clone();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: {host}\r\n{authorization}connection: close\r\n{lines}\r\n"
    );
    // A server that has refused the head need not read what follows it.
    let _ = wire.send(head.as_bytes()).and_then(|()| wire.send(body.as_bytes()));
    wire.rest()
}

/// The code of an answer; 0 where the connection was closed without one.
fn code(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// Refused, whatever the words.
fn assert_refused(answer: &str, what: &str) {
    let code = code(answer);
    assert!(code == 0 || (400..500).contains(&code), "{what}: {answer}");
    assert!(!leaks(answer), "{what}: {answer}");
}

/// Who floods, from a project of its own and not that of [`parties`], and the victim: the flood fills the turns of its plane, and
/// what others do there is told to come again.
fn flood(world: &World, name: &str) -> (Kubectl, Kubectl) {
    (world.project(name), parties(world).1)
}

/// The victim is served as if nothing was.
fn assert_served(victim: &Kubectl) {
    assert_eq!(victim.ok(&["get", "secret", "treasure", "-o", "name"]).trim(), "secret/treasure");
}

fn no_spelling_of_a_path_leads_into_another_project(world: &World) {
    let (attacker, victim) = parties(world);
    let plane = world.uid("attacked");
    let own = "/projects/attacker";
    for path in [
        format!("{own}/../attacked{SECRETS}"),
        format!("{own}/./../attacked{SECRETS}"),
        format!("{own}/..//attacked{SECRETS}"),
        format!("{own}/%2e%2e/attacked{SECRETS}"),
        format!("{own}/%2E%2E/attacked{SECRETS}"),
        format!("{own}/.%2e/attacked{SECRETS}"),
        format!("{own}/..%2fattacked{SECRETS}"),
        format!("{own}/..%2Fattacked{SECRETS}"),
        format!("{own}%2f..%2fattacked{SECRETS}"),
        format!("{own}/%252e%252e/attacked{SECRETS}"),
        format!("{own}/..%252fattacked{SECRETS}"),
        format!("{own}/..%5cattacked{SECRETS}"),
        format!("{own}/..\\attacked{SECRETS}"),
        format!("{own}/..;/attacked{SECRETS}"),
        format!("{own}/%c0%ae%c0%ae/attacked{SECRETS}"),
        format!("{own}/api/v1/namespaces/../../../../attacked{SECRETS}"),
        format!("{own}/api/v1/namespaces/default/services/x/proxy/../../../../../../../../attacked{SECRETS}"),
        format!("{own}/projects/attacked{SECRETS}"),
        format!("{own}/planes/{plane}{SECRETS}"),
        format!("{own}/planes/core{SECRETS}"),
        format!("{own}/organizations/tests{SECRETS}"),
        format!("/projects/attacked{SECRETS}"),
        format!("/projects/%61ttacked{SECRETS}"),
        format!("/projects/attacked%00{SECRETS}"),
        format!("/projects/attacked%20{SECRETS}"),
        format!("/projects/attacked.{SECRETS}"),
        format!("/projects/attacked/{SECRETS}"),
        format!("/projects//attacked{SECRETS}"),
        format!("//projects/attacked{SECRETS}"),
        format!("///attacked{SECRETS}"),
        format!("/Projects/attacked{SECRETS}"),
        format!("/PROJECTS/ATTACKED{SECRETS}"),
        format!("/projects/ATTACKED{SECRETS}"),
        format!("/%70rojects/attacked{SECRETS}"),
        format!("/projects%2fattacked{SECRETS}"),
        format!("/projects/attacker,attacked{SECRETS}"),
        format!("/projects/*{SECRETS}"),
        format!("/projects/{plane}{SECRETS}"),
        format!("/planes/{plane}{SECRETS}"),
        format!("/planes/{}{SECRETS}", plane.to_uppercase()),
        format!("/planes/core{SECRETS}"),
        format!("/planes/CORE{SECRETS}"),
        format!("/planes/infra{SECRETS}"),
        format!("/organizations/tests{SECRETS}"),
        "/api/v1/secrets".to_owned(),
        SECRETS.to_owned(),
    ] {
        assert_refused(&ask(&attacker, "GET", &path, "", ""), &path);
        assert_refused(&ask(&attacker, "DELETE", &path, "", ""), &format!("DELETE {path}"));
    }
    assert_eq!(code(&ask(&attacker, "GET", &format!("{own}{SECRETS}"), "", "")), 200, "their own is served");
    assert_served(&victim);
}

fn no_form_of_a_request_target_leads_into_another_project(world: &World) {
    let (attacker, _) = parties(world);
    let url = world.server().url();
    for (method, target) in [
        ("GET", format!("{url}/projects/attacked{SECRETS}")),
        ("GET", format!("http://localhost/projects/attacked{SECRETS}")),
        ("GET", format!("https://attacked.projects.example{SECRETS}")),
        ("GET", format!("https://user:password@127.0.0.1/projects/attacked{SECRETS}")),
        ("GET", format!("projects/attacked{SECRETS}")),
        ("GET", format!("?{SECRETS}")),
        ("GET", format!("/projects/attacker{SECRETS}#/../../attacked{SECRETS}")),
        ("OPTIONS", "*".to_owned()),
        ("CONNECT", "127.0.0.1:443".to_owned()),
        ("CONNECT", format!("/projects/attacked{SECRETS}")),
        ("TRACE", format!("/projects/attacked{SECRETS}")),
        ("PRI", "*".to_owned()),
    ] {
        let answer = ask(&attacker, method, &target, "", "");
        let code = code(&answer);
        assert!(!leaks(&answer), "{method} {target}: {answer}");
        assert!(code == 0 || code >= 400 || target.contains('#'), "{method} {target}: {answer}");
    }
    // Nor do headers that other servers take for the target, or for the method.
    for line in [
        "host: attacked.projects.example",
        "x-original-url: /projects/attacked/api/v1/secrets",
        "x-forwarded-prefix: /projects/attacked",
        "x-forwarded-host: attacked.projects.example",
        "x-http-method-override: DELETE",
        "forwarded: for=127.0.0.1;host=attacked.projects.example",
    ] {
        let answer =
            ask(&attacker, "GET", &format!("/projects/attacker{SECRETS}"), &format!("{line}\r\n"), "");
        assert!(!leaks(&answer), "{line}: {answer}");
        assert!([200, 400, 421].contains(&code(&answer)), "{line}: {answer}");
    }
}

/// What came back for a stream of HTTP/2: the bytes of its body, or of what ended it.
fn answer_of(wire: &mut Wire, wanted: u32) -> String {
    let mut body = Vec::new();
    while let Some((kind, flags, stream, payload)) = wire.next_frame() {
        let ended = stream == wanted && (kind == Frame::Reset as u8 || flags & 1 != 0 && kind <= 1);
        if stream == wanted && kind == Frame::Data as u8 {
            body.extend(payload);
        }
        if ended || kind == Frame::GoAway as u8 {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

fn no_pseudo_header_of_http2_leads_into_another_project(world: &World) {
    let (attacker, victim) = parties(world);
    let host = Wire::http2(&attacker).authority;
    let own = format!("/projects/attacker{SECRETS}");
    let other = format!("/projects/attacked{SECRETS}");
    let (method, scheme) = ((":method", "GET"), (":scheme", "https"));
    let rows: [Vec<(&str, &str)>; 14] = [
        vec![method, scheme, (":authority", &host), (":path", &other)],
        vec![method, scheme, (":authority", "attacked.projects.example"), (":path", SECRETS)],
        vec![method, scheme, (":authority", &host), (":path", &own), (":path", &other)],
        vec![method, scheme, (":authority", &host), (":path", &own), ("x", "y"), (":path", &other)],
        vec![method, scheme, (":authority", &host), (":path", &own), ("host", "attacked.projects.example")],
        vec![method, scheme, (":path", &other)],
        vec![method, scheme, (":authority", &host), (":path", "")],
        vec![method, scheme, (":authority", &host), (":path", "*")],
        vec![method, scheme, (":authority", &host), (":path", &own), (":status", "200")],
        vec![
            (":method", "GET /x HTTP/1.1\r\nx: y\r\n\r\nGET"),
            scheme,
            (":authority", &host),
            (":path", &other),
        ],
        vec![method, scheme, (":authority", &host), (":path", &own), ("x", "y\r\nx-remote-user: root")],
        vec![method, scheme, (":authority", &host), (":path", &own), ("transfer-encoding", "chunked")],
        vec![method, scheme, (":authority", &host), (":path", &own), ("X-Remote-User", "root")],
        vec![method, (":scheme", "https://x/projects/attacked/"), (":authority", &host), (":path", &other)],
    ];
    for row in rows {
        let mut wire = Wire::http2(&attacker);
        wire.frame(Frame::Headers, WHOLE, 1, &fields(&row)).expect("the frame is sent");
        let answer = answer_of(&mut wire, 1);
        assert!(!leaks(&answer), "{row:?}: {answer}");
    }
    let mut wire = Wire::http2(&victim);
    let row = [method, scheme, (":authority", &*host), (":path", &*other)];
    wire.frame(Frame::Headers, WHOLE, 1, &fields(&row)).expect("the frame is sent");
    assert!(leaks(&answer_of(&mut wire, 1)), "what was looked for is there");
}

/// Ends of messages on which two servers in a row could disagree (RFC 9112, section 6.1 and 11.2).
fn ambiguous() -> Vec<(&'static str, String)> {
    let hidden = format!("GET /projects/attacked{SECRETS} HTTP/1.1\r\nhost: hidden\r\n\r\n");
    let length = hidden.len() + 5;
    vec![
        (
            "both lengths",
            format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        ("two lengths", format!("content-length: 0\r\ncontent-length: {length}\r\n\r\n{hidden}")),
        ("a list of lengths", format!("content-length: 0, {length}\r\n\r\n{hidden}")),
        ("a signed length", format!("content-length: +{length}\r\n\r\n{hidden}")),
        ("a length in hexadecimal", format!("content-length: 0x5\r\n\r\n{hidden}")),
        ("an unknown encoding", format!("transfer-encoding: xchunked\r\n\r\n{hidden}")),
        (
            "an encoding after chunked",
            format!("transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        ("a space before the colon", format!("content-length : {length}\r\n\r\n{hidden}")),
        (
            "a folded line",
            format!("x: y\r\n transfer-encoding: chunked\r\ncontent-length: {length}\r\n\r\n{hidden}"),
        ),
        ("a bare CR", format!("x: y\rcontent-length: {length}\r\n\r\n{hidden}")),
        ("a NUL", format!("x: y\0z\r\ncontent-length: 0\r\n\r\n{hidden}")),
        (
            "a chunk that is too large to count",
            format!("transfer-encoding: chunked\r\n\r\n{}\r\n{hidden}", "f".repeat(17)),
        ),
        ("a chunk of a negative size", format!("transfer-encoding: chunked\r\n\r\n-1\r\n{hidden}")),
    ]
}

fn a_head_that_two_readers_would_read_differently_is_refused(world: &World) {
    let (attacker, victim) = parties(world);
    for (what, rest) in ambiguous() {
        let mut wire = Wire::http1(&attacker);
        let path = format!("/projects/attacker{SECRETS}");
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: {}\r\n{}{rest}", wire.authority, wire.authorization());
        let _ = wire.send(head.as_bytes());
        wire.end();
        let answer = wire.rest();
        assert!(!leaks(&answer), "{what}: {answer}");
        assert!(answer.matches("HTTP/1.1 ").count() <= 2, "{what}: {answer}");
        for part in answer.split("HTTP/1.1 ").skip(1) {
            assert!(part.starts_with('4'), "{what}: {answer}");
        }
    }
    assert_served(&victim);
}

fn what_is_hidden_in_a_body_never_reaches_a_server_behind(world: &World) {
    let (attacker, _) = parties(world);
    expose(&attacker, "smuggled", "localhost");
    let rogue = Rogue::start("smuggled.default.svc", |_| {
        Way::Json(
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v7"), "resources": []}),
        )
    });
    let service = json!({"namespace": "default", "name": "smuggled", "port": rogue.port()});
    let bundle = json!({"caBundle": BASE64_STANDARD.encode(rogue.ca_pem())});
    attacker.apply(&registration("v7", &service, &bundle).to_string());
    reason(&attacker, "v7", "Passed");
    let path = format!("/projects/attacker/apis/{GROUP}/v7/things");
    for (what, rest) in ambiguous() {
        let mut wire = Wire::http1(&attacker);
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: {}\r\n{}{rest}", wire.authority, wire.authorization());
        let _ = wire.send(head.as_bytes());
        wire.end();
        let answer = wire.rest();
        assert!(!leaks(&answer), "{what}: {answer}");
        for head in rogue.heads() {
            assert!(!head.contains("hidden") && !head.contains("attacked"), "{what}: {head}");
        }
    }
    until("it serves on", PATIENCE, || {
        let answer = ask(&attacker, "GET", &format!("/projects/attacker/apis/{GROUP}/v7/things"), "", "");
        (answer.contains("HTTP/1.1 200 ") && answer.contains("APIResourceList")).then_some(())
    });
}

fn heads_without_end_are_refused_and_others_are_served(world: &World) {
    let (attacker, victim) = parties(world);
    let path = format!("/projects/attacker{SECRETS}");
    let many = |count: usize, length: usize| {
        (0..count).map(|nth| format!("x-{nth}: {}\r\n", "y".repeat(length))).collect::<String>()
    };
    for (what, lines) in [
        ("a line of a megabyte", many(1, 1 << 20)),
        ("a hundred thousand lines", many(100_000, 1)),
        ("a name of a megabyte", format!("{}: y\r\n", "x".repeat(1 << 20))),
    ] {
        let answer = ask(&attacker, "GET", &path, &lines, "");
        assert!([0, 400, 431].contains(&code(&answer)), "{what}: {answer:.300}");
        assert_served(&victim);
    }
    let answer = ask(&attacker, "GET", &format!("{path}?x={}", "y".repeat(1 << 20)), "", "");
    assert!([0, 400, 414, 431].contains(&code(&answer)), "a target of a megabyte: {answer:.300}");
    assert_served(&victim);
}

fn continuations_without_end_are_cut_off(world: &World) {
    let (attacker, victim) = parties(world);
    let mut wire = Wire::http2(&attacker);
    wire.frame(Frame::Headers, 0, 1, &fields(&[(":method", "GET")])).expect("the frame is sent");
    let piece = fields(&[("x", &"y".repeat(16_000))]);
    // 160 MB, if nobody stopped it.
    let sent = (0..10_000).take_while(|_| wire.frame(Frame::Continuation, 0, 1, &piece).is_ok()).count();
    assert!(sent < 10_000, "a head of {sent} frames was taken");
    assert_served(&victim);
}

fn a_compressed_head_that_unfolds_without_end_is_refused(world: &World) {
    let (attacker, victim) = parties(world);
    let mut wire = Wire::http2(&attacker);
    let path = format!("/projects/attacker{SECRETS}");
    let host = wire.authority.clone();
    let head = fields(&[(":method", "GET"), (":scheme", "https"), (":authority", &host), (":path", &path)]);
    // A field of 4 KB that the server is to remember (RFC 7541, section 6.2.1), and then again in each byte (section 6.1):
    // 60 MB out of 16 KB.
    let mut remembered = fields(&[("x", &"y".repeat(4000))]);
    remembered[0] = 0x40;
    let first = [&*head, &remembered].concat();
    wire.frame(Frame::Headers, WHOLE, 1, &first).expect("the frame is sent");
    let bomb = [&*head, &[0xbe; 15_000]].concat();
    for nth in 1..100_u32 {
        if wire.frame(Frame::Headers, WHOLE, 2 * nth + 1, &bomb).is_err() {
            break;
        }
    }
    let answers = std::iter::from_fn(|| wire.next_frame()).take_while(|(_, _, stream, _)| *stream < 199);
    let answered: Vec<u32> =
        answers.filter(|(kind, ..)| *kind == Frame::Data as u8).map(|(_, _, stream, _)| stream).collect();
    assert!(answered.iter().all(|stream| *stream == 1), "heads of 60 MB are answered: {answered:?}");
    assert_served(&victim);
}

fn frames_without_end_stop_nobody(world: &World) {
    let (attacker, victim) = flood(world, "framing");
    let nothing: &[u8] = &[];
    // Stream 1 waits for the rest of its body.
    for (what, kind, stream, payload) in [
        ("pings", Frame::Ping, 0, &[0; 8][..]),
        ("settings", Frame::Settings, 0, nothing),
        ("settings that change", Frame::Settings, 0, &[0, 4, 0, 0, 1, 0]),
        ("a stream that goes before itself", Frame::Priority, 1, &[0, 0, 0, 1, 255]),
        ("a circle of streams", Frame::Priority, 3, &[0x80, 0, 0, 1, 255]),
        ("bodies of nothing", Frame::Data, 1, nothing),
        ("windows without end", Frame::WindowUpdate, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ("windows of nothing", Frame::WindowUpdate, 1, &[0; 4]),
        ("frames that nobody knows", Frame::Unknown, 0, &[0; 64]),
    ] {
        let mut wire = Wire::http2(&attacker);
        let host = wire.authority.clone();
        let path = format!("/projects/framing{SECRETS}");
        let head =
            fields(&[(":method", "POST"), (":scheme", "https"), (":authority", &host), (":path", &path)]);
        wire.frame(Frame::Headers, 4, 1, &head).expect("the frame is sent");
        let many = frame(kind, 0, stream, payload).repeat(500);
        // Answers to them are not read: a server that kept them all would grow by them.
        for _ in 0..100 {
            if wire.send(&many).is_err() {
                break;
            }
        }
        assert!(victim.run(&["get", "secret", "treasure"]).success, "{what}");
    }
    assert_eq!(code(&ask(&attacker, "GET", &format!("/projects/framing{SECRETS}"), "", "")), 200);
}

fn answers_that_nobody_takes_hold_up_nobody(world: &World) {
    let owner = world.project("untaken");
    let big = format!("--from-literal=key={}", "x".repeat(100_000));
    owner.ok(&["create", "configmap", "big", &big]);
    world.admin().apply(&(member("tests", "untaking", "viewer") + &member("tests", "waiting", "viewer")));
    let [attacker, victim] = ["untaking", "waiting"].map(|user| world.person(user, "/projects/untaken"));
    for user in [&attacker, &victim] {
        becomes(user, &["get", "configmaps", "-o", "name"], true);
    }
    let path = "/projects/untaken/api/v1/configmaps";
    let untaken: Vec<Wire> = (0..4)
        .map(|_| {
            let mut wire = Wire::http2(&attacker);
            // What the server may send before it is told more: nothing.
            wire.frame(Frame::Settings, 0, 0, &[0, 4, 0, 0, 0, 0]).expect("the frame is sent");
            let host = wire.authority.clone();
            let head = fields(&[
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", &host),
                (":path", path),
                ("accept", "application/yaml"),
            ]);
            for nth in 0..100_u32 {
                wire.frame(Frame::Headers, WHOLE, 2 * nth + 1, &head).expect("the frame is sent");
            }
            // That one is answered tells that the server has begun with them.
            let begun =
                std::iter::from_fn(|| wire.next_frame()).any(|(kind, ..)| kind == Frame::Headers as u8);
            assert!(begun, "the server answers");
            wire
        })
        .collect();
    until("another user of the project is served", PATIENCE, || {
        victim.run(&["get", "configmap", "big", "-o", "name"]).success.then_some(())
    });
    assert_served(&parties(world).1);
    drop(untaken);
}

/// Fields behind a body (RFC 9110, section 6.5) are never fields of the head.
fn what_comes_behind_a_body_makes_nobody_of_anybody(world: &World) {
    let (attacker, _) = parties(world);
    expose(&attacker, "trailed", "localhost");
    let rogue = Rogue::start("trailed.default.svc", |_| {
        Way::Json(
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v8"), "resources": []}),
        )
    });
    let service = json!({"namespace": "default", "name": "trailed", "port": rogue.port()});
    let bundle = json!({"caBundle": BASE64_STANDARD.encode(rogue.ca_pem())});
    attacker.apply(&registration("v8", &service, &bundle).to_string());
    reason(&attacker, "v8", "Passed");
    let forged = [
        ("x-remote-user", "behind-the-body"),
        ("x-remote-group", "system:masters"),
        ("impersonate-user", "behind-the-body"),
        ("authorization", "Bearer behind-the-body"),
    ];
    let names: Vec<&str> = forged.iter().map(|(name, _)| *name).collect();
    let lines: String = forged.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let places = [
        (WHO_AM_I, json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})),
        ("/apis/aggregated.example.com/v8/things", json!({})),
    ];
    for (path, body) in places {
        let (path, body) =
            (format!("/projects/attacker{path}").replace("aggregated.example.com", GROUP), body.to_string());
        let head = format!(
            "content-type: application/json\r\ntransfer-encoding: chunked\r\ntrailer: {}\r\n",
            names.join(", ")
        );
        let chunked = format!("{:x}\r\n{body}\r\n0\r\n{lines}\r\n", body.len());
        let answer = ask(&attacker, "POST", &path, &head, &chunked);
        assert!(matches!(code(&answer), 200..300) && !answer.contains("behind-the-body"), "{path}: {answer}");
        let mut wire = Wire::http2(&attacker);
        let host = wire.authority.clone();
        let head = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", &host),
            (":path", &path),
            ("content-type", "application/json"),
        ];
        wire.frame(Frame::Headers, 4, 1, &fields(&head)).expect("the frame is sent");
        wire.frame(Frame::Data, 0, 1, body.as_bytes()).expect("the frame is sent");
        wire.frame(Frame::Headers, WHOLE, 1, &fields(&forged)).expect("the frame is sent");
        let answer = answer_of(&mut wire, 1);
        assert!(!answer.contains("behind-the-body"), "{path}: {answer}");
    }
    for head in rogue.heads() {
        assert!(!head.contains("behind-the-body"), "{head}");
    }
}

fn rapid_resets_stop_nobody(world: &World) {
    let (attacker, victim) = flood(world, "resetting");
    let mut wire = Wire::http2(&attacker);
    let path = format!("/projects/resetting{SECRETS}");
    let host = wire.authority.clone();
    let head = fields(&[(":method", "GET"), (":scheme", "https"), (":authority", &host), (":path", &path)]);
    for nth in 0..20_000_u32 {
        let stream = 2 * nth + 1;
        let mut both = frame(Frame::Headers, WHOLE, stream, &head);
        both.extend(frame(Frame::Reset, 0, stream, &8_u32.to_be_bytes()));
        if wire.send(&both).is_err() {
            break;
        }
    }
    assert_served(&victim);
    assert_eq!(code(&ask(&attacker, "GET", &path, "", "")), 200, "a connection of its own is served again");
}

fn slow_bodies_and_heads_hold_up_nobody(world: &World) {
    let (attacker, victim) = flood(world, "dawdling");
    let path = format!("/projects/dawdling{SECRETS}");
    let slow: Vec<Wire> = (0..300)
        .map(|nth| {
            let mut wire = Wire::http1(&attacker);
            let (host, authorization) = (wire.authority.clone(), wire.authorization());
            let begun = match nth % 2 {
                0 => format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n"),
                _ => format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{authorization}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"),
            };
            wire.send(begun.as_bytes()).expect("it is sent");
            wire
        })
        .collect();
    for _ in 0..5 {
        assert_served(&victim);
        victim.ok(&["create", "configmap", "in-between"]);
        victim.ok(&["delete", "configmap", "in-between"]);
    }
    drop(slow);
}

fn thousands_of_watches_hold_up_nobody(world: &World) {
    let (attacker, victim) = flood(world, "watching");
    let path = "/projects/watching/api/v1/secrets?watch=1&timeoutSeconds=600";
    let watching: Vec<Wire> = (0..20)
        .map(|_| {
            let mut wire = Wire::http2(&attacker);
            let host = wire.authority.clone();
            let head =
                fields(&[(":method", "GET"), (":scheme", "https"), (":authority", &host), (":path", path)]);
            for nth in 0..100_u32 {
                wire.frame(Frame::Headers, WHOLE, 2 * nth + 1, &head).expect("the frame is sent");
            }
            wire
        })
        .collect();
    until("the victim is served while they are open", PATIENCE, || {
        assert_served(&victim);
        Some(())
    });
    let own = victim.background(&["get", "configmaps", "--watch-only", "-o", "name"]);
    until("the victim's own watch sees what happens", PATIENCE, || {
        victim.ok(&["create", "configmap", "seen"]);
        victim.ok(&["delete", "configmap", "seen"]);
        own.printed().contains("configmap/seen").then_some(())
    });
    drop(watching);
    assert_served(&victim);
}

/// 200 KB that become 200 MB.
fn bomb() -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(b"{\"metadata\":{\"name\":\"x\"},\"data\":{\"a\":\"").expect("memory");
    for _ in 0..200 {
        gzip.write_all(&vec![b'a'; 1_000_000]).expect("memory");
    }
    gzip.write_all(b"\"}}").expect("memory");
    gzip.finish().expect("memory")
}

fn deep_giant_and_compressed_bodies_are_refused(world: &World) {
    let (attacker, victim) = parties(world);
    let path = "/projects/attacker/api/v1/namespaces/default/configmaps";
    let post = |kind: &str, more: &str, body: &[u8]| {
        let mut wire = Wire::http1(&attacker);
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{}content-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n{more}\r\n",
            wire.authority,
            wire.authorization(),
            body.len()
        );
        let _ = wire.send(head.as_bytes()).and_then(|()| wire.send(body));
        wire.rest()
    };
    let deep = format!(
        "{{\"metadata\":{{\"name\":\"x\"}},\"x\":{}{}}}",
        "[".repeat(1_000_000),
        "]".repeat(1_000_000)
    );
    let aliases = "metadata: {name: x}\na: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned()
        + &('b'..='k').fold(String::new(), |text, c| {
            let before = char::from(c as u8 - 1);
            text + &format!("{c}: &{c} [{}]\n", vec![format!("*{before}"); 10].join(","))
        });
    let wide = format!("{{\"metadata\":{{\"name\":\"x\"}},\"x\":[{}1]}}", "1,".repeat(1_400_000));
    let bomb = bomb();
    for (what, kind, more, body) in [
        ("deep JSON", "application/json", "", deep.as_bytes()),
        ("YAML that unfolds", "application/yaml", "", aliases.as_bytes()),
        ("a bomb", "application/json", "content-encoding: gzip\r\n", &bomb),
        ("a giant", "application/json", "", "x".repeat(20 << 20).as_bytes()),
        (
            "protobuf that says it is larger",
            "application/vnd.kubernetes.protobuf",
            "",
            b"k8s\0\x0a\xff\xff\xff\xff\x0f".as_slice(),
        ),
    ] {
        let answer = post(kind, more, body);
        assert!([0, 400, 413, 415, 422].contains(&code(&answer)), "{what}: {answer:.300}");
        assert_served(&victim);
    }
    // Wide is no trick: an unknown field is left out, as in Kubernetes.
    let answer = post("application/json", "", wide.as_bytes());
    assert!([201, 400, 413, 422].contains(&code(&answer)), "{answer:.300}");
    assert_served(&victim);
}
