//! The controllers in this process against a real Freehold server's project plane. Pods are ended by a kubelet that is part of
//! the test.

mod common;

use common::{Home, dag, task};
use serde_json::json;

#[test]
fn three_tasks_run_one_after_another_on_a_project_plane() {
    let home = Home::freehold();
    home.start();
    home.create(&dag("build", json!({"tasks": [task("a", &[]), task("b", &["a"]), task("c", &["b"])]})));
    home.run("build", "r1", json!({}));
    let run = home.ended("r1");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run}");
    assert_eq!(run["status"]["counts"]["succeeded"], 3);
    assert_eq!(home.begun(), ["a", "b", "c"]);
    home.no_pods_left();
}
