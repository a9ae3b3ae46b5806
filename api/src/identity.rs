//! `iam.freehold.dev/v1alpha1` `IdentityProvider`: whom an organization believes. Served by the core plane.

use crate::columns::column;
use crate::object::{Definition, KindSpec, Object};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who signs tokens that are good in one organization.
pub type IdentityProvider = Object<IdentityProviderSpec>;

/// An OpenID Connect issuer, with the fields of an AuthenticationConfiguration's `jwt` entry.
///
/// Its users are `organization:NAME:` and what the username mapping gives, their groups likewise; neither may begin with
/// `system:`. They are somebody in the organization's own context and in its projects, and nobody anywhere else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityProviderSpec {
    /// The issuer.
    pub issuer: TokenIssuer,
    /// What claims must be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    /// What of a user the claims are.
    pub claim_mappings: ClaimMappings,
    /// What users must be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub user_validation_rules: Vec<UserValidationRule>,
}

/// An issuer of tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenIssuer {
    /// The `iss` of its tokens.
    #[schemars(length(max = 2048), regex(pattern = "^https://[^/?#@]+(/[^?#]*)?$"))]
    pub url: String,
    /// Where its configuration is, where that is not at /.well-known/openid-configuration below the URL.
    #[serde(default, rename = "discoveryURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = "^https://[^/?#@]+(/[^?#]*)?$"))]
    pub discovery_url: Option<String>,
    /// The authorities of its certificate, PEM; those that the server's machine trusts where there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 65536))]
    pub certificate_authority: String,
    /// Whom its tokens are for: one of these.
    #[schemars(length(min = 1, max = 16))]
    pub audiences: Vec<String>,
    /// `MatchAny`: needed for several audiences.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = "^(MatchAny)?$"))]
    pub audience_match_policy: String,
}

/// What a claim must be: a value, or an expression that is true.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimValidationRule {
    /// The claim's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// Its value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub required_value: String,
    /// CEL over `claims`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expression: String,
    /// What is said where it is false.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What a user must be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserValidationRule {
    /// CEL over `user`: what the mappings give, before the organization's prefix.
    pub expression: String,
    /// What is said where it is false.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What of a user the claims are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimMappings {
    /// The name, behind the organization's prefix.
    pub username: PrefixedClaimOrExpression,
    /// The groups, behind the organization's prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<PrefixedClaimOrExpression>,
    /// The uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<ClaimOrExpression>,
    /// Further attributes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PrefixedClaimOrExpression {
    /// The claim's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// What is put before its value; may be empty, and is needed with a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// CEL over `claims`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expression: String,
}

/// A claim, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimOrExpression {
    /// The claim's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// CEL over `claims`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expression: String,
}

/// An attribute of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraMapping {
    /// Its key, in lower case: `example.com/team`.
    pub key: String,
    /// CEL over `claims`: a string, or a list of them.
    pub value_expression: String,
}

/// Nothing is observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IdentityProviderStatus {}

impl KindSpec for IdentityProviderSpec {
    type Status = IdentityProviderStatus;
    const DEFINITION: Definition = Definition {
        group: "iam.freehold.dev",
        version: "v1alpha1",
        kind: "IdentityProvider",
        plural: "identityproviders",
        short_names: &["idp"],
        namespaced: true,
        description: "An IdentityProvider is an OpenID Connect issuer whose users are somebody in the organization whose namespace it is in, and nobody anywhere else.",
        columns: &[column("Issuer", ".spec.issuer.url")],
    };
}
