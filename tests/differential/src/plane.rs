//! The project plane that is compared.

use freehold_client::Client;
use freehold_tests_harness::{Engine, Options, Server};

const PROJECT: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: acme}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: same}
spec: {ownerRef: {kind: Organization, name: acme}}
";

/// Those that made what each namespace has when kube-apiserver's answers were recorded (`record.sh`). Others would change what
/// the requests look at, even the one that asks again for definitions whose deletion a server did not end.
const CONTROLLERS: &str = "namespace,service-account,root-ca,cluster-role-aggregation";

/// A server with a project, and a client of the project's plane. Failures are panics: this is for tests.
pub fn project_plane() -> (Server, Client) {
    let args = vec!["--controllers".to_owned(), CONTROLLERS.to_owned()];
    let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
    server.kubectl().apply(PROJECT);
    let client = Server::client_of(&server.project("same"));
    (server, client)
}
