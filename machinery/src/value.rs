//! JSON values, as objects are in memory.

/// An object or a part of one.
pub type Value = serde_json::Value;
/// A JSON object.
pub type Map = serde_json::Map<String, Value>;
