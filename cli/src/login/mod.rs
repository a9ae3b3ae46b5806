//! `freehold login` and `freehold token`: signing in at an OpenID Connect issuer, and the plugin with which kubectl, Helm
//! and client libraries send the token.
//!
//! ```text
//! login --> issuer: discovery --> browser (code flow with PKCE) or device flow --> tokens --> cache, 0600
//!      \-> kubeconfig: a user whose plugin is `freehold token`
//! kubectl --> freehold token --> cache, renewed at the issuer when due --> ExecCredential
//! ```
//! Whether a token counts says the server, which knows the same issuer (`--authentication-config`, `IdentityProvider`).

mod at;
mod browser;
mod cache;
mod device;
mod issuer;

use crate::{
    kubeconfig::{
        EXEC_VERSION,
        change::{Additions, Files, free_name},
        own,
    },
    terminal::plain,
};
use anyhow::{Context as _, Result, bail};
use at::At;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use cache::Cache;
use freehold_machinery::Value;
use issuer::Issuer;
use serde_json::json;
use std::{
    path::{Path, PathBuf, absolute},
    time::SystemTime,
};

/// Flags of `freehold login`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    /// Shows a code to type in on another machine, in place of a browser here.
    #[arg(long)]
    device: bool,
    /// Starts no browser; prints the address to visit.
    #[arg(long, conflicts_with = "device")]
    no_browser: bool,
    /// The port of this machine to which the browser comes back, where the issuer wants a certain one: it is sent to
    /// http://127.0.0.1:PORT/callback. Default: any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0, conflicts_with = "device")]
    port: u16,
    /// The server's URL. Default: that of the kubeconfig's current context.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// File with the authority of the server's certificate, for --server.
    #[arg(long, value_name = "FILE", requires = "server")]
    server_ca: Option<PathBuf>,
    /// The name of the context and the user in the kubeconfig. Default: oidc@ and the issuer's host.
    #[arg(long)]
    name: Option<String>,
    /// The file to change. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig or ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Flags of `freehold token`.
#[derive(clap::Args)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    at: At,
}

/// Signs in, keeps the tokens, and makes them the current context of a kubeconfig.
///
/// # Errors
/// The issuer refuses or can't be reached, or the kubeconfig can't be changed.
pub(crate) async fn login(args: Args) -> Result<()> {
    let issuer = Issuer::find(&args.at).await?;
    let tokens = if args.device {
        device::sign_in(&issuer).await?
    } else {
        browser::sign_in(&issuer, args.port, !args.no_browser).await?
    };
    let claims = freehold_gateway::openid::claims(&tokens.id_token).unwrap_or_default();
    let who = ["email", "preferred_username", "sub"].iter().find_map(|claim| claims[*claim].as_str());
    let who = plain(who.unwrap_or("somebody")).to_string();
    Cache::of(&args.at)?.lock()?.write(&tokens)?;
    let files = Files::chosen(args.kubeconfig.clone());
    let name = args.name.clone().unwrap_or_else(|| format!("oidc@{}", issuer.host()));
    let context = files.change(|merged| additions(merged, &args, &name))?;
    println!("Signed in as {who}. Switched to context {context:?} in {}.", files.first().display());
    Ok(())
}

/// Prints the token as plugins of kubeconfigs do. One that is due is renewed first.
///
/// # Errors
/// Nobody has signed in here, or the issuer no longer renews.
pub(crate) async fn token(args: TokenArgs) -> Result<()> {
    let cache = Cache::of(&args.at)?.lock()?;
    let again = "sign in with `freehold login`";
    let Some(mut tokens) = cache.read()? else {
        bail!("nobody has signed in at {}: {again}", args.at.issuer_url)
    };
    if tokens.is_due(SystemTime::now()) {
        let issuer = Issuer::find(&args.at).await?;
        tokens = issuer.renew(&tokens).await.with_context(|| format!("the token has expired: {again}"))?;
        cache.write(&tokens)?;
    }
    let until = jiff::Timestamp::try_from(tokens.expires())?.round(jiff::Unit::Second)?;
    let status = json!({"token": tokens.id_token, "expirationTimestamp": until.to_string()});
    println!("{}", json!({"apiVersion": EXEC_VERSION, "kind": "ExecCredential", "status": status}));
    Ok(())
}

/// A user with the plugin, and a context with it for the server: the named one, or that of the current context.
fn additions(merged: &Value, args: &Args, name: &str) -> Result<Additions> {
    let user = Some(json!({"name": name, "user": {"exec": plugin(&args.at)?}}));
    let Some(server) = &args.server else {
        let current = merged["current-context"].as_str().unwrap_or_default();
        let context = own::entry(merged, "contexts", "context", current);
        let mut context = context.context("name the server with --server")?.clone();
        let cluster = context["cluster"].as_str().unwrap_or_default();
        let cluster = own::entry(merged, "clusters", "cluster", cluster)?;
        let to = free_name(merged, name, cluster["server"].as_str().unwrap_or_default());
        context["user"] = name.into();
        return Ok(Additions { cluster: None, user, context: json!({"name": to, "context": context}) });
    };
    let server = server.trim_end_matches('/');
    let mut cluster = json!({"server": server});
    if let Some(path) = &args.server_ca {
        cluster["certificate-authority-data"] = BASE64_STANDARD.encode(crate::store::read(path)?).into();
    }
    let to = free_name(merged, name, server);
    Ok(Additions {
        cluster: Some(json!({"name": to, "cluster": cluster})),
        user,
        context: json!({"name": to, "context": {"cluster": to, "user": name}}),
    })
}

/// The `exec` of a kubeconfig's user: this program, by the name under which it was called.
fn plugin(at: &At) -> Result<Value> {
    let called = std::env::args_os().next().unwrap_or_default();
    let called = Path::new(&called);
    let in_path = called.components().count() == 1;
    let command = if in_path { called.to_owned() } else { absolute(called)? };
    let command = command.to_str().context("this program's path is no text")?;
    let mut args = vec![
        "token".to_owned(),
        format!("--issuer-url={}", at.issuer_url),
        format!("--client-id={}", at.client_id),
        format!("--scopes={}", at.scopes.join(",")),
    ];
    for (flag, path) in [("client-secret-file", &at.client_secret_file), ("issuer-ca", &at.issuer_ca)] {
        if let Some(path) = path {
            args.push(format!("--{flag}={}", absolute(path)?.display()));
        }
    }
    Ok(json!({
        "apiVersion": EXEC_VERSION, "command": command, "args": args, "interactiveMode": "Never",
        "installHint": "`freehold` signs in here: put it into the PATH",
    }))
}
