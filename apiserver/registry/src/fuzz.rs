//! What must hold for whatever a client sends as a continue token.

use crate::list::Token;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use freehold_machinery::PlaneId;
use freehold_tests_fuzz::Fuzz;

#[test]
fn a_continue_token_that_is_read_reads_back_as_it_is_written() {
    let seeds = [
        Token::encode(7, "default/a"),
        Token::encode(0, "b"),
        Token::across(u64::MAX, &PlaneId::core(), "default/a"),
    ];
    // Tokens are tried as text and, so that something gets through, as what they are made of.
    let inner = [
        r#"{"v":"freehold/v1","rv":7,"start":"default/a"}"#,
        r#"{"v":"freehold/v1","rv":1,"start":"a","plane":"core"}"#,
    ];
    let seeds = seeds.into_iter().chain(inner.map(str::to_owned)).map(String::into_bytes);
    let words = [
        "\"rv\":",
        "\"start\":",
        "\"plane\":",
        "freehold/v1",
        "..",
        "/",
        "null",
        "-1",
        "18446744073709551616",
    ];
    Fuzz::new("continue tokens", seeds, 30_000).words(&words).run(|bytes| {
        let text = match bytes.first() {
            Some(b'{') => BASE64_URL_SAFE_NO_PAD.encode(bytes),
            _ => String::from_utf8_lossy(bytes).into_owned(),
        };
        match Token::decode(&text) {
            Ok(token) => {
                let again = Token::decode(&token.text()).expect("a token of ours");
                assert_eq!(
                    (again.rv, &again.start, again.plane().ok()),
                    (token.rv, &token.start, token.plane().ok())
                );
                assert!(token.start.split('/').count() <= 2 && !token.start.contains(".."));
                format!("read {}", token.plane().is_ok())
            }
            Err(status) => status.message,
        }
    });
}
