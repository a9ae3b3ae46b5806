//! `freehold login`, `token` and `use` with a small issuer that checks what the RFCs say (6749, 7636, 8628): what kubectl
//! sends afterwards, and what is refused.

use crate::{
    authentication::{Provider, Signer, configuration, write},
    text,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use freehold_tests_integration::{Engine, Http, Kubectl, Options, Output, Reply, Server, freehold_binary};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};
use tempfile::TempDir;

/// What an issuer remembers between requests.
#[derive(Default)]
struct Memory {
    /// Fields of the authorization request whose code is `the-code`; a code counts once.
    authorization: Option<Value>,
    /// The refresh token that counts.
    refresh: String,
    /// Questions about the device code so far.
    polls: u32,
    /// Claims that tokens have besides.
    claims: Value,
}

/// Fields of a form or a query.
fn fields(form: &str) -> Value {
    let decode = |text: &str| {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('%') {
            out += &rest[..at];
            out.push(char::from(u8::from_str_radix(&rest[at + 1..at + 3], 16).expect("two digits")));
            rest = &rest[at + 3..];
        }
        out + rest
    };
    let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    Value::Object(pairs.map(|(name, value)| (name.to_owned(), decode(value).into())).collect())
}

/// What the token and device endpoints answer.
fn answer(memory: &Mutex<Memory>, signer: &Signer, path: &str, body: &Value) -> Reply {
    let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    let form = fields(body.as_str().unwrap_or_default());
    if form["client_id"] != "freehold" {
        return refused("invalid_client");
    }
    match (path, text(&form, "/grant_type")) {
        ("/device", _) => Reply::Json(json!({
            "device_code": "d", "user_code": "AB-CD", "verification_uri": "https://example.com/device",
            "expires_in": 600, "interval": 1,
        })),
        ("/token", "authorization_code") => {
            let Some(asked) = memory.authorization.take() else { return refused("invalid_grant") };
            let digest = Sha256::digest(text(&form, "/code_verifier").as_bytes());
            let proven = asked["code_challenge"] == BASE64_URL_SAFE_NO_PAD.encode(digest);
            if form["code"] != "the-code" || form["redirect_uri"] != asked["redirect_uri"] || !proven {
                return refused("invalid_grant");
            }
            granted(&mut memory, signer, &asked["nonce"])
        }
        ("/token", "refresh_token") if form["refresh_token"] == *memory.refresh => {
            granted(&mut memory, signer, &Value::Null)
        }
        ("/token", "urn:ietf:params:oauth:grant-type:device_code") if form["device_code"] == "d" => {
            memory.polls += 1;
            if memory.polls == 1 {
                refused("authorization_pending")
            } else {
                granted(&mut memory, signer, &Value::Null)
            }
        }
        _ => refused("invalid_grant"),
    }
}

fn refused(code: &str) -> Reply {
    Reply::Text(400, json!({"error": code}).to_string())
}

/// Tokens; a refresh token counts once.
fn granted(memory: &mut Memory, signer: &Signer, nonce: &Value) -> Reply {
    memory.refresh += "r";
    let mut claims = json!({"sub": "jane", "nonce": nonce});
    if let (Some(all), Some(more)) = (claims.as_object_mut(), memory.claims.as_object()) {
        all.extend(more.clone());
    }
    Reply::Json(
        json!({"id_token": signer.token(claims), "refresh_token": memory.refresh, "token_type": "Bearer"}),
    )
}

/// A person's machine: a home, a kubeconfig, and a server that believes the issuer.
struct Machine {
    memory: Arc<Mutex<Memory>>,
    provider: Provider,
    folder: TempDir,
    server: Server,
}

impl Machine {
    fn start() -> Self {
        let memory = Arc::new(Mutex::new(Memory::default()));
        let own = memory.clone();
        let provider = Provider::start_with(move |signer, path, body| answer(&own, signer, path, body));
        let folder = TempDir::new().expect("a test fails by panicking");
        write(folder.path(), "issuer.crt", provider.ca_pem());
        let jwt = json!({
            "issuer": provider.issuer(), "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}},
        });
        let config = configuration(&[jwt], &json!({"enabled": false}));
        let config = write(folder.path(), "authentication.json", &config);
        let args = vec![
            "--outbound-networks=public,127.0.0.0/8".to_owned(),
            format!("--authentication-config={}", config.display()),
        ];
        let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
        Self { memory, provider, folder, server }
    }

