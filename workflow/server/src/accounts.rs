//! Local accounts: passwords, logins, tokens.

use crate::app::App;
use crate::caller::hash;
use crate::reply::{Failure, Reply};
use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher as _, PasswordVerifier as _, SaltString};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use freehold_workflow_store::{Account, Database, Role, TokenRecord};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long a token lasts.
pub(crate) const TOKEN_TTL_SECONDS: i64 = 12 * 3600;
/// Failed logins of a name within [`WINDOW`].
const MAX_FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(600);
/// Names whose failures are counted.
const NAMES: usize = 10_000;
/// Passwords that are hashed at once: each takes 19 MiB and 20 ms.
const HASHING: usize = 2;

/// Failed logins by name.
#[derive(Debug)]
pub(crate) struct Attempts {
    failures: Mutex<HashMap<String, (Instant, u32)>>,
    hashing: Semaphore,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { failures: Mutex::default(), hashing: Semaphore::new(HASHING) }
    }
}

impl Attempts {
    fn check(&self, name: &str) -> Reply<()> {
        let failures = self.failures.lock();
        match failures.get(name) {
            Some((since, count)) if *count >= MAX_FAILURES && since.elapsed() < WINDOW => {
                Err(Failure::too_many("too many failed logins; wait ten minutes"))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, name: &str) {
        let mut failures = self.failures.lock();
        if failures.len() >= NAMES {
            failures.retain(|_, (since, _)| since.elapsed() < WINDOW);
        }
        if failures.len() < NAMES || failures.contains_key(name) {
            let entry = failures.entry(name.to_owned()).or_insert((Instant::now(), 0));
            if entry.0.elapsed() >= WINDOW {
                *entry = (Instant::now(), 0);
            }
            entry.1 += 1;
        }
    }

    fn succeeded(&self, name: &str) {
        self.failures.lock().remove(name);
    }
}

/// Creates an account; the way to the first one, for a command.
///
/// # Errors
/// What is wrong with the name or the password, or that the name is taken.
pub async fn create_account(
    database: &Database,
    name: &str,
    password: &str,
    role: Role,
) -> Result<(), String> {
    check_name(name)?;
    check_password(password)?;
    let password_hash = hash_password(password.to_owned()).await?;
    let account = Account {
        name: name.to_owned(),
        password_hash,
        role,
        created_at: jiff::Timestamp::now().as_millisecond(),
    };
    match database.create_account(&account).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("account {name:?} exists already")),
        Err(error) => Err(error.to_string()),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c));
    if (2..=100).contains(&name.len()) && is_word {
        Ok(())
    } else {
        Err("a name has 2 to 100 letters, digits, -, _, . and @, and begins with a letter".into())
    }
}

pub(crate) fn check_password(password: &str) -> Result<(), String> {
    match password.chars().count() {
        12..=1024 => Ok(()),
        _ => Err("a password has 12 to 1024 characters".into()),
    }
}

pub(crate) async fn hash_password(password: String) -> Result<String, String> {
    let hashing = tokio::task::spawn_blocking(move || {
        let mut salt = [0_u8; 16];
        aws_lc_rs::rand::fill(&mut salt).map_err(|_| "no random numbers".to_owned())?;
        let salt = SaltString::encode_b64(&salt).map_err(|e| e.to_string())?;
        Argon2::default()
            .hash_password(password.as_bytes(), &salt)
            .map(|hash| hash.to_string())
            .map_err(|e| e.to_string())
    });
    hashing.await.map_err(|e| e.to_string())?
}

impl App {
    /// Checks a name and a password, and returns a new token with the account.
    pub(crate) async fn login(&self, name: &str, password: &str) -> Reply<(String, Account)> {
        if !self.stand_alone {
            return Err(Failure::not_found("this server has no accounts: use the token of your kubeconfig"));
        }
        self.attempts.check(name)?;
        let account = self.database.account(name).await?;
        // An unknown name takes as long as a wrong password.
        let kept = account.as_ref().map_or_else(unknown_hash, |account| account.password_hash.clone());
        let password = password.to_owned();
        let _permit = self.attempts.hashing.acquire().await.map_err(|_| Failure::too_many("busy"))?;
        let matches = tokio::task::spawn_blocking(move || {
            PasswordHash::new(&kept)
                .is_ok_and(|kept| Argon2::default().verify_password(password.as_bytes(), &kept).is_ok())
        });
        match (account, matches.await.unwrap_or(false)) {
            (Some(account), true) => {
                self.attempts.succeeded(name);
                Ok((self.issue_token(&account.name).await?, account))
            }
            _ => {
                self.attempts.failed(name);
                tracing::info!(account = name, "login failed");
                Err(Failure::unauthorized("the name or the password is wrong"))
            }
        }
    }

    /// Issues a token of an account.
    pub(crate) async fn issue_token(&self, account: &str) -> Reply<String> {
        let mut bytes = [0_u8; 32];
        aws_lc_rs::rand::fill(&mut bytes)
            .map_err(|_| Failure::new(500, "InternalError", "no random numbers"))?;
        let token = format!("fwt-{}", URL_SAFE_NO_PAD.encode(bytes));
        let now = jiff::Timestamp::now().as_millisecond();
        let record = TokenRecord {
            hash: hash(&token),
            account: account.to_owned(),
            created_at: now,
            expires_at: now + TOKEN_TTL_SECONDS * 1000,
        };
        self.database.keep_token(&record).await?;
        Ok(token)
    }
}

/// The hash of a password that nobody has.
fn unknown_hash() -> String {
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into()
}
