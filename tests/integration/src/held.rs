//! A request on a connection of its own, which is held open for as long as a test wants.

use crate::wire::Wire;
use freehold_tests_harness::Kubectl;

/// An HTTP/1.1 request that was sent.
pub struct Held(Wire);

impl Held {
    /// Gets a URL with the credentials of a `kubectl`, and with further lines in the request's head.
    pub fn get(kubectl: &Kubectl, url: &str, lines: &[&str]) -> Self {
        let rest = url.strip_prefix("https://").expect("a URL over TLS");
        let (authority, path) = rest.split_once('/').expect("a URL with a path");
        let mut wire = Wire::http1_at(kubectl, authority);
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let authorization = wire.authorization();
        let head = format!("GET /{path} HTTP/1.1\r\nhost: {authority}\r\n{authorization}{lines}\r\n");
        wire.send(head.as_bytes()).expect("the request is sent");
        Self(wire)
    }

    /// The head of the answer.
    pub fn head(&mut self) -> String {
        self.0.head()
    }

    /// Sends something on an upgraded connection, and gives as much as comes back.
    pub fn echo(&mut self, text: &str) -> String {
        self.0.send(text.as_bytes()).expect("the connection is open");
        String::from_utf8_lossy(&self.0.exactly(text.len())).into_owned()
    }
}
