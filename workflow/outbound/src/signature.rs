//! Signatures of webhooks, as the Standard Webhooks specification has them: headers `webhook-id`, `webhook-timestamp` and
//! `webhook-signature`.
//!
//! <https://www.standardwebhooks.com>

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The signature of a body that is sent under an id at a time (seconds since 1970): `v1,` and the Base64 of the HMAC-SHA256 of
/// `ID.SECONDS.BODY`.
pub fn sign(secret: &[u8], id: &str, seconds: i64, body: &[u8]) -> String {
    let mut text = format!("{id}.{seconds}.").into_bytes();
    text.extend_from_slice(body);
    let made = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &text);
    format!("v1,{}", BASE64.encode(made.as_ref()))
}

/// The key of a secret as it is written: the part behind `whsec_` is Base64, anything else stands for itself.
pub fn key(secret: &str) -> Vec<u8> {
    let secret = secret.trim();
    match secret.strip_prefix("whsec_").map(|text| BASE64.decode(text)) {
        Some(Ok(key)) => key,
        _ => secret.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        // The example of the specification's reference libraries.
        let secret = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
        assert_eq!(key(" plain\n"), b"plain");
    }
}
