//! Flags of connections and browsers.

use anyhow::{Context, Result, ensure};
use freehold_apiserver::{Origins, Transport};

/// What connections have to show, and what browsers may do.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct TransportArgs {
    /// Origins whose pages may send requests from browsers: regular expressions for `Origin`, separated by commas, each
    /// with the beginning (`^` or `//`) and end (`$` or `:`) of a host. None by default.
    #[arg(long, value_delimiter = ',', value_name = "EXPRESSIONS")]
    cors_allowed_origins: Vec<String>,
    /// Directives of `Strict-Transport-Security` for browsers, with commas between them: `max-age=31536000,includeSubDomains`.
    #[arg(long, value_delimiter = ',', value_name = "DIRECTIVES")]
    strict_transport_security_directives: Vec<String>,
    /// Refuse, in the TLS handshake, clients without a certificate of the client or front proxy authority: a token
    /// alone is not enough then.
    #[arg(long)]
    require_client_certificates: bool,
}

impl TransportArgs {
    /// Settings of the server.
    pub(crate) fn config(&self) -> Result<Transport> {
        let directives = &self.strict_transport_security_directives;
        for directive in directives {
            let known = ["includeSubDomains", "preload"].contains(&directive.as_str());
            let age = directive.strip_prefix("max-age=").is_some_and(|age| age.parse::<u64>().is_ok());
            ensure!(
                known || age,
                "--strict-transport-security-directives: {directive:?} is none of max-age=SECONDS, includeSubDomains and preload"
            );
        }
        Ok(Transport {
            origins: Origins::parse(&self.cors_allowed_origins).context("--cors-allowed-origins")?,
            strict_transport: directives.join("; "),
            certificates_only: self.require_client_certificates,
        })
    }
}
