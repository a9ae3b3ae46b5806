//! `AuthenticationConfiguration` of `apiserver.config.k8s.io/v1`, and its validation.

use super::Mapping;
use freehold_machinery::status::{FieldError, FieldErrorKind};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// How many issuers there may be.
const MAX_ISSUERS: usize = 64;
/// The versions that are read; they have the same fields.
const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1"];

/// Who is believed besides what the server itself knows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    /// Issuers of tokens.
    #[serde(default)]
    pub jwt: Vec<JwtAuthenticator>,
    /// What the anonymous may ask; without it that is for the server's flags to say.
    #[serde(default)]
    pub anonymous: Option<Anonymous>,
}

/// What the anonymous may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Anonymous {
    /// Whether there are any.
    #[serde(default)]
    pub enabled: bool,
    /// The paths that they may ask for; empty for all.
    #[serde(default)]
    pub conditions: Vec<AnonymousCondition>,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnonymousCondition {
    /// A whole path: `/healthz`.
    pub path: String,
}

impl Anonymous {
    /// Whether the anonymous may ask for a path.
    pub fn may_ask(&self, path: &str) -> bool {
        self.enabled && (self.conditions.is_empty() || self.conditions.iter().any(|c| c.path == path))
    }
}

/// An issuer of tokens and what its tokens mean.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JwtAuthenticator {
    /// The issuer.
    #[serde(default)]
    pub issuer: IssuerConfig,
    /// What claims must be.
    #[serde(default)]
    pub claim_validation_rules: Vec<ClaimRule>,
    /// What of a user the claims are.
    #[serde(default)]
    pub claim_mappings: ClaimMappings,
    /// What users must be.
    #[serde(default)]
    pub user_validation_rules: Vec<UserRule>,
}

/// An issuer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssuerConfig {
    /// The `iss` of its tokens, an https URL.
    #[serde(default)]
    pub url: String,
    /// Where its configuration is, where that is not below the URL.
    #[serde(default, rename = "discoveryURL", skip_serializing_if = "Option::is_none")]
    pub discovery_url: Option<String>,
    /// Whose certificates it has, PEM; those that the machine trusts where it is empty.
    #[serde(default)]
    pub certificate_authority: String,
    /// Whom its tokens are for: one of these.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// `MatchAny`, or empty for one audience.
    #[serde(default)]
    pub audience_match_policy: String,
    /// Which way requests to it take: known and of no effect, there is one way.
    #[serde(default)]
    pub egress_selector_type: String,
}

/// What a claim must be: a value, or an expression that is true.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClaimRule {
    /// The claim's name.
    pub claim: String,
    /// Its value.
    pub required_value: String,
    /// CEL over `claims`.
    pub expression: String,
    /// What is said where it is false.
    pub message: String,
}

/// What a user must be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UserRule {
    /// CEL over `user`.
    pub expression: String,
    /// What is said where it is false.
    pub message: String,
}

/// What of a user the claims are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClaimMappings {
    /// The name.
    pub username: PrefixedClaim,
    /// The groups.
    pub groups: PrefixedClaim,
    /// The uid.
    pub uid: Claim,
    /// Further attributes.
    pub extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrefixedClaim {
    /// The claim's name.
    pub claim: String,
    /// What is put before its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// CEL over `claims`.
    pub expression: String,
}

/// A claim, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Claim {
    /// The claim's name.
    pub claim: String,
    /// CEL over `claims`.
    pub expression: String,
}

/// An attribute of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExtraMapping {
    /// Its key: `example.com/team`, in lower case.
    pub key: String,
    /// CEL over `claims`: a string, or a list of them.
    pub value_expression: String,
}

impl Configuration {
    /// Reads a configuration from YAML or JSON and checks all of it.
    ///
    /// # Errors
    /// Every fault of the configuration, in kube-apiserver's words.
    pub fn parse(text: &str, own_issuers: &[&str]) -> Result<Self, String> {
        let read: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if read.kind != "AuthenticationConfiguration" || !VERSIONS.contains(&read.api_version.as_str()) {
            let (kind, version) = (&read.kind, &read.api_version);
            return Err(format!(
                "it must be an AuthenticationConfiguration of {}, not {kind:?} of {version:?}",
                VERSIONS[0]
            ));
        }
        let errors = read.validate(own_issuers);
        match errors.is_empty() {
            true => Ok(read),
            false => Err(errors
                .iter()
                .map(|e| format!("{}: {}", e.field, e.body()))
                .collect::<Vec<_>>()
                .join(", ")),
        }
    }

