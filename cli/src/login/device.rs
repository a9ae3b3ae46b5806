//! The device flow (RFC 8628): a person signs in on any machine, with a code.

use super::{
    cache::Tokens,
    issuer::{Issuer, Refused},
};
use crate::terminal::plain;
use anyhow::{Context as _, Result, bail};
use std::time::{Duration, Instant};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Seconds between two questions, where the issuer names none, and how many more it gets when it asks for that.
const INTERVAL: u64 = 5;
/// The longest that a code is waited for.
const PATIENCE: u64 = 1800;

/// Shows a code, and asks the issuer until the person is through.
pub(super) async fn sign_in(issuer: &Issuer) -> Result<Tokens> {
    let begun = issuer.post("device_authorization_endpoint", &[("scope", issuer.scope())]).await?;
    let text = |field: &str| begun[field].as_str().with_context(|| format!("the issuer gave no {field}"));
    let (code, device) = (text("user_code")?, text("device_code")?);
    match begun["verification_uri_complete"].as_str() {
        Some(whole) => eprintln!("Visit {} and check the code {}.", plain(whole), plain(code)),
        None => eprintln!("Visit {} and type in the code {}.", plain(text("verification_uri")?), plain(code)),
    }
    let seconds = begun["expires_in"].as_u64().unwrap_or(PATIENCE).min(PATIENCE);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut interval = begun["interval"].as_u64().unwrap_or(INTERVAL).clamp(1, 60);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(interval)).await;
        match issuer.tokens(&[("grant_type", GRANT), ("device_code", device)], None).await {
            Ok(tokens) => return Ok(tokens),
            Err(error) => match error.downcast_ref::<Refused>().map(|refused| refused.code.as_str()) {
                Some("authorization_pending") => {}
                Some("slow_down") => interval += INTERVAL,
                _ => return Err(error),
            },
        }
    }
    bail!("nobody typed in the code in time")
}
