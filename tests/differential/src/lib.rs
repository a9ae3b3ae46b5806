//! Sends equal requests to kube-apiserver and to a project plane, and compares the answers.
//!
//! `requests/*.yaml` are scenarios: requests in order, each in a namespace of the scenario's own. `recorded/*.json`
//! are kube-apiserver's answers to them, normalized ([`normal`]); `make differential` records them anew from a real
//! one. The test sends the scenarios to a project plane and compares. A difference that is meant stands in
//! `differences.yaml` with its reason; one that is still to be closed in `open.txt`, which only gets shorter: the
//! test fails for a difference that neither names, and for one that is named and gone.
//! `FREEHOLD_DIFFERENTIAL_WRITE=1` writes `open.txt` anew.
//!
//! `rules/*.yaml` has a whole object of each built-in kind. From it thousands of requests are made: each field wrong
//! or absent in turn, on creation, update and update of the status, all as dry runs. `recorded/rules` has the
//! answers, as far as they differ from the answer to the whole object; `rules/open.txt` what is still to be closed.

mod compare;
pub mod examples;
mod files;
mod mutate;
mod normal;
mod plane;
mod rules;
mod run;
mod scenario;

pub use compare::{Difference, Meant, compare, meant, open, unexplained, write_open};
pub use files::path;
pub use normal::Normal;
pub use plane::project_plane;
pub use rules::{Kind, Outcome, compare_outcomes, judge, kinds, load, open_rules, save, write_open_rules};
pub use run::{Answer, run};
pub use scenario::{Request, Scenario, scenarios};