    fn validate(&self, own_issuers: &[&str]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if self.jwt.len() > MAX_ISSUERS {
            let detail = format!("must have at most {MAX_ISSUERS} items");
            errors.push(FieldError::new(FieldErrorKind::TooMany, "jwt", detail));
            return errors;
        }
        let (mut urls, mut discovery) = (HashSet::new(), HashSet::new());
        for (at, one) in self.jwt.iter().enumerate() {
            let path = format!("jwt[{at}]");
            errors.extend(one.validate(&path, own_issuers));
            if !urls.insert(&one.issuer.url) {
                errors.push(duplicate(format!("{path}.issuer.url"), &one.issuer.url));
            }
            if let Some(url) = one.issuer.discovery_url.as_ref().filter(|url| !discovery.insert(*url)) {
                errors.push(duplicate(format!("{path}.issuer.discoveryURL"), url));
            }
        }
        if self.anonymous.as_ref().is_some_and(|a| !a.enabled && !a.conditions.is_empty()) {
            let detail = "enabled should be set to true when conditions are defined";
            errors.push(FieldError::new(FieldErrorKind::Invalid, "anonymous.conditions", detail));
        }
        errors
    }
}

impl JwtAuthenticator {
    /// What is wrong with it, each with its field below `path`.
    pub fn validate(&self, path: &str, own_issuers: &[&str]) -> Vec<FieldError> {
        let mut errors = self.issuer.validate(&format!("{path}.issuer"), own_issuers);
        errors.extend(Mapping::compile(self, path).1);
        errors
    }
}

fn duplicate(field: String, value: &str) -> FieldError {
    FieldError { value: Some(value.into()), ..FieldError::new(FieldErrorKind::Duplicate, field, "") }
}

impl IssuerConfig {
    fn validate(&self, path: &str, own_issuers: &[&str]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let url = format!("{path}.url");
        match self.url.as_str() {
            "" => errors.push(FieldError::required(&url, "")),
            text if own_issuers.iter().any(|own| text.starts_with(own)) => {
                let detail = format!("URL must not overlap with disallowed issuers: {own_issuers:?}");
                errors.push(FieldError::invalid(&url, text.into(), detail));
            }
            text => check_url(&url, text, &mut errors),
        }
        if let Some(other) = self.discovery_url.as_deref().filter(|other| !other.is_empty()) {
            let field = format!("{path}.discoveryURL");
            if !self.url.is_empty() && self.url.trim_end_matches('/') == other.trim_end_matches('/') {
                let detail = "discoveryURL must be different from URL";
                errors.push(FieldError::invalid(&field, other.into(), detail));
            }
            check_url(&field, other, &mut errors);
        }
        self.check_audiences(path, &mut errors);
        let ca = self.certificate_authority.trim();
        if !ca.is_empty() && freehold_pki::certificates_der(ca).is_err() {
            let detail = "data does not contain any valid RSA or ECDSA certificates";
            errors.push(FieldError::invalid(
                format!("{path}.certificateAuthority"),
                "<omitted>".into(),
                detail,
            ));
        }
        if !["", "controlplane", "cluster"].contains(&self.egress_selector_type.as_str()) {
            let value = self.egress_selector_type.as_str().into();
            let detail = "egress selector must be either controlplane or cluster";
            errors.push(FieldError::invalid(format!("{path}.egressSelectorType"), value, detail));
        }
        errors
    }

    fn check_audiences(&self, path: &str, errors: &mut Vec<FieldError>) {
        let field = format!("{path}.audiences");
        if self.audiences.is_empty() {
            errors.push(FieldError::required(&field, format!("at least one {field} is required")));
            return;
        }
        let mut seen = HashSet::new();
        for (at, audience) in self.audiences.iter().enumerate() {
            let field = format!("{field}[{at}]");
            if audience.is_empty() {
                errors.push(FieldError::required(&field, ""));
            }
            if !seen.insert(audience) {
                errors.push(duplicate(field, audience));
            }
        }
        let policy = self.audience_match_policy.as_str();
        let wrong = match self.audiences.len() {
            1 if !["", "MatchAny"].contains(&policy) => {
                "audienceMatchPolicy must be empty or MatchAny for single audience"
            }
            2.. if policy != "MatchAny" => "audienceMatchPolicy must be MatchAny for multiple audiences",
            _ => return,
        };
        errors.push(FieldError::invalid(format!("{path}.audienceMatchPolicy"), policy.into(), wrong));
    }

    /// Where the issuer's configuration is.
    pub fn discovery(&self) -> String {
        match self.discovery_url.as_deref() {
            Some(url) if !url.is_empty() => url.to_owned(),
            _ => format!("{}/.well-known/openid-configuration", self.url.trim_end_matches('/')),
        }
    }
}

