//! What must hold for whatever a client sends as a continue token.

use crate::{
    TokenSecrets,
    token::{
        Seal, Token,
        tests::{asking, list_of},
    },
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use freehold_machinery::PlaneId;
use freehold_tests_fuzz::Fuzz;

#[test]
fn only_sealed_continue_tokens_open_and_only_for_their_list() {
    let secrets = TokenSecrets::default();
    let op = list_of("ann", &PlaneId::core(), "default");
    let other = list_of("ann", &PlaneId::infra(), "default");
    let own = [Token::new(7, "default/a"), Token::across(u64::MAX, &PlaneId::core(), "default/a")];
    let seal = |token: &Token| Seal::new(&secrets, &op, &asking(""), "").seal(token).expect("a secret");
    let sealed = own.each_ref().map(seal);
    // Tokens are tried as text and, so that something gets through, as what they are made of.
    let inner = [
        br#"{"v":"meta.k8s.io/v1","rv":7,"start":"default/a"}"#.to_vec(),
        BASE64_URL_SAFE_NO_PAD.decode(&sealed[0]).expect("a token of ours"),
    ];
    let seeds = sealed.into_iter().map(String::into_bytes).chain(inner);
    let words = ["\"rv\":", "\"v\":", "meta.k8s.io/v1", "..", "/", "null", "\u{1}"];
    Fuzz::new("continue tokens", seeds, 30_000).words(&words).run(|bytes| {
        let text = match bytes.first() {
            Some(b'{' | 1) => BASE64_URL_SAFE_NO_PAD.encode(bytes),
            _ => String::from_utf8_lossy(bytes).into_owned(),
        };
        let foreign = Seal::new(&secrets, &other, &asking(&text), "").open();
        assert!(foreign.is_err() || text.is_empty(), "{text} opens for another plane");
        match Seal::new(&secrets, &op, &asking(&text), "").open() {
            Ok(Some(token)) => {
                assert!(own.contains(&token), "{token:?} was never sealed");
                format!("read {}", token.plane().is_ok())
            }
            Ok(None) => "none".to_owned(),
            Err(status) => {
                assert_eq!(status.code, 400);
                status.message
            }
        }
    });
}
