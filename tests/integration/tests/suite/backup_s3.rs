//! Backups in a bucket of an S3-compatible store, and in a folder: encrypted, verified, pruned, restored.
//!
//! The store is moto's server, which checks signatures (`tools/get moto`).

use crate::{
    PATIENCE,
    backup::{RESTORED, copy},
};
use freehold_tests_integration::{Engine, Options, Server, facts, free_port, freehold_binary, until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

facts!(engine:
    a_backup_in_a_bucket_is_encrypted_verified_pruned_and_restored,
);

/// Makes a user with keys and a bucket, in moto's own client: the four requests that need no signature.
const SETUP: &str = "
import boto3, sys
def client(name):
    return boto3.client(name, endpoint_url=sys.argv[1], region_name='us-east-1', aws_access_key_id='x', aws_secret_access_key='x')
iam = client('iam')
iam.create_user(UserName='backup')
key = iam.create_access_key(UserName='backup')['AccessKey']
iam.put_user_policy(UserName='backup', PolicyName='s3', PolicyDocument='{\"Version\": \"2012-10-17\", \"Statement\": [{\"Effect\": \"Allow\", \"Action\": \"s3:*\", \"Resource\": \"*\"}]}')
client('s3').create_bucket(Bucket='backups')
print(key['AccessKeyId'], key['SecretAccessKey'])
";

fn moto() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/moto/bin")
}

/// A store with a bucket `backups`.
struct Store {
    process: Child,
    url: String,
    keys: [String; 2],
}

impl Store {
    fn start() -> Self {
        let port = free_port().to_string();
        let mut command = Command::new(moto().join("moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &port]).env("INITIAL_NO_AUTH_ACTION_COUNT", "4");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.expect("moto_server can be run");
        let url = format!("http://127.0.0.1:{port}");
        until("the store listens", PATIENCE, || {
            std::net::TcpStream::connect(("127.0.0.1", port.parse().ok()?)).ok()
        });
        let made = Command::new(moto().join("python"))
            .args(["-c", SETUP, &url])
            .output()
            .expect("python can be run");
        let printed = String::from_utf8_lossy(&made.stdout).into_owned();
        let keys: Vec<String> = printed.split_whitespace().map(str::to_owned).collect();
        let keys = keys.try_into().unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&made.stderr)));
        Self { process, url, keys }
    }

    fn freehold(&self, server: &Server, args: &[&str]) -> (bool, String) {
        let mut command = Command::new(freehold_binary());
        command.args(args).env("KUBECONFIG", server.kubectl().kubeconfig()).env("FREEHOLD_LOG", "error");
        command.env("AWS_ACCESS_KEY_ID", &self.keys[0]).env("AWS_SECRET_ACCESS_KEY", &self.keys[1]);
        command.env("AWS_ENDPOINT_URL_S3", &self.url);
        let output = command.output().expect("freehold can be run");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn a_backup_in_a_bucket_is_encrypted_verified_pruned_and_restored(engine: Engine) {
    if !moto().join("moto_server").is_file() {
        eprintln!("left out: `tools/get moto` fetches the store");
        return;
    }
    let mut store = Store::start();
    let mut server = Server::start(engine);
    server.kubectl().ok(&["create", "configmap", "kept", "--from-literal=word=rhododendron"]);
    let key = server.folder().join("keys.txt");
    std::fs::write(&key, "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n")
        .expect("the test's folder can be written");
    let key = format!("--backup-key={}", key.display());
    let place = "s3://backups/core/a b";
    let done = |(good, said): (bool, String)| if good { said } else { panic!("{said}") };

    let said = done(store.freehold(&server, &["backup", place, &key]));
    assert!(said.contains("keys as of revision"), "{said}");
    // The next one has a name of its own once a second has passed.
    until("a second backup is there, and the first one gone", PATIENCE, || {
        let said = done(store.freehold(&server, &["backup", place, &key, "--keep-last=1"]));
        said.contains("removed s3://backups/core/a b/freehold-").then_some(())
    });
    let listed = done(store.freehold(&server, &["backup", "list", place]));
    assert_eq!(listed.matches(".backup").count(), 1, "{listed}");
    let name = listed.split_whitespace().last().expect("a name").to_owned();
    let said = done(store.freehold(&server, &["backup", "verify", place, &key]));
    assert!(said.contains(&name) && said.contains("into an empty store"), "{said}");
    let (good, said) = store.freehold(&server, &["backup", "verify", place]);
    assert!(!good && said.contains("the backup is encrypted"), "{said}");

    let secret = std::mem::replace(&mut store.keys[1], "wrong".to_owned());
    let (good, said) = store.freehold(&server, &["backup", place, &key]);
    assert!(!good && said.contains("SignatureDoesNotMatch") && !said.contains("wrong"), "{said}");
    store.keys[1] = secret;

    // A folder takes what a bucket takes.
    let folder = format!("{}/", server.folder().join("volume").display());
    done(store.freehold(&server, &["backup", &folder]));
    let plain = done(store.freehold(&server, &["backup", "verify", &folder]));
    assert!(plain.contains("into an empty store"), "{plain}");
    server.stop();

    // An installation that lost everything, brought back from the bucket.
    let mut other = Server::start(Options { engine, ..Options::default() });
    other.stop();
    match other.etcd_url() {
        None => {
            let data = other.data_dir();
            std::fs::remove_dir_all(data.join("store")).expect("its store can be removed");
            done(
                store.freehold(&other, &["restore", "--data-dir", &data.display().to_string(), place, &key]),
            );
        }
        Some(url) => {
            let one = format!("{place}/{name}");
            let there = ["restore", "--etcd", &url, "--etcd-prefix", RESTORED, &one, &key];
            done(store.freehold(&other, &[&there[..], &["--bump-revision", "2000"]].concat()));
            other.add_args(&["--etcd-prefix", RESTORED]);
        }
    }
    std::fs::remove_dir_all(other.data_dir().join("pki")).expect("its keys can be removed");
    copy(&server.data_dir().join("pki"), &other.data_dir().join("pki"));
    other.restart();
    assert_eq!(other.kubectl().json(&["get", "configmap", "kept"])["data"]["word"], "rhododendron");
}
