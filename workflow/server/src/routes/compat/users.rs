//! Logins and users.

use super::{PAGE, pages, slice};
use crate::accounts::TOKEN_TTL_SECONDS;
use crate::app::App;
use crate::caller::{COMPAT_COOKIE_NAME, Caller};
use crate::reply::{Failure, Reply, empty, json, with};
use crate::routes::accounts::{
    Login, NewAccount, NewPassword, admin, cookie, create_for, remove_for, set_password,
};
use crate::routes::{Body, body};
use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use freehold_workflow_store::Account;
use http::StatusCode;
use http::header::SET_COOKIE;
use serde_json::json as value;
use std::sync::Arc;

pub(super) async fn login(State(app): State<Arc<App>>, login: Body<Login>) -> Reply {
    let login = body(login)?;
    let (token, account) = app.login(&login.name, &login.password).await?;
    let cookie = cookie(&app, COMPAT_COOKIE_NAME, &token, TOKEN_TTL_SECONDS);
    Ok(([(SET_COOKIE, cookie)], json(&value!({"role": account.role}))).into_response())
}

pub(super) async fn check(State(_): State<Arc<App>>, caller: Caller) -> Reply {
    match caller {
        Caller::Known { name, role, .. } => Ok(json(&value!({"username": name, "role": role}))),
        Caller::Forwarded { .. } => Err(Failure::not_found("this server has no accounts")),
    }
}

pub(super) async fn logout(State(app): State<Arc<App>>, caller: Caller) -> Reply {
    if let Caller::Known { token, .. } = &caller {
        app.database.end_token(token).await?;
    }
    Ok((StatusCode::ACCEPTED, [(SET_COOKIE, cookie(&app, COMPAT_COOKIE_NAME, "", 0))]).into_response())
}

pub(super) async fn create(State(app): State<Arc<App>>, caller: Caller, new: Body<NewAccount>) -> Reply {
    match create_for(&app, &caller, body(new)?).await {
        Ok(()) => Ok(empty(StatusCode::CREATED)),
        Err(failure) if failure.0.code == 400 => {
            Ok(with(StatusCode::BAD_REQUEST, &value!({"message": failure.0.message})))
        }
        Err(failure) => Err(failure),
    }
}

pub(super) async fn password(State(app): State<Arc<App>>, caller: Caller, new: Body<NewPassword>) -> Reply {
    set_password(&app, &caller, body(new)?).await?;
    Ok(empty(StatusCode::CREATED))
}

/// The first 500 accounts.
async fn accounts(app: &App, caller: &Caller) -> Reply<Vec<Account>> {
    admin(caller)?;
    let mut all: Vec<Account> = Vec::new();
    for _ in 0..5 {
        let after = all.last().map(|account| account.name.clone()).unwrap_or_default();
        let some = app.database.accounts(&after).await?;
        let is_last = some.len() < 10 * PAGE;
        all.extend(some);
        if is_last {
            break;
        }
    }
    Ok(all)
}

pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller, Path(page): Path<usize>) -> Reply {
    let shown = |account: Account| value!({"username": account.name, "role": account.role});
    let users: Vec<_> = slice(accounts(&app, &caller).await?, page).into_iter().map(shown).collect();
    Ok(json(&value!({"users": users})))
}

pub(super) async fn count(State(app): State<Arc<App>>, caller: Caller) -> Reply {
    Ok(json(&pages(accounts(&app, &caller).await?.len())))
}

pub(super) async fn remove(State(app): State<Arc<App>>, caller: Caller, Path(user): Path<String>) -> Reply {
    remove_for(&app, &caller, &user).await?;
    Ok(empty(StatusCode::OK))
}
