//! Which objects a list is about.

use freehold_machinery::{
    Status,
    selector::{Fields, Labels},
};

/// The labels and fields that a list selects by.
#[derive(Debug)]
pub struct Selection {
    labels: Labels,
    fields: Fields,
}

impl Selection {
    /// Reads `labelSelector` and `fieldSelector` as a client gave them.
    ///
    /// # Errors
    /// 400 for a selector that can't be parsed, or a field other than `metadata.name` and `metadata.namespace`.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, Status> {
        let labels = Labels::parse(labels).map_err(Status::bad_request)?;
        let fields = Fields::parse(fields).map_err(Status::bad_request)?;
        let known = |path: &str| matches!(path, "metadata.name" | "metadata.namespace");
        let unknown = |label: String| Status::bad_request(format!("field label not supported: {label}"));
        fields.check(known).map_err(unknown)?;
        Ok(Self { labels, fields })
    }

    /// Whether an object of a namespace and name with these labels is selected.
    pub fn matches<'a>(&self, namespace: &str, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let field = |path: &str| match path {
            "metadata.name" => Some(name.to_owned()),
            "metadata.namespace" => Some(namespace.to_owned()),
            _ => None,
        };
        self.fields.matches(field) && self.labels.matches(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_selected_by_labels_names_and_namespaces() {
        let label = |key: &str| (key == "app").then_some("web");
        for (labels, fields, expected) in [
            ("", "", true),
            ("app=web", "", true),
            ("app!=web", "", false),
            ("app in (web,db),tier", "", false),
            ("", "metadata.name=p", true),
            ("", "metadata.name=q", false),
            ("app", "metadata.namespace!=a", false),
        ] {
            let selection = Selection::parse(labels, fields).unwrap();
            assert_eq!(selection.matches("a", "p", label), expected, "{labels} {fields}");
        }
        for (labels, fields) in [("a==b==c", ""), ("", "spec.nodeName=x"), ("", "metadata.name")] {
            assert_eq!(Selection::parse(labels, fields).unwrap_err().code, 400, "{labels} {fields}");
        }
    }
}
