//! The authorization code flow with PKCE (RFC 7636) for a program on a person's machine (RFC 8252): a browser signs in and
//! comes back to an address of this machine.

use super::{cache::Tokens, issuer::Issuer};
use crate::terminal::plain;
use anyhow::{Context as _, Result, bail, ensure};
use freehold_gateway::openid::{challenge, field, form, fresh};
use std::{
    process::{Command, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// How long a person has.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a browser has to send its request.
const REQUEST: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const LONGEST: usize = 16 << 10;
const CALLBACK: &str = "/callback";
/// What a person sees at the end. Nothing of the request is in it.
const PAGE: &str = "<!doctype html><meta charset=utf-8><title>Freehold</title>\
    <p style=\"font:16px sans-serif;margin:4em\">You can close this window and go on in your terminal.\n";

/// Signs in with a browser, which is started where that is wished.
pub(super) async fn sign_in(issuer: &Issuer, port: u16, start: bool) -> Result<Tokens> {
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .with_context(|| format!("port {port} of this machine can't be had; --device needs none"))?;
    let redirect = format!("http://127.0.0.1:{}{CALLBACK}", listener.local_addr()?.port());
    let (state, verifier, nonce) = (fresh(), fresh(), fresh());
    let query = form(&[
        ("response_type", "code"),
        ("client_id", issuer.client_id()),
        ("redirect_uri", &redirect),
        ("scope", issuer.scope()),
        ("state", &state),
        ("nonce", &nonce),
        ("code_challenge", &challenge(&verifier)),
        ("code_challenge_method", "S256"),
    ]);
    let endpoint = issuer.endpoint("authorization_endpoint")?;
    let url = format!("{endpoint}{}{query}", if endpoint.contains('?') { '&' } else { '?' });
    eprintln!("Sign in at {}", plain(&url));
    if start {
        open(&url);
    }
    let back = timeout(PATIENCE, callback(&listener, &state)).await.context("nobody signed in in time")??;
    if let Some(iss) = field(&back, "iss") {
        ensure!(issuer.is_named(&iss), "the answer is of another issuer: {}", plain(iss));
    }
    let Some(code) = field(&back, "code") else {
        let why = field(&back, "error_description").or_else(|| field(&back, "error"));
        bail!("the issuer refused: {}", plain(why.unwrap_or_default()))
    };
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", &redirect),
        ("code_verifier", &verifier),
    ];
    issuer.tokens(&fields, Some(&nonce)).await
}

/// The query with which a browser comes back to this sign-in. Whatever else asks is refused.
async fn callback(listener: &TcpListener, state: &str) -> Result<String> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let Ok(Ok(target)) = timeout(REQUEST, target(&mut stream)).await else { continue };
        let query = target.strip_prefix(CALLBACK).and_then(|rest| rest.strip_prefix('?'));
        let ours = query.filter(|query| field(query, "state").as_deref() == Some(state));
        let (status, body) = if ours.is_some() { ("200 OK", PAGE) } else { ("404 Not Found", "") };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\nReferrer-Policy: no-referrer\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            body.len()
        );
        // Whether the page arrives is not what the sign-in depends on.
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        let _ = stream.shutdown().await;
        if let Some(query) = ours {
            return Ok(query.to_owned());
        }
    }
}

/// Path and query of a `GET`.
async fn target(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut chunk).await?;
        ensure!(read > 0 && head.len() < LONGEST, "no request");
        head.extend_from_slice(&chunk[..read]);
    }
    let text = String::from_utf8(head)?;
    let mut words = text.split_whitespace();
    ensure!(words.next() == Some("GET"), "another method");
    Ok(words.next().unwrap_or_default().to_owned())
}

/// Starts the person's browser, where there is one.
fn open(url: &str) {
    let program = std::env::var("BROWSER").unwrap_or_default();
    let program = match (program.is_empty(), cfg!(target_os = "macos")) {
        (false, _) => program,
        (true, true) => "open".to_owned(),
        (true, false) => "xdg-open".to_owned(),
    };
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if started.is_err() {
        eprintln!("No browser could be started: visit the address above.");
    }
}
