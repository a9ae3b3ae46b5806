//! The scope a URL asks in.

use freehold_machinery::PlaneId;

/// The scope a URL asks in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Context {
    /// `/`: the core plane.
    Platform,
    /// `/organizations/<name>/...` or its long form.
    Organization(String),
    /// `/projects/<name>/...` or its long form.
    Project(String),
    /// `/users/<name>/...` or its long form.
    User(String),
    /// `/planes/<id>/...`: a plane by its identifier, for platform admins and Freehold's own controllers.
    Plane(PlaneId),
    /// `/planes/-/...`: every plane at once, likewise.
    AllPlanes,
}

const FORMS: [(&str, &str); 3] = [
    ("/apis/resourcemanager.freehold.dev/v1alpha1/organizations/", "/organizations/"),
    ("/apis/resourcemanager.freehold.dev/v1alpha1/projects/", "/projects/"),
    ("/apis/iam.freehold.dev/v1alpha1/users/", "/users/"),
];

/// Splits a decoded URL path into its context and the path within it, which begins with `/`.
/// `None` where a context is begun but its name can't be one.
pub fn parse(path: &str) -> Option<(Context, &str)> {
    if let Some(rest) = path.strip_prefix("/planes/") {
        let (id, rest) = cut(rest);
        let context = if id == "-" { Context::AllPlanes } else { Context::Plane(id.parse().ok()?) };
        return Some((context, rest));
    }
    for (index, (long, short)) in FORMS.into_iter().enumerate() {
        let found = match (path.strip_prefix(long), path.strip_prefix(short)) {
            (Some(rest), _) => below(rest),
            (None, Some(rest)) => Some(cut(rest)),
            (None, None) => None,
        };
        let Some((name, rest)) = found else { continue };
        if name.is_empty() || name.len() > 253 {
            return None;
        }
        let name = name.to_owned();
        let context = match index {
            0 => Context::Organization(name),
            1 => Context::Project(name),
            _ => Context::User(name),
        };
        return Some((context, rest));
    }
    Some((Context::Platform, path))
}

/// The name and the rest of `<name>/control-plane/<rest>`; or `<name>/proxy/<rest>`, whose requests another apiserver in
/// front takes for long-running, so that watches last there.
fn below(rest: &str) -> Option<(&str, &str)> {
    let (name, rest) = rest.split_once('/')?;
    let rest = rest.strip_prefix("control-plane").or_else(|| rest.strip_prefix("proxy"))?;
    match rest {
        "" => Some((name, "/")),
        rest => rest.starts_with('/').then_some((name, rest)),
    }
}

fn cut(rest: &str) -> (&str, &str) {
    match rest.find('/') {
        Some(at) => (&rest[..at], &rest[at..]),
        None => (rest, "/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_falls_into_its_context_and_the_rest() {
        let long = "/apis/resourcemanager.freehold.dev/v1alpha1";
        let rows: Vec<(String, Option<(Context, &str)>)> = vec![
            ("/api/v1/pods".into(), Some((Context::Platform, "/api/v1/pods"))),
            ("/projects/web/api".into(), Some((Context::Project("web".into()), "/api"))),
            ("/projects/web".into(), Some((Context::Project("web".into()), "/"))),
            (
                format!("{long}/projects/web/control-plane/api"),
                Some((Context::Project("web".into()), "/api")),
            ),
            (format!("{long}/projects/web/proxy/api"), Some((Context::Project("web".into()), "/api"))),
            (format!("{long}/organizations/a/control-plane"), Some((Context::Organization("a".into()), "/"))),
            ("/planes/-/apis".into(), Some((Context::AllPlanes, "/apis"))),
            ("/planes/core/apis".into(), Some((Context::Plane(PlaneId::core()), "/apis"))),
            ("/planes/A/apis".into(), None),
            ("/projects//api".into(), None),
        ];
        for (path, expected) in rows {
            assert_eq!(parse(&path), expected, "{path}");
        }
        let object = format!("{long}/projects/web");
        assert_eq!(parse(&object), Some((Context::Platform, object.as_str())));
        let status = format!("{long}/projects/web/status");
        assert_eq!(parse(&status), Some((Context::Platform, status.as_str())));
    }
}
