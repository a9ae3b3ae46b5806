//! A user's token: one call at a time gets it, and all others use it.
//!
//! etcd compares passwords slowly on purpose, so that a hundred calls which all find their token expired must not all ask.

use crate::proto::AuthenticateResponse;
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tonic::{Status, metadata::AsciiMetadataValue};

/// What etcd says to a password where it wants none.
const NOT_ENABLED: &str = "authentication is not enabled";

/// A token, and which one of this session's it is.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) text: AsciiMetadataValue,
    pub(crate) number: u64,
}

/// What is known of the user's right to call.
enum State {
    /// No token yet, or none that etcd still knows.
    Missing,
    Token(AsciiMetadataValue),
    /// This etcd has no users.
    Open,
}

pub(crate) struct Session {
    name: String,
    password: String,
    /// With the number of tokens that there were.
    state: RwLock<(u64, State)>,
    asking: Mutex<()>,
}

impl Session {
    pub(crate) fn new((name, password): (String, String)) -> Self {
        Self { name, password, state: RwLock::new((0, State::Missing)), asking: Mutex::new(()) }
    }

    /// The token, if there is one.
    pub(crate) fn token(&self) -> Option<Token> {
        let state = self.state.read();
        match &state.1 {
            State::Token(text) => Some(Token { text: text.clone(), number: state.0 }),
            State::Missing | State::Open => None,
        }
    }

    /// Makes sure that there is a token, where etcd wants one, with `authenticate`; gives its number.
    pub(crate) async fn ready<F>(&self, authenticate: impl FnOnce(String, String) -> F) -> Result<u64, Status>
    where
        F: Future<Output = Result<AuthenticateResponse, Status>>,
    {
        if let Some(number) = self.number() {
            return Ok(number);
        }
        let _asking = self.asking.lock().await;
        if let Some(number) = self.number() {
            return Ok(number);
        }
        let found = match authenticate(self.name.clone(), self.password.clone()).await {
            Ok(answer) => {
                let token = answer.token.parse();
                State::Token(token.map_err(|_| Status::internal("etcd gave a malformed token"))?)
            }
            Err(status) if status.message().contains(NOT_ENABLED) => {
                tracing::warn!(
                    user = self.name,
                    "this etcd has authentication disabled; ignoring the user and password"
                );
                State::Open
            }
            Err(status) => return Err(status),
        };
        let mut state = self.state.write();
        *state = (state.0 + 1, found);
        Ok(state.0)
    }

    fn number(&self) -> Option<u64> {
        let state = self.state.read();
        (!matches!(state.1, State::Missing)).then_some(state.0)
    }

    /// Forgets a token, if it is still the one in use.
    pub(crate) fn expire(&self, number: Option<u64>) {
        let mut state = self.state.write();
        if number == Some(state.0) {
            state.1 = State::Missing;
        }
    }
}
