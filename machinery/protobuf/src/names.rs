//! Names of messages whose JSON is not an object of their fields.

const SPECIAL: [&str; 11] = [
    "meta.v1.Time",
    "meta.v1.MicroTime",
    "meta.v1.Duration",
    "meta.v1.FieldsV1",
    "resource.Quantity",
    "intstr.IntOrString",
    "runtime.RawExtension",
    "apiextensions.v1.JSON",
    SCHEMA_OR_ARRAY,
    SCHEMA_OR_BOOL,
    SCHEMA_OR_STRINGS,
];

/// A JSON schema, and what can stand in its place.
pub(crate) const SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";

pub(crate) const SCHEMA_OR_ARRAY: &str = "apiextensions.v1.JSONSchemaPropsOrArray";

pub(crate) const SCHEMA_OR_BOOL: &str = "apiextensions.v1.JSONSchemaPropsOrBool";

pub(crate) const SCHEMA_OR_STRINGS: &str = "apiextensions.v1.JSONSchemaPropsOrStringArray";

/// Whether a message is read and written here.
pub(crate) fn is_special(name: &str) -> bool {
    SPECIAL.contains(&name)
}

/// Whether the message holds JSON as it stands.
pub(crate) fn is_raw(name: &str) -> bool {
    matches!(name, "meta.v1.FieldsV1" | "runtime.RawExtension" | "apiextensions.v1.JSON")
}

/// Whether a schema can stand there.
pub(crate) fn is_schema(name: &str) -> bool {
    matches!(name, SCHEMA_OR_ARRAY | SCHEMA_OR_BOOL | SCHEMA_OR_STRINGS)
}