fn check_url(field: &str, text: &str, errors: &mut Vec<FieldError>) {
    let mut wrong = |detail: &str| errors.push(FieldError::invalid(field, text.into(), detail));
    let Some((scheme, rest)) = text.split_once("://") else { return wrong("URL scheme must be https") };
    if scheme != "https" {
        wrong("URL scheme must be https");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        wrong("URL must have a host");
    }
    if authority.contains('@') {
        wrong("URL must not contain a username or password");
    }
    if rest.split('#').next().is_some_and(|before| before.contains('?')) {
        wrong("URL must not contain a query");
    }
    if rest.contains('#') {
        wrong("URL must not contain a fragment");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(jwt: &str) -> Result<Configuration, String> {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
        Configuration::parse(&format!("{head}{jwt}"), &["https://freehold.local/planes"])
    }

    /// One issuer with a part replaced or added.
    fn with(part: &str) -> String {
        let mut lines = [
            ("url", "url: https://a.example"),
            ("audiences", "audiences: [x]"),
            ("username", "username: {claim: sub, prefix: \"\"}"),
        ];
        let key = part.split(':').next().unwrap_or_default();
        let mut rest = String::new();
        match lines.iter_mut().find(|(name, _)| *name == key) {
            Some(line) => line.1 = part,
            None => rest = part.to_owned(),
        }
        let (url, audiences, username) = (lines[0].1, lines[1].1, lines[2].1);
        let (issuer, mappings, top) = match key {
            "discoveryURL" | "certificateAuthority" | "audienceMatchPolicy" => (rest.as_str(), "", ""),
            "groups" | "uid" | "extra" => ("", rest.as_str(), ""),
            _ => ("", "", rest.as_str()),
        };
        format!(
            "jwt:\n- issuer:\n    {url}\n    {audiences}\n    {issuer}\n  claimMappings:\n    {username}\n    {mappings}\n  {top}\n"
        )
    }

    #[test]
    fn what_is_wrong_is_said_with_its_field() {
        assert_eq!(parse(&with("groups: {claim: groups, prefix: \"g:\"}")).map(|c| c.jwt.len()), Ok(1));
        let rows = [
            (
                "url: http://a.example",
                "jwt[0].issuer.url: Invalid value: \"http://a.example\": URL scheme must be https",
            ),
            ("url: https://a.example?x", "must not contain a query"),
            ("url: https://u@a.example", "username or password"),
            ("url: https://freehold.local/planes/core", "disallowed issuers"),
            ("url: \"\"", "jwt[0].issuer.url: Required value"),
            ("discoveryURL: https://a.example/", "discoveryURL must be different from URL"),
            ("audiences: []", "jwt[0].issuer.audiences: Required value"),
            ("audiences: [x, y]", "audienceMatchPolicy must be MatchAny for multiple audiences"),
            ("audiences: [x, x]", "audiences[1]: Duplicate value"),
            ("certificateAuthority: nothing", "certificateAuthority: Invalid value: \"<omitted>\""),
            ("username: {claim: sub}", "jwt[0].claimMappings.username.prefix: Required value"),
            ("username: {}", "claimMappings.username: Required value: claim or expression is required"),
            (
                "username: {claim: sub, prefix: \"\", expression: claims.sub}",
                "claim and expression can't both be set",
            ),
            ("username: {expression: claims.email}", "claims.email_verified must be used"),
            ("username: {expression: \"1 +\"}", "claimMappings.username.expression: Invalid value"),
            ("extra: [{key: foo, valueExpression: claims.a}]", "claimMappings.extra[0].key"),
            ("extra: [{key: k8s.io/x, valueExpression: claims.a}]", "reserved for Kubernetes use"),
            ("extra: [{key: A.b/x, valueExpression: claims.a}]", "must be lowercase"),
            (
                "claimValidationRules: [{}]",
                "claimValidationRules[0]: Required value: claim or expression is required",
            ),
            ("claimValidationRules: [{expression: \"'a'\"}]", "must evaluate to bool"),
            ("claimValidationRules: [{claim: a, message: b}]", "may not be specified when claim is set"),
            (
                "userValidationRules: [{expression: user.name}]",
                "userValidationRules[0].expression: Invalid value",
            ),
            ("userValidationRules: [{}]", "userValidationRules[0].expression: Required value"),
            ("other: 1", "unknown field"),
        ];
        for (part, expected) in rows {
            let error = parse(&with(part)).unwrap_err();
            assert!(error.contains(expected), "{part}: {error}");
        }
    }

    #[test]
    fn issuers_are_unique_and_the_anonymous_are_asked_for() {
        let two = with("groups: {}").replace("jwt:\n", "");
        assert!(
            parse(&format!("jwt:\n{two}{two}")).unwrap_err().contains("jwt[1].issuer.url: Duplicate value")
        );
        let anonymous =
            parse("anonymous: {enabled: true, conditions: [{path: /livez}]}").unwrap().anonymous.unwrap();
        assert!(anonymous.may_ask("/livez") && !anonymous.may_ask("/livez/x") && !anonymous.may_ask("/"));
        assert!(!Anonymous::default().may_ask("/livez"));
        assert!(parse("anonymous: {enabled: false, conditions: [{path: /}]}").is_err());
        assert!(Configuration::parse("kind: Other", &[]).is_err());
    }
}
