//! Flags of who is believed and who is asked what they may do, under kube-apiserver's names.

use freehold_apiserver::{AuthenticationConfig, TokenWebhookConfig};
use std::{path::PathBuf, time::Duration};

/// Who is believed besides those whom the authorities and the key of tokens vouch for.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthenticationArgs {
    /// Issuers of tokens, and what the anonymous may ask: an AuthenticationConfiguration of apiserver.config.k8s.io/v1. It
    /// is read again when it changes.
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// Whether requests need not say who asks, where the file does not say.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    anonymous_auth: bool,
    /// The kubeconfig of a server that is asked about tokens that nobody else knows.
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// How long its answers count.
    #[arg(long, default_value = "2m", value_name = "DURATION", value_parser = crate::audit::duration)]
    authentication_token_webhook_cache_ttl: Duration,
    /// Believe bootstrap tokens: Secrets of type bootstrap.kubernetes.io/token in a control plane's kube-system.
    #[arg(long)]
    enable_bootstrap_token_auth: bool,
}

impl AuthenticationArgs {
    /// Settings of the server.
    pub(crate) fn config(&self) -> AuthenticationConfig {
        let ttl = self.authentication_token_webhook_cache_ttl;
        let webhook = self.authentication_token_webhook_config_file.clone();
        AuthenticationConfig {
            file: self.authentication_config.clone(),
            anonymous: self.anonymous_auth,
            webhook: webhook.map(|config| TokenWebhookConfig { config, ttl }),
            bootstrap_tokens: self.enable_bootstrap_token_auth,
        }
    }
}

/// Who is asked what somebody may do.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Authorization")]
pub(crate) struct AuthorizationArgs {
    /// Webhooks that are asked before and behind the server's own rules: an AuthorizationConfiguration of
    /// apiserver.config.k8s.io/v1. It is read again when it changes.
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
}

impl AuthorizationArgs {
    /// Settings of the server.
    pub(crate) fn config(&self) -> Option<PathBuf> {
        self.authorization_config.clone()
    }
}
