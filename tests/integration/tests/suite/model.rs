//! A model of who may see and do what, held against the server: random steps of random people, and after each of them
//! questions whose answers the model knows. There must be no difference.
//!
//! `FREEHOLD_MODEL_STEPS` says how many steps (`make test-long`: thousands, with moves to dedicated pairs);
//! `PROPTEST_RNG_SEED` draws others.

#[path = "model/rules.rs"]
mod rules;
#[path = "model/steps.rs"]
mod steps;
#[path = "model/subject.rs"]
mod subject;

use freehold_tests_integration::{Engine, Server, facts};
use proptest::{
    collection::vec,
    test_runner::{Config, TestCaseError, TestError, TestRunner},
};
use std::cell::Cell;
use subject::Subject;

facts!(engine: the_server_answers_as_the_model_does);

/// Steps of a run in `make test`.
const SHORT: usize = 40;
/// Steps of one run where there are many: then the server's world begins anew.
const RUN: usize = 150;
/// Shorter runs that are tried of one that failed.
const SHRINKS: u32 = 12;

fn the_server_answers_as_the_model_does(engine: Engine) {
    let long = std::env::var("FREEHOLD_MODEL_STEPS").ok().and_then(|steps| steps.parse::<usize>().ok());
    let steps = long.unwrap_or(SHORT);
    let runs = steps.div_ceil(RUN).max(1);
    let server = Server::start(engine);
    let config = Config {
        cases: u32::try_from(runs).unwrap_or(u32::MAX),
        max_shrink_iters: SHRINKS,
        failure_persistence: None,
        ..Config::default()
    };
    let number = Cell::new(0);
    let run = |steps: Vec<(steps::Step, u64)>| {
        number.set(number.get() + 1);
        let mut subject = Subject::new(&server, number.get(), long.is_some());
        for (at, (step, seed)) in steps.into_iter().enumerate() {
            let shown = format!("run {}, step {at}: {step:?}", number.get());
            subject
                .take(&step)
                .and_then(|()| subject.compare(seed))
                .map_err(|why| TestCaseError::fail(format!("{shown}: {why}")))?;
        }
        subject.end();
        Ok(())
    };
    let drawn = vec(steps::step(), steps.min(RUN));
    match TestRunner::new(config).run(&drawn, run) {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => panic!("{why}\nof {} steps: {steps:#?}", steps.len()),
        Err(other) => panic!("{other}"),
    }
}
