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
    /// `/services/apiexports/<project>/<export>/...`: the planes that consume an export, as their provider sees them.
    Export {
        /// The provider's project.
        project: String,
        /// The export.
        export: String,
        /// Which of the consumers.
        consumer: Consumer,
    },
}

/// Which consumers of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// `/clusters/*/...`, or nothing: all of them.
    All,
    /// `/clusters/<project>/...`: one, by the name of its project.
    Project(String),
    /// `/planes/<id>/...`: one, by the identifier of its plane.
    Plane(PlaneId),
}

/// How the path of a provider's view begins.
const EXPORTS: &str = "/services/apiexports/";

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
    if let Some(rest) = path.strip_prefix(EXPORTS) {
        return of_export(rest);
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

/// The context and the rest of `<project>/<export>[/clusters/<consumer>|/planes/<id>]<rest>`.
fn of_export(path: &str) -> Option<(Context, &str)> {
    let (project, rest) = path.split_once('/')?;
    let (export, rest) = cut(rest);
    let is_name = |name: &str| !name.is_empty() && name.len() <= 253;
    let (consumer, rest) = if let Some(rest) = rest.strip_prefix("/clusters/") {
        let (name, rest) = cut(rest);
        match name {
            "*" => (Consumer::All, rest),
            name if is_name(name) => (Consumer::Project(name.to_owned()), rest),
            _ => return None,
        }
    } else if let Some(rest) = rest.strip_prefix("/planes/") {
        let (id, rest) = cut(rest);
        (Consumer::Plane(id.parse().ok()?), rest)
    } else {
        (Consumer::All, rest)
    };
    let (project, export) = (project.to_owned(), export.to_owned());
    (is_name(&project) && is_name(&export)).then_some((Context::Export { project, export, consumer }, rest))
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
    fn a_providers_view_is_of_all_consumers_or_of_one() {
        let of = |consumer| Context::Export { project: "db".into(), export: "pg".into(), consumer };
        let base = "/services/apiexports/db/pg";
        let rows = [
            (format!("{base}/apis"), Some((of(Consumer::All), "/apis"))),
            (base.to_owned(), Some((of(Consumer::All), "/"))),
            (format!("{base}/clusters/*/apis"), Some((of(Consumer::All), "/apis"))),
            (format!("{base}/clusters/web/apis"), Some((of(Consumer::Project("web".into())), "/apis"))),
            (format!("{base}/planes/core/apis"), Some((of(Consumer::Plane(PlaneId::core())), "/apis"))),
            (format!("{base}/clusters//apis"), None),
            (format!("{base}/planes/A/apis"), None),
            ("/services/apiexports/db".to_owned(), None),
            ("/services/apiexports//pg/apis".to_owned(), None),
        ];
        for (path, expected) in rows {
            assert_eq!(parse(&path), expected, "{path}");
        }
    }

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
