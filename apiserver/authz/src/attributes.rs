//! What is asked, and what is answered.

use freehold_machinery::{GroupResource, Status, User};

/// Something that a user wants to do. Empty strings stand for what does not apply.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    /// Who.
    pub user: &'a User,
    /// `get`, `list`, ...; for paths the HTTP method in lower case.
    pub verb: &'a str,
    /// API group, empty for core.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Plural resource; empty for a path.
    pub resource: &'a str,
    /// Subresource.
    pub subresource: &'a str,
    /// Namespace; empty at the cluster scope.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// The path, where it is no resource.
    pub path: &'a str,
}

impl Attributes<'_> {
    /// Whether this is about a resource and not a path.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }
}

/// Whether it is allowed, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is.
    pub allowed: bool,
    /// Which binding allowed it, for audit; empty where nothing did.
    pub reason: String,
}

impl Decision {
    /// Allowed, because.
    pub fn allow(reason: impl Into<String>) -> Self {
        Self { allowed: true, reason: reason.into() }
    }

    /// Not allowed: nobody said so.
    pub fn no_opinion() -> Self {
        Self::default()
    }
}

/// 403 in kube-apiserver's words. `reason` may be empty.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    let Attributes { user, verb, group, resource, subresource, namespace, name, path, .. } = attributes;
    let who = format!("User {:?} cannot {verb}", user.name);
    let mut why = if attributes.is_resource() {
        let what =
            if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") };
        let place = match namespace.is_empty() {
            true => "at the cluster scope".to_owned(),
            false => format!("in the namespace {namespace:?}"),
        };
        format!("{who} resource {what:?} in API group {group:?} {place}")
    } else {
        format!("{who} path {path:?}")
    };
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    Status::forbidden(&GroupResource::new(*group, *resource), name, &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_reads_as_kube_apiserver_writes_it() {
        let user = User { name: "jane".into(), ..User::default() };
        let base = Attributes {
            user: &user,
            verb: "list",
            group: "apps",
            version: "v1",
            resource: "deployments",
            subresource: "",
            namespace: "default",
            name: "",
            path: "",
        };
        assert_eq!(
            forbidden(&base, "").message,
            "deployments.apps is forbidden: User \"jane\" cannot list resource \"deployments\" in API group \"apps\" in \
             the namespace \"default\""
        );
        let path =
            Attributes { verb: "get", resource: "", group: "", path: "/metrics", namespace: "", ..base };
        assert_eq!(forbidden(&path, "").message, "forbidden: User \"jane\" cannot get path \"/metrics\"");
    }
}
