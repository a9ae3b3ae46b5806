//! Which namespace a run is of. Names come again, uids do not: what is kept beside the API goes by both, so that who gets the
//! name of a namespace that was deleted has nothing of the one before.

use freehold_client::{Client, Error, Resource};
use freehold_machinery::{meta, time};

const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");

/// Returns the uid of the namespace of a run that was created at a time; `None` where that namespace is gone, or another has its
/// name by now.
///
/// # Errors
/// A plane that could not be asked, or does not tell.
pub async fn namespace_uid(client: &Client, namespace: &str, created: &str) -> Result<Option<String>, Error> {
    let found = client.get_opt(&NAMESPACES, None, namespace).await?;
    Ok(found
        .filter(|found| !is_younger(meta::text(found, "creationTimestamp"), created))
        .map(|found| meta::uid(&found).to_owned()))
}

/// Whether a namespace was made after the run that is to be in it.
fn is_younger(namespace: &str, run: &str) -> bool {
    time::parse(namespace).zip(time::parse(run)).is_some_and(|(namespace, run)| namespace > run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_of_no_namespace_that_came_after_it() {
        assert!(is_younger("2026-11-27T10:00:01Z", "2026-11-27T10:00:00Z"));
        assert!(!is_younger("2026-11-27T10:00:00Z", "2026-11-27T10:00:00Z"));
        assert!(!is_younger("", "2026-11-27T10:00:00Z"));
    }
}
