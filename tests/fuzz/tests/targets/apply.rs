//! Server-side apply of anything, by two managers in turn.

use super::{WORDS, objects, schema};
use freehold_machinery::Value;
use freehold_machinery_patch::apply;
use freehold_tests_fuzz::Fuzz;
use serde_json::json;

fn options<'a>(manager: &'a str, config: &'a Value) -> apply::Options<'a> {
    apply::Options {
        manager,
        force: true,
        api_version: config["apiVersion"].as_str().unwrap_or_default(),
        kind: config["kind"].as_str().unwrap_or_default(),
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        schema: schema(config).map(|schema| &**schema),
        reset_fields: None,
    }
}

#[test]
fn what_was_applied_is_there_and_applying_it_again_changes_nothing() {
    let seeds = objects().into_iter().map(|object| {
        let mut other = object.clone();
        other["metadata"]["labels"] = json!({"b": "c"});
        json!([object, other, object])
    });
    Fuzz::new("apply", seeds, 400).words(WORDS).run(|configs| {
        let mut live: Option<Value> = None;
        for (config, manager) in configs.as_array().into_iter().flatten().zip(["a", "b", "a"]) {
            let options = options(manager, config);
            if options.api_version.is_empty() || options.kind.is_empty() {
                return "no kind".to_owned();
            }
            match apply::apply(live.as_ref(), config, &options) {
                Ok(Some(applied)) => {
                    let again = apply::apply(Some(&applied), config, &options);
                    assert_eq!(again, Ok(None), "after {applied}");
                    live = Some(applied);
                }
                Ok(None) => {}
                Err(status) => return status.message,
            }
        }
        format!("applied {}", configs[0]["kind"])
    });
}

#[test]
fn an_update_of_anything_keeps_managed_fields_that_can_be_read() {
    let seeds = objects().into_iter().map(|object| json!([object, object]));
    Fuzz::new("updates", seeds, 400).words(WORDS).run(|pair| {
        let options = options("a", &pair[0]);
        if options.api_version.is_empty() || options.kind.is_empty() {
            return "no kind".to_owned();
        }
        let Ok(Some(live)) = apply::apply(None, &pair[0], &options) else { return "refused".to_owned() };
        let mut new = pair[1].clone();
        if !new.is_object() {
            return "no object".to_owned();
        }
        apply::update(Some(&live), &mut new, &apply::Options { manager: "b", ..options });
        match apply::apply(Some(&new), &pair[0], &options) {
            Ok(_) => "applied".to_owned(),
            Err(status) => {
                assert!(!status.message.contains("managed fields"), "{}: {new}", status.message);
                status.message
            }
        }
    });
}
