//! Flags of who is believed and who is asked what they may do, under kube-apiserver's names.

use freehold_apiserver::{AuthenticationConfig, TokenWebhookConfig};
use std::{path::PathBuf, time::Duration};

/// Who is believed besides those whom the authorities and the key of tokens vouch for.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthenticationArgs {
    /// An AuthenticationConfiguration of apiserver.config.k8s.io/v1: issuers of tokens, and paths for anonymous
    /// requests. The server follows changes of the file.
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// Whether anonymous requests are accepted, where the configuration file does not decide.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    anonymous_auth: bool,
    /// Kubeconfig of a webhook that reviews tokens which no other authenticator accepts.
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// Time for which the webhook's answers are cached.
    #[arg(long, default_value = "2m", value_name = "DURATION", value_parser = crate::audit::duration)]
    authentication_token_webhook_cache_ttl: Duration,
    /// Accept bootstrap tokens: Secrets of type bootstrap.kubernetes.io/token in a control plane's kube-system.
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
    /// An AuthorizationConfiguration of apiserver.config.k8s.io/v1: webhooks before and after the server's own rules.
    /// The server follows changes of the file.
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
}

impl AuthorizationArgs {
    /// Settings of the server.
    pub(crate) fn config(&self) -> Option<PathBuf> {
        self.authorization_config.clone()
    }
}
