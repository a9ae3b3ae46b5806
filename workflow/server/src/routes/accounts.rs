//! Logins and local accounts.

use super::{Body, body};
use crate::accounts::{TOKEN_TTL_SECONDS, check_password, create_account, hash_password};
use crate::app::App;
use crate::caller::{COOKIE_NAME, Caller};
use crate::reply::{Failure, Reply, empty, json, with};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use freehold_workflow_store::Role;
use http::StatusCode;
use http::header::SET_COOKIE;
use serde::Deserialize;
use serde_json::json as value;
use std::sync::Arc;

/// A name and a password.
#[derive(Deserialize)]
pub(crate) struct Login {
    #[serde(alias = "username")]
    pub(crate) name: String,
    pub(crate) password: String,
}

/// A cookie that scripts can't read and other sites can't send.
pub(crate) fn cookie(app: &App, name: &str, token: &str, seconds: i64) -> String {
    let secure = if app.secure_cookies { "; Secure" } else { "" };
    format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

pub(crate) async fn login(State(app): State<Arc<App>>, login: Body<Login>) -> Reply {
    let login = body(login)?;
    let (token, account) = app.login(&login.name, &login.password).await?;
    let cookie = cookie(&app, COOKIE_NAME, &token, TOKEN_TTL_SECONDS);
    let answer = value!({"token": token, "expiresInSeconds": TOKEN_TTL_SECONDS, "name": account.name, "role": account.role});
    Ok(([(SET_COOKIE, cookie)], json(&answer)).into_response())
}

pub(crate) async fn logout(State(app): State<Arc<App>>, caller: Caller) -> Reply {
    if let Caller::Known { token, .. } = &caller {
        app.database.end_token(token).await?;
    }
    Ok(([(SET_COOKIE, cookie(&app, COOKIE_NAME, "", 0))], empty(StatusCode::NO_CONTENT)).into_response())
}

/// Issues another token in place of the caller's.
pub(crate) async fn rotate(State(app): State<Arc<App>>, caller: Caller) -> Reply {
    let Caller::Known { name, token, .. } = &caller else { return Err(no_accounts()) };
    if token.is_empty() {
        return Err(Failure::bad_request("the issuer gives out your tokens"));
    }
    let new = app.issue_token(name).await?;
    app.database.end_token(token).await?;
    let cookie = cookie(&app, COOKIE_NAME, &new, TOKEN_TTL_SECONDS);
    Ok(([(SET_COOKIE, cookie)], json(&value!({"token": new, "expiresInSeconds": TOKEN_TTL_SECONDS})))
        .into_response())
}

fn no_accounts() -> Failure {
    Failure::not_found("this server has no accounts: the Kubernetes API knows its callers")
}

pub(crate) async fn own(State(_): State<Arc<App>>, caller: Caller) -> Reply {
    match caller {
        Caller::Known { name, role, .. } => Ok(json(&value!({"name": name, "role": role}))),
        Caller::Forwarded { .. } => Err(no_accounts()),
    }
}

/// A new password, with the one before.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewPassword {
    old_password: String,
    password: String,
}

/// Sets a password. All tokens of the account end.
pub(crate) async fn set_password(app: &App, caller: &Caller, new: NewPassword) -> Reply<()> {
    let Caller::Known { name, .. } = caller else { return Err(no_accounts()) };
    check_password(&new.password).map_err(Failure::bad_request)?;
    app.login(name, &new.old_password).await?;
    let hash = hash_password(new.password).await.map_err(|why| Failure::new(500, "InternalError", why))?;
    app.database.set_password(name, &hash).await?;
    Ok(())
}

pub(crate) async fn password(State(app): State<Arc<App>>, caller: Caller, new: Body<NewPassword>) -> Reply {
    set_password(&app, &caller, body(new)?).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// After which name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct After {
    after: String,
}

pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, Query(query): Query<After>) -> Reply {
    admin(&caller)?;
    let accounts = app.database.accounts(&query.after).await?;
    let next = accounts.last().filter(|_| accounts.len() == 100).map(|account| account.name.clone());
    let items: Vec<_> =
        accounts.iter().map(|account| value!({"name": account.name, "role": account.role})).collect();
    Ok(json(&value!({"items": items, "next": next})))
}

/// An account to be made.
#[derive(Deserialize)]
pub(crate) struct NewAccount {
    #[serde(alias = "username")]
    name: String,
    password: String,
    role: Role,
}

/// Creates an account for an admin.
pub(crate) async fn create_for(app: &App, caller: &Caller, new: NewAccount) -> Reply<()> {
    admin(caller)?;
    create_account(&app.database, &new.name, &new.password, new.role).await.map_err(Failure::bad_request)
}

pub(crate) async fn create(State(app): State<Arc<App>>, caller: Caller, new: Body<NewAccount>) -> Reply {
    let new = body(new)?;
    let answer = value!({"name": new.name, "role": new.role});
    create_for(&app, &caller, new).await?;
    Ok(with(StatusCode::CREATED, &answer))
}

/// Deletes an account for an admin, who can't delete their own.
pub(crate) async fn remove_for(app: &App, caller: &Caller, name: &str) -> Reply<()> {
    admin(caller)?;
    if matches!(caller, Caller::Known { name: own, .. } if own == name) {
        return Err(Failure::bad_request("you can't delete your own account"));
    }
    match app.database.delete_account(name).await? {
        true => Ok(()),
        false => Err(Failure::not_found(format!("there is no account {name:?}"))),
    }
}

pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Reply<Response> {
    remove_for(&app, &caller, &name).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Checks that a caller manages accounts.
pub(crate) fn admin(caller: &Caller) -> Reply<()> {
    match caller {
        Caller::Known { .. } => caller.wants(Role::Admin),
        Caller::Forwarded { .. } => Err(no_accounts()),
    }
}
