//! Which requests are recorded, how much of them, and when: `audit.k8s.io/v1` `Policy`.
//!
//! The first rule that a request matches decides; what no rule matches is not recorded.

use crate::Stage;
use freehold_machinery::User;
use serde::Deserialize;

/// How much is recorded. Each level has all of those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who, what, when and the outcome.
    Metadata,
    /// The object that was sent, too.
    Request,
    /// The answer, too.
    RequestResponse,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Why a policy can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No YAML, or not of this shape.
    #[error("it can't be read: {0}")]
    Unreadable(String),
    /// Another kind or version.
    #[error("it must be a Policy of audit.k8s.io/v1, not a {1} of {0}")]
    OtherKind(String, String),
    /// It would record nothing.
    #[error("loaded illegal policy with 0 rules")]
    Empty,
    /// A rule contradicts itself.
    #[error("{0}")]
    Invalid(String),
}

/// Which requests are recorded.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: Option<serde_json::Value>,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Option<Level>,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// What a policy is asked about: a request, as authorization sees it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Who asks; `None` where nobody was believed.
    pub user: Option<&'a User>,
    /// `get`, `create`, ...; for paths the method in lower case.
    pub verb: &'a str,
    /// API group, empty for core.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// The plural resource; empty where it is about a path.
    pub resource: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The object's name, or empty.
    pub name: &'a str,
    /// The path within its context.
    pub path: &'a str,
}

/// What a policy says of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub(crate) level: Level,
    /// A bit for each stage that is left out.
    omitted: u8,
    pub(crate) omit_managed_fields: bool,
}

impl Wanted {
    /// Whether an event is made at a stage.
    pub(crate) fn has(&self, stage: Stage) -> bool {
        self.level > Level::None && self.omitted & stage.bit() == 0
    }
}

fn bits(stages: &[Stage]) -> u8 {
    stages.iter().fold(0, |bits, stage| bits | stage.bit())
}

impl Policy {
    /// Reads a policy from YAML or JSON. Unknown fields are errors: a misspelled rule would record too little.
    ///
    /// # Errors
    /// [`PolicyError`] for text of another shape, kind or version, without rules, or with a rule that contradicts
    /// itself.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let policy: Self =
            serde_saphyr::from_str(text).map_err(|error| PolicyError::Unreadable(error.to_string()))?;
        if policy.api_version != "audit.k8s.io/v1" || policy.kind != "Policy" {
            return Err(PolicyError::OtherKind(policy.api_version, policy.kind));
        }
        if policy.rules.is_empty() {
            return Err(PolicyError::Empty);
        }
        for (at, rule) in policy.rules.iter().enumerate() {
            rule.check().map_err(|why| PolicyError::Invalid(format!("rules[{at}]{why}")))?;
        }
        Ok(policy)
    }

    /// What is recorded of a request.
    pub(crate) fn wanted(&self, asked: &Subject<'_>) -> Wanted {
        let found = self.rules.iter().find(|rule| rule.matches(asked));
        let common = bits(&self.omit_stages);
        match found {
            Some(rule) => Wanted {
                level: rule.level.unwrap_or_default(),
                omitted: common | bits(&rule.omit_stages),
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
            },
            None => {
                Wanted { level: Level::None, omitted: common, omit_managed_fields: self.omit_managed_fields }
            }
        }
    }
}

