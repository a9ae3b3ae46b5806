//! Where a user signs in.

use std::path::PathBuf;

/// An issuer, and the program's client there.
#[derive(Clone, clap::Args)]
pub(crate) struct At {
    /// The issuer's URL.
    #[arg(long, value_name = "URL")]
    pub(super) issuer_url: String,
    /// The client id at that issuer: an audience that the server accepts.
    #[arg(long, value_name = "ID")]
    pub(super) client_id: String,
    /// File with the client's secret, for a confidential client.
    #[arg(long, value_name = "FILE")]
    pub(super) client_secret_file: Option<PathBuf>,
    /// File with the authority of the issuer's certificate. Default: those that this machine trusts.
    #[arg(long, value_name = "FILE")]
    pub(super) issuer_ca: Option<PathBuf>,
    /// Scopes to ask for besides openid. Many issuers give tokens that can be renewed for offline_access alone.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "profile,email")]
    pub(super) scopes: Vec<String>,
}
