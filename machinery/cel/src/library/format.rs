//! Named formats: `format.dns1123Label().validate('a')`.

use super::{
    opaque::opaque,
    outcome::{Args, Outcome, texts},
};
use cel::{
    DeclarationError, Env, add_member_overload, add_overload,
    common::{
        functions::Function,
        types::{CelOptional, CelString},
        value::{CowVal, Val},
    },
};
use freehold_machinery::{
    go::{quote, url::parse_request_uri},
    names::{NameRule, label_value, qualified_name},
    schema::formats,
};

type Check = fn(&str) -> Vec<String>;

/// The formats, by the names under which expressions know them, each with the size of the regular expression that checking
/// it is taken to cost.
const FORMATS: [(&str, u64, Check); 13] = [
    ("dns1123Label", 30, |s| NameRule::Dns1123Label.check(s, false)),
    ("dns1123Subdomain", 60, |s| NameRule::Dns1123Subdomain.check(s, false)),
    ("dns1035Label", 30, |s| NameRule::Dns1035Label.check(s, false)),
    ("qualifiedName", 60, qualified_name),
    ("dns1123LabelPrefix", 30, |s| NameRule::Dns1123Label.check(s, true)),
    ("dns1123SubdomainPrefix", 60, |s| NameRule::Dns1123Subdomain.check(s, true)),
    ("dns1035LabelPrefix", 30, |s| NameRule::Dns1035Label.check(s, true)),
    ("labelValue", 40, label_value),
    ("uri", 1103, uri),
    ("uuid", 70, |s| known(s, "uuid", "does not match the UUID format")),
    ("byte", 84, |s| known(s, "byte", "invalid base64")),
    ("date", 71, |s| known(s, "date", "invalid date")),
    ("datetime", 71, |s| known(s, "datetime", "invalid datetime")),
];

fn uri(text: &str) -> Vec<String> {
    let wrong = |why| format!("parse {}: {why}", quote(text));
    parse_request_uri(text).err().map(wrong).into_iter().collect()
}

fn known(text: &str, format: &str, message: &str) -> Vec<String> {
    if formats::check(format, text) == Some(true) { Vec::new() } else { vec![message.to_owned()] }
}

opaque!(
    /// The place of a format in the table.
    Format(usize), FORMAT = "kubernetes.NamedFormat", copy
);

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(FORMAT.to_owned())?;
    add_overload!(env, fn named: (CelString<'_>) -> CelOptional<'_>, name = "format.named")?;
    add_member_overload!(env, fn validate: (Format, CelString<'_>) -> CelOptional<'_>)?;
    let constants: [Function; FORMATS.len()] = [
        constant::<0>,
        constant::<1>,
        constant::<2>,
        constant::<3>,
        constant::<4>,
        constant::<5>,
        constant::<6>,
        constant::<7>,
        constant::<8>,
        constant::<9>,
        constant::<10>,
        constant::<11>,
        constant::<12>,
    ];
    for ((name, ..), function) in FORMATS.iter().zip(constants) {
        let name = format!("format.{name}");
        env.add_overload(&name, &name, vec![], function)?;
    }
    Ok(())
}

/// The size of a format's regular expression; `None` for other values.
pub(super) fn regex(value: &dyn Val) -> Option<u64> {
    value.downcast_ref::<Format>().map(|format| FORMATS[format.0].1)
}

fn named(name: &CelString<'_>) -> CelOptional<'static> {
    let at = FORMATS.iter().position(|(known, ..)| *known == name.inner());
    at.map_or_else(CelOptional::none, |at| CelOptional::of(Box::new(Format(at))))
}

fn validate(this: &Format, text: &CelString<'_>) -> CelOptional<'static> {
    let messages = FORMATS[this.0].2(text.inner());
    if messages.is_empty() { CelOptional::none() } else { CelOptional::of(Box::new(texts(messages))) }
}

fn constant<'b, 'v, const AT: usize>(_: Args<'b, 'v>) -> Outcome<'b, 'v> {
    Ok(CowVal::owned(Format(AT)))
}