impl Rule {
    fn check(&self) -> Result<(), String> {
        if self.level.is_none() {
            return Err(".level: Required value".to_owned());
        }
        for (at, url) in self.non_resource_urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let wrong =
                |detail: &str| Err(format!(".nonResourceURLs[{at}]: Invalid value: {url:?}: {detail}"));
            if !url.starts_with('/') {
                return wrong("non-resource URL rules must begin with a '/' character");
            }
            if url.strip_suffix('*').unwrap_or(url).contains('*') {
                return wrong("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
        for resources in &self.resources {
            let group = &resources.group;
            if !group.is_empty()
                && group != "*"
                && !freehold_machinery::names::dns1123_subdomain(group).is_empty()
            {
                return Err(format!(".resources.group: Invalid value: {group:?}"));
            }
            if !resources.resource_names.is_empty() && resources.resources.is_empty() {
                return Err(
                    ".resources.resourceNames: using resourceNames requires at least one resource".to_owned()
                );
            }
        }
        let both = !self.resources.is_empty() || !self.namespaces.is_empty();
        if !self.non_resource_urls.is_empty() && both {
            return Err(
                ".nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn matches(&self, asked: &Subject<'_>) -> bool {
        let among = |list: &[String], text: &str| list.iter().any(|one| one == text);
        if !self.users.is_empty() && !asked.user.is_some_and(|user| among(&self.users, &user.name)) {
            return false;
        }
        let in_group = |user: &User| user.groups.iter().any(|group| among(&self.user_groups, group));
        if !self.user_groups.is_empty() && !asked.user.is_some_and(in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !among(&self.verbs, asked.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return self.matches_resource(asked);
        }
        if !self.non_resource_urls.is_empty() {
            return asked.resource.is_empty()
                && self.non_resource_urls.iter().any(|url| is_path(url, asked.path));
        }
        true
    }

    fn matches_resource(&self, asked: &Subject<'_>) -> bool {
        if asked.resource.is_empty() {
            return false;
        }
        if !self.namespaces.is_empty() && !self.namespaces.iter().any(|n| n == asked.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|resources| resources.matches(asked))
    }
}

/// A path, a path that ends with `*`, or `*`.
fn is_path(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

impl GroupResources {
    fn matches(&self, asked: &Subject<'_>) -> bool {
        if self.group != asked.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let named = self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == asked.name);
        named && self.resources.iter().any(|resource| is_resource(resource, asked))
    }
}

/// `pods`, `pods/log`, `pods/*`, `*/log` or `*`.
fn is_resource(rule: &str, asked: &Subject<'_>) -> bool {
    match rule.split_once('/') {
        _ if rule == "*" => true,
        None => rule == asked.resource && asked.subresource.is_empty(),
        Some((resource, "*")) if resource == asked.resource => true,
        Some(("*", subresource)) => !asked.subresource.is_empty() && subresource == asked.subresource,
        Some((resource, subresource)) => resource == asked.resource && subresource == asked.subresource,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &str) -> Result<Policy, PolicyError> {
        Policy::parse(&format!(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n{rules}"
        ))
    }

    /// `verb group/resource[/subresource] namespace name`, or `verb /path`.
    fn level(policy: &Policy, request: &str) -> Level {
        let user = User { name: "jane".into(), groups: vec!["devs".into()], ..User::default() };
        let parts: Vec<&str> = request.split(' ').collect();
        let mut asked = Subject {
            user: Some(&user),
            verb: parts[0],
            group: "",
            version: "v1",
            resource: "",
            subresource: "",
            namespace: parts.get(2).copied().unwrap_or(""),
            name: parts.get(3).copied().unwrap_or(""),
            path: parts[1],
        };
        if !parts[1].starts_with('/') {
            let mut path = parts[1].splitn(3, '/');
            asked.group = path.next().unwrap_or("").trim_matches('-');
            asked.resource = path.next().unwrap_or("");
            asked.subresource = path.next().unwrap_or("");
        }
        policy.wanted(&asked).level
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rows = [
            ("{level: Request}", "get -/pods a x", Level::Request),
            ("{level: Request, users: [joe]}", "get -/pods a x", Level::None),
            ("{level: Request, userGroups: [devs]}", "get -/pods a x", Level::Request),
            ("{level: Request, verbs: [list]}", "get -/pods a x", Level::None),
            ("{level: Request, namespaces: [a]}", "get -/pods a x", Level::Request),
            ("{level: Request, namespaces: ['']}", "get -/pods a x", Level::None),
            ("{level: Request, namespaces: ['']}", "get -/nodes  x", Level::Request),
            ("{level: Request, namespaces: [a]}", "get /healthz", Level::None),
            ("{level: Request, resources: [{group: ''}]}", "get -/pods a x", Level::Request),
            ("{level: Request, resources: [{group: apps}]}", "get -/pods a x", Level::None),
            (
                "{level: Request, resources: [{group: '*', resources: [pods]}]}",
                "get -/pods a x",
                Level::Request,
            ),
            ("{level: Request, resources: [{resources: [pods]}]}", "get -/pods/log a x", Level::None),
            ("{level: Request, resources: [{resources: [pods/log]}]}", "get -/pods/log a x", Level::Request),
            ("{level: Request, resources: [{resources: ['pods/*']}]}", "get -/pods/log a x", Level::Request),
            ("{level: Request, resources: [{resources: ['pods/*']}]}", "get -/pods a x", Level::Request),
            ("{level: Request, resources: [{resources: ['*/log']}]}", "get -/pods/log a x", Level::Request),
            ("{level: Request, resources: [{resources: ['*/log']}]}", "get -/pods a x", Level::None),
            ("{level: Request, resources: [{resources: ['*']}]}", "get -/pods/log a x", Level::Request),
            (
                "{level: Request, resources: [{resources: [pods], resourceNames: [x]}]}",
                "get -/pods a x",
                Level::Request,
            ),
            (
                "{level: Request, resources: [{resources: [pods], resourceNames: [y]}]}",
                "get -/pods a x",
                Level::None,
            ),
            ("{level: Request, nonResourceURLs: ['/health*']}", "get /healthz", Level::Request),
            ("{level: Request, nonResourceURLs: ['*']}", "get /healthz", Level::Request),
            ("{level: Request, nonResourceURLs: ['*']}", "get -/pods a x", Level::None),
            ("{level: Metadata, verbs: [get]}\n- {level: Request}", "get -/pods a x", Level::Metadata),
        ];
        for (rule, request, expected) in rows {
            let policy = policy(&format!("rules:\n- {rule}")).unwrap();
            assert_eq!(level(&policy, request), expected, "{rule}: {request}");
        }
    }

    #[test]
    fn a_policy_that_is_wrong_says_where() {
        let rows = [
            ("rules: []", "0 rules"),
            ("rules: [{}]", "rules[0].level: Required value"),
            ("rules: [{level: Some}]", "can't be read"),
            ("rules: [{level: None, user: [a]}]", "can't be read"),
            ("rules: [{level: None, nonResourceURLs: [a]}]", "must begin with a '/'"),
            ("rules: [{level: None, nonResourceURLs: ['/a*b']}]", "final character"),
            ("rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]", "both regular"),
            ("rules: [{level: None, resources: [{resourceNames: [a]}]}]", "at least one resource"),
            ("rules: [{level: None, resources: [{group: A/v1}]}]", "group: Invalid"),
            ("rules: [{level: None, omitStages: [Never]}]", "can't be read"),
        ];
        for (text, expected) in rows {
            let error = policy(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let other = Policy::parse("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]");
        assert!(matches!(other, Err(PolicyError::OtherKind(..))));
    }

    #[test]
    fn stages_are_left_out_by_the_policy_and_by_the_rule() {
        let policy = policy("rules: [{level: Metadata, omitStages: [Panic]}]").unwrap();
        let user = User::anonymous();
        let asked = Subject {
            user: Some(&user),
            verb: "get",
            group: "",
            version: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            path: "/",
        };
        let wanted = policy.wanted(&asked);
        let made = [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic]
            .map(|stage| wanted.has(stage));
        assert_eq!(made, [false, true, true, false]);
    }
}
