//! Logs go to standard error, so that standard output is for what was asked for.

use tracing_subscriber::EnvFilter;

/// Starts logging. A filter that can't be read is said and replaced by `warn`.
pub(crate) fn start(filter: &str, json: bool) {
    let parsed = EnvFilter::try_new(filter).unwrap_or_else(|error| {
        eprintln!("freehold: --log {filter:?} can't be read ({error}); logging warnings");
        EnvFilter::new("warn")
    });
    let builder = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(std::io::stderr);
    if json {
        builder.json().init();
    } else {
        builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init();
    }
}
