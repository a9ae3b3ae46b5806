//! What machines ask: is it alive, is it ready, what is it, how is it doing.

use crate::{PATIENCE, contains_all, text};
use freehold_tests_integration::{Http, World, facts, until};

facts!(world:
    probes_answer_everyone,
    the_version_is_told_to_everyone,
    metrics_are_for_those_who_may_see_them,
    projects_answer_the_same,
);

fn probes_answer_everyone(world: &World) {
    let nobody = Http::with_token(&world.admin(), world.server().url(), "");
    for path in ["/livez", "/readyz", "/healthz"] {
        let answer = nobody.get(path);
        assert_eq!((answer.code, answer.body.as_str()), (200, Some("ok")), "{path}");
    }
    let verbose = world.admin().ok(&["get", "--raw", "/readyz?verbose"]);
    contains_all(&verbose, &["[+]ping ok", "[+]etcd ok", "readyz check passed"]);
    contains_all(&world.admin().fails(&["get", "--raw", "/readyz/nothing"]), &["NotFound"]);
}

fn the_version_is_told_to_everyone(world: &World) {
    let nobody = Http::with_token(&world.admin(), world.server().url(), "");
    let version = nobody.get("/version");
    assert_eq!(version.code, 200);
    for field in ["major", "minor", "gitVersion", "platform"] {
        assert_ne!(text(&version.body, &format!("/{field}")), "", "{field} of {}", version.body);
    }
    assert!(text(&version.body, "/gitVersion").starts_with("v1."));
}

fn metrics_are_for_those_who_may_see_them(world: &World) {
    let metrics = world.admin().ok(&["get", "--raw", "/metrics"]);
    contains_all(&metrics, &["apiserver_request_total{", "process_resident_memory_bytes ", "# TYPE "]);
    // What controllers in this process count is there too, where one runs them.
    until("controllers count", PATIENCE, || {
        let metrics = world.admin().ok(&["get", "--raw", "/metrics"]);
        let counted = metrics.contains("workqueue_adds_total{name=\"namespace\"}");
        assert_eq!(metrics.matches("# EOF").count(), 1);
        assert!(metrics.ends_with("# EOF\n"));
        counted.then_some(())
    });
    let nobody = Http::with_token(&world.admin(), world.server().url(), "");
    let refused = nobody.get("/metrics");
    assert!([401, 403].contains(&refused.code), "{refused:?}");
}

fn projects_answer_the_same(world: &World) {
    let kubectl = world.project("healthy");
    for path in ["/livez", "/readyz", "/healthz"] {
        let path = format!("/projects/healthy{path}");
        assert_eq!(kubectl.ok(&["get", "--raw", &path]).trim(), "ok");
    }
    contains_all(&kubectl.ok(&["get", "--raw", "/projects/healthy/version"]), &["gitVersion"]);
}