    fn remember(&self, change: impl FnOnce(&mut Memory)) {
        change(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join(".kube/config")
    }

    fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.kubeconfig(), self.folder.path())
            .with_variable("HOME", &self.folder.path().display().to_string())
    }

    fn freehold(&self, args: &[&str]) -> Command {
        let mut command = Command::new(freehold_binary());
        command.args(args).env("HOME", self.folder.path()).current_dir(self.folder.path());
        command.env_remove("KUBECONFIG").env_remove("XDG_CACHE_HOME").stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        ended(self.freehold(args).output().expect("the program runs"), args.join(" "))
    }

    fn login(&self, more: &[&str]) -> Child {
        let ca = self.server.data_dir().join("pki/ca.crt");
        let mut command = self.freehold(&["login", "--client-id=freehold", "--issuer-ca=issuer.crt"]);
        command.args(["--issuer-url", &self.provider.signer.url(), "--server", self.server.url()]);
        command.arg("--server-ca").arg(ca).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs")
    }

    /// Signs in as a person with a browser does.
    fn browse(&self) -> Output {
        let mut child = self.login(&["--no-browser"]);
        let mut complaints = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        complaints.read_line(&mut line).expect("a line with the address");
        let Some((_, query)) = line.trim().split_once("/authorize?") else { panic!("no address: {line}") };
        let asked = fields(query);
        assert_eq!(asked["code_challenge_method"], "S256");
        assert_eq!(asked["scope"], "openid profile email");
        let redirect = text(&asked, "/redirect_uri").to_owned();
        let state = text(&asked, "/state").to_owned();
        self.remember(|memory| memory.authorization = Some(asked));
        let at = redirect.strip_suffix("/callback").expect("an address of this machine");
        let browser = Http::plain(at);
        assert_eq!(browser.get("/callback?code=the-code&state=of-somebody-else").code, 404);
        assert_eq!(browser.get("/favicon.ico").code, 404);
        assert_eq!(browser.get(&format!("/callback?code=the-code&state={state}")).code, 200);
        let mut rest = String::new();
        complaints.read_to_string(&mut rest).expect("text");
        let mut output = ended(child.wait_with_output().expect("it ends"), "login".to_owned());
        output.stderr = rest;
        output
    }

    /// All files below the home, with their modes.
    fn private(&self, folder: &str) -> Vec<(PathBuf, u32)> {
        let entries = fs::read_dir(self.folder.path().join(folder)).expect("the folder is there");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        entries.map(|entry| entry.expect("an entry").path()).map(|path| (path.clone(), mode(&path))).collect()
    }
}

fn ended(output: std::process::Output, line: String) -> Output {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let success = output.status.success();
    Output { success, stdout: text(&output.stdout), stderr: text(&output.stderr), line }
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

#[test]
fn people_sign_in_with_a_browser_or_a_code_and_kubectl_renews_their_tokens() {
    let machine = Machine::start();
    let who = || machine.kubectl().run(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);

    let signed = machine.browse().expect_ok();
    assert!(signed.starts_with("Signed in as jane. Switched to context \"oidc@127.64.0.1:"), "{signed}");
    assert_eq!(who().expect_ok(), "oidc:jane");
    let modes = machine.private(".cache/freehold/tokens");
    assert!(modes.iter().all(|(_, mode)| *mode == 0o600) && modes.len() == 2, "{modes:?}");
    let kubeconfig = fs::read_to_string(machine.kubeconfig()).expect("it was made");
    assert_eq!(machine.private(".kube")[0].1, 0o600);
    assert!(!kubeconfig.contains("eyJ"), "no token is in the kubeconfig:\n{kubeconfig}");

    // What the plugin prints is what client-go takes; a token that is about to end is renewed, once for all who ask.
    machine.remember(|memory| memory.claims = json!({"exp": now() + 20}));
    machine.browse().expect_ok();
    machine.remember(|memory| memory.claims = Value::Null);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(who().expect_ok(), "oidc:jane"));
        }
    });
    assert_eq!(machine.memory.lock().unwrap_or_else(PoisonError::into_inner).refresh, "rrr");
    // This program's own commands use it too.
    let denied = machine.run(&["can-i", "create", "projects"]);
    assert!(!format!("{}{}", denied.stdout, denied.stderr).contains("Unauthorized"), "{denied}");

    // Where the issuer no longer renews, people are told what to do.
    machine.remember(|memory| memory.claims = json!({"exp": now() + 20}));
    machine.browse().expect_ok();
    machine.remember(|memory| memory.refresh = "another".to_owned());
    assert!(who().expect_failure().contains("sign in with `freehold login`"));

    machine.remember(|memory| memory.claims = Value::Null);
    let mut child = machine.login(&["--device", "--name=by-code"]);
    let mut complaints = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut complaints).expect("text");
    assert!(
        complaints.contains("Visit https://example.com/device and type in the code AB-CD."),
        "{complaints}"
    );
    ended(child.wait_with_output().expect("it ends"), "login --device".to_owned()).expect_ok();
    assert_eq!(who().expect_ok(), "oidc:jane");

    // Answers for others are refused, and change nothing.
    for claims in [json!({"nonce": "another"}), json!({"aud": "another"}), json!({"iss": "https://another"})]
    {
        machine.remember(|memory| memory.claims = claims.clone());
        let refused = machine.browse();
        assert!(!refused.success && refused.stderr.contains("the ID token is"), "{claims}: {refused}");
    }
    assert_eq!(who().expect_ok(), "oidc:jane");

    contexts(&machine);
}

/// `freehold use` keeps what is there, and has the user that signed in.
fn contexts(machine: &Machine) {
    let before = machine.kubectl().json(&["config", "view"]);
    assert!(machine.run(&["use", "web"]).expect_ok().contains("Switched to context \"web\""));
    assert!(machine.run(&["use", "--org", "acme"]).expect_ok().contains("\"organization/acme\""));
    let after = machine.kubectl().json(&["config", "view"]);
    let contexts = |view: &Value| names_of(&view["contexts"]);
    let mut expected = contexts(&before);
    expected.extend(["web".to_owned(), "organization/acme".to_owned()]);
    let mut found = contexts(&after);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(after["current-context"], "organization/acme");
    assert_eq!(after["users"], before["users"]);
}

fn names_of(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|entry| text(entry, "/name").to_owned()).collect()
}
