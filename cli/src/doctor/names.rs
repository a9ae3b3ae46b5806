//! Whether the domain of projects leads to the servers.

use super::finding::{Finding, finding};
use std::{collections::BTreeSet, net::IpAddr, time::Duration};

/// How long a lookup may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A project that nobody has: a wildcard answers for it.
const PROJECT: &str = "freehold-doctor";

async fn addresses(name: &str) -> Result<BTreeSet<IpAddr>, String> {
    let lookup = tokio::net::lookup_host((name, 443));
    match tokio::time::timeout(PATIENCE, lookup).await {
        Err(_) => Err(format!("{name}: no name server answers within {PATIENCE:?}")),
        Ok(Err(error)) => Err(format!("{name}: {error}")),
        Ok(Ok(found)) => Ok(found.map(|address| address.ip()).collect()),
    }
}

/// What addresses of a project's host and of the servers' host say.
fn judge(
    domain: &str,
    host: &str,
    of_project: &BTreeSet<IpAddr>,
    of_server: &BTreeSet<IpAddr>,
) -> Result<String, String> {
    let list = |of: &BTreeSet<IpAddr>| of.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match of_project.is_disjoint(of_server) {
        false => Ok(format!("*.{domain} leads to {host}")),
        true => Err(format!(
            "*.{domain} leads to {}, and {host} is at {}: if no load balancer is between, mend the wildcard",
            list(of_project),
            list(of_server)
        )),
    }
}

/// Looks up a name below the domain, and the host of the servers.
pub(super) async fn look(domain: &str, server: &str) -> Finding {
    let authority = server.trim_start_matches("https://").split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => authority.split(':').next().unwrap_or_default(),
    };
    let outcome = match (addresses(&format!("{PROJECT}.{domain}")).await, addresses(host).await) {
        (Err(why), _) => Err(format!("{why}: the domain needs a wildcard record, *.{domain}")),
        (_, Err(why)) => Err(why),
        (Ok(of_project), Ok(of_server)) => judge(domain, host, &of_project, &of_server),
    };
    finding("domain", outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_domain_leads_to_the_servers_or_not() {
        // Names below `localhost` are this machine's own (RFC 6761); `invalid` has none.
        let set = |text: &str| BTreeSet::from([text.parse::<IpAddr>().unwrap()]);
        assert!(judge("a", "b", &set("127.0.0.1"), &set("127.0.0.1")).is_ok());
        let told = judge("a", "b", &set("127.0.0.1"), &set("127.0.0.2")).unwrap_err();
        assert!(told.contains("*.a leads to 127.0.0.1, and b is at 127.0.0.2"), "{told}");
        let told = look("projects.invalid", "https://[::1]:7443/x").await.outcome.unwrap_err();
        assert!(told.contains("wildcard record"), "{told}");
    }
}
