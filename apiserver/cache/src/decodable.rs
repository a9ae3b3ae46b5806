//! Validation that any client can decode a JSON value of the store.
//!
//! Objects go out as they lie in the store, to clients and to controllers that watch all planes at once, so one that no client
//! can decode must not get that far. Who wrote it is not known here: a dedicated pair, an archive, another version.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A value that was read and not kept: nested no deeper than clients read (serde_json's 128 levels), its numbers within range,
/// its texts valid Unicode.
pub(crate) struct Decodable;

impl<'de> Deserialize<'de> for Decodable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Decodable {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_key_seed(Key)?.is_some() {
            map.next_value::<Self>()?;
        }
        Ok(self)
    }
}

/// A key, read and not kept.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Decodable;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Decodable, D::Error> {
        deserializer.deserialize_str(Decodable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn what_is_sound_is_what_a_client_can_decode() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let mut texts: Vec<String> = [1, 100, 127, 128, 129, 100_000].into_iter().map(nested).collect();
        let plain = [
            r#"{"a":[1,-2,3.5,true,null,"x\u00e9\n"],"a":{}}"#,
            r#""\ud800""#,
            r#"{"\ud800":1}"#,
            "1e999",
            "[1e5,-1e-400,18446744073709551616]",
            r#"{"a":1,}"#,
            "tru",
        ];
        texts.extend(plain.map(str::to_owned));
        for text in texts {
            let decodable = serde_json::from_str::<Decodable>(&text).is_ok();
            let decoded = serde_json::from_str::<Value>(&text).is_ok();
            assert_eq!(decodable, decoded, "{}", &text[..text.len().min(40)]);
        }
    }
}
