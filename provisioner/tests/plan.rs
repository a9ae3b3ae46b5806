//! Each `tests/plan/NAME.json` is a spec with inputs; `NAME.objects.json` beside it is what the plan makes of it.
//! `UPDATE=1 cargo test -p freehold-provisioner` writes the latter anew.

use freehold_provisioner::plan::{Inputs, Spec, plan};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Case {
    spec: Spec,
    inputs: Inputs,
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan");
    let files =
        std::fs::read_dir(folder).expect("the folder of cases").map(|entry| entry.expect("an entry").path());
    let mut cases: Vec<_> = files.filter(|path| !path.to_string_lossy().ends_with(".objects.json")).collect();
    cases.sort();
    cases
}

fn read(case: &Path) -> Case {
    let text = std::fs::read_to_string(case).expect("a readable case");
    serde_json::from_str(&text).expect("a spec and inputs")
}

fn planned(case: &Path) -> Vec<Value> {
    let case = read(case);
    plan(&case.spec, &case.inputs)
}

#[test]
fn plans_are_what_the_golden_files_say() {
    let cases = cases();
    assert!(cases.len() >= 3, "the folder is there");
    for case in cases {
        let golden = case.with_extension("objects.json");
        let text = format!("{:#}\n", Value::from(planned(&case)));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(text, expected, "{} (UPDATE=1 writes it anew)", golden.display());
    }
}

#[test]
fn everything_of_a_plan_goes_with_its_project_control_plane() {
    for case in cases() {
        for object in planned(&case) {
            let metadata = &object["metadata"];
            assert_eq!(metadata["ownerReferences"][0]["kind"], "ProjectControlPlane", "{object}");
            assert!(metadata["labels"]["infrastructure.freehold.dev/project-uid"].is_string(), "{object}");
            let inside = metadata["namespace"].as_str().or(metadata["name"].as_str()).unwrap();
            assert!(inside.starts_with("project-"), "{object}");
        }
    }
}

#[test]
fn a_change_of_a_certificate_rolls_the_programs_that_read_it() {
    let case = cases().into_iter().find(|path| path.ends_with("ready.json")).unwrap();
    let case = read(&case);
    let templates = |inputs: &Inputs| -> Vec<Value> {
        let objects = plan(&case.spec, inputs).into_iter();
        objects.filter(|o| o["kind"] == "Deployment").map(|o| o["spec"]["template"].clone()).collect()
    };
    let before = templates(&case.inputs);
    let rolled = |change: &dyn Fn(&mut Inputs)| -> Vec<bool> {
        let mut inputs = case.inputs.clone();
        change(&mut inputs);
        templates(&inputs).iter().zip(&before).map(|(new, old)| new != old).collect()
    };
    assert_eq!(rolled(&|_| {}), [false, false]);
    assert_eq!(rolled(&|i| i.credentials.serving.cert_pem.push('x')), [true, false]);
    assert_eq!(rolled(&|i| i.credentials.controller_manager.cert_pem.push('x')), [false, true]);
    assert_eq!(rolled(&|i| i.credentials.admin.cert_pem.push('x')), [false, false]);
    assert_eq!(rolled(&|i| i.endpoint = Some("https://127.64.0.2:6443".into())), [false, true]);
    assert_eq!(rolled(&|i| i.trust.front_proxy_ca_pem.push('x')), [true, false]);
}
