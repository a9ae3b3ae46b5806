//! Which admission plugins a server runs, and who it is to the webhooks that they ask.

use anyhow::{Result, bail};
use freehold_apiserver::{Switches, WebhookCredentials};
use freehold_provisioner::plan::AdmissionPlugins;
use std::path::PathBuf;

/// The flags of kube-apiserver about admission.
#[derive(Clone, clap::Args)]
pub(crate) struct AdmissionArgs {
    /// Admission plugins to run in addition to the default ones, separated by commas.
    #[arg(long = "enable-admission-plugins", value_name = "NAMES", value_delimiter = ',')]
    enable: Vec<String>,
    /// Default admission plugins not to run, separated by commas.
    #[arg(long = "disable-admission-plugins", value_name = "NAMES", value_delimiter = ',')]
    disable: Vec<String>,
    /// An AdmissionConfiguration: certificates and tokens for calls to webhooks.
    #[arg(long = "admission-control-config-file", value_name = "FILE")]
    configuration: Option<PathBuf>,
}

impl AdmissionArgs {
    /// Which plugins are switched on and off; an error where that makes no sense.
    pub(crate) fn switches(&self) -> Result<Switches> {
        let switches = Switches { enable: self.enable.clone(), disable: self.disable.clone() };
        match switches.check() {
            Ok(()) => Ok(switches),
            Err(why) => bail!(why),
        }
    }

    /// Who the server is to webhooks: nobody, unless a file says so.
    pub(crate) fn credentials(&self) -> Result<WebhookCredentials> {
        let opened = self.configuration.as_deref().map(WebhookCredentials::open).transpose()?;
        Ok(opened.unwrap_or_default())
    }

    /// The plugins and the webhook credentials that dedicated pairs run with.
    pub(crate) fn plugins(&self) -> Result<AdmissionPlugins> {
        let configuration = self.credentials()?.document();
        Ok(AdmissionPlugins { enable: self.enable.clone(), disable: self.disable.clone(), configuration })
    }
}
