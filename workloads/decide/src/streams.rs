//! Requests to the kubelet of a project's Node as requests to the host's API server.

use crate::names::{host_name, host_namespace};

/// Parameters of a log request that are passed on.
const LOG_PARAMETERS: [&str; 7] =
    ["follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes"];
/// Parameters of streams in the API of kubelets, and in that of API servers.
const STREAM_PARAMETERS: [(&str, &str); 4] =
    [("input", "stdin"), ("output", "stdout"), ("error", "stderr"), ("tty", "tty")];
/// Longest path with its query, in bytes.
const MAX_PATH: usize = 64 << 10;

/// A request to the kubelet of a project's Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletRequest {
    /// The plane whose Node it is.
    pub plane: String,
    /// The Pod's namespace in the project.
    pub namespace: String,
    /// The Pod's name in the project.
    pub pod: String,
    /// The path at the host's API server, with its query.
    pub host_path: String,
    /// Whether the connection is to become a stream.
    pub is_stream: bool,
}

/// Reads `/planes/PLANE/containerLogs/NAMESPACE/POD/CONTAINER`, and `exec`, `attach` and `portForward` in place of
/// `containerLogs`. `None` for anything else: what a kubelet serves beside these is nothing of one project.
pub fn parse(path: &str, query: &str) -> Option<KubeletRequest> {
    if path.len() + query.len() > MAX_PATH {
        return None;
    }
    let parts: Vec<&str> = path.strip_prefix("/planes/")?.split('/').collect();
    let (plane, kind, namespace, pod, container) = match parts[..] {
        [plane, "portForward", namespace, pod] => (plane, "portforward", namespace, pod, None),
        [plane, "containerLogs", namespace, pod, container] => {
            (plane, "log", namespace, pod, Some(container))
        }
        [plane, kind @ ("exec" | "attach"), namespace, pod, container] => {
            (plane, kind, namespace, pod, Some(container))
        }
        _ => return None,
    };
    // Names of Kubernetes need no escapes, so that what has one is none.
    if ![plane, namespace, pod].into_iter().chain(container).all(is_name) {
        return None;
    }
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut parameters: Vec<String> = container.map(|name| format!("container={name}")).into_iter().collect();
    parameters.extend(pairs.filter_map(|(key, value)| parameter(kind, key, value)));
    let host_path = format!(
        "/api/v1/namespaces/{}/pods/{}/{kind}?{}",
        host_namespace(plane, namespace),
        host_name(pod),
        parameters.join("&")
    );
    let own = |text: &str| text.to_owned();
    let is_stream = kind != "log";
    Some(KubeletRequest { plane: own(plane), namespace: own(namespace), pod: own(pod), host_path, is_stream })
}

fn parameter(kind: &str, key: &str, value: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%+:".contains(&byte);
    if !value.bytes().all(is_plain) {
        return None;
    }
    match kind {
        "log" => LOG_PARAMETERS.contains(&key).then(|| format!("{key}={value}")),
        "portforward" => (key == "port").then(|| format!("ports={value}")),
        _ if key == "command" => Some(format!("command={value}")),
        _ => {
            let (_, name) = STREAM_PARAMETERS.iter().find(|(kubelets, _)| *kubelets == key)?;
            (value == "1" || value == "true").then(|| format!("{name}=true"))
        }
    }
}

fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && !text.starts_with('.') && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_a_kubelet_become_requests_to_the_hosts_api() {
        let rows = [
            (
                "/planes/p/containerLogs/shop/web/c",
                "follow=true&tailLines=5&evil=1",
                "log?container=c&follow=true&tailLines=5",
            ),
            (
                "/planes/p/exec/shop/web/c",
                "input=1&output=1&tty=0&command=sh&command=-c&command=a%20%26b",
                "exec?container=c&stdin=true&stdout=true&command=sh&command=-c&command=a%20%26b",
            ),
            ("/planes/p/attach/shop/web/c", "output=1", "attach?container=c&stdout=true"),
            ("/planes/p/portForward/shop/web", "port=80", "portforward?ports=80"),
        ];
        for (path, query, expected) in rows {
            let request = parse(path, query).unwrap();
            let prefix = format!("/api/v1/namespaces/{}/pods/web/", host_namespace("p", "shop"));
            assert_eq!(request.host_path, format!("{prefix}{expected}"));
            assert_eq!(request.is_stream, !path.contains("Logs"));
        }
    }

    #[test]
    fn nothing_else_of_a_kubelet_is_reached_nor_another_plane() {
        for path in [
            "/planes/p/run/shop/web/c",
            "/planes/p/pods",
            "/planes/p/../q/containerLogs/shop/web/c",
            "/planes/p/containerLogs/shop/../web/c",
            "/planes/p/containerLogs/shop/web%2f..%2fx/c",
            "/planes/p/containerLogs/shop/web/c/more",
            "/planes//containerLogs/shop/web/c",
            "/containerLogs/shop/web/c",
            "/planes/p/exec/shop/web/..",
        ] {
            assert_eq!(parse(path, ""), None, "{path}");
        }
        let long = format!("command={}", "a".repeat(MAX_PATH));
        assert_eq!(parse("/planes/p/exec/shop/web/c", &long), None);
    }
}
