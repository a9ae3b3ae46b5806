//! Named formats: `format.dns1123Label().validate('a')`.

use super::{Args, Outcome, opaque, texts};
use cel::{
    DeclarationError, Env, add_member_overload, add_overload,
    common::{
        functions::Function,
        types::{CelOptional, CelString},
        value::CowVal,
    },
};
use freehold_machinery::{
    names::{NameRule, label_value, qualified_name},
    schema::formats,
};

type Check = fn(&str) -> Vec<String>;

/// The formats, by the names under which expressions know them.
const FORMATS: [(&str, Check); 13] = [
    ("dns1123Label", |s| NameRule::Dns1123Label.check(s, false)),
    ("dns1123Subdomain", |s| NameRule::Dns1123Subdomain.check(s, false)),
    ("dns1035Label", |s| NameRule::Dns1035Label.check(s, false)),
    ("qualifiedName", qualified_name),
    ("dns1123LabelPrefix", |s| NameRule::Dns1123Label.check(s, true)),
    ("dns1123SubdomainPrefix", |s| NameRule::Dns1123Subdomain.check(s, true)),
    ("dns1035LabelPrefix", |s| NameRule::Dns1035Label.check(s, true)),
    ("labelValue", label_value),
    ("uri", |s| known(s, "uri", "invalid URI for request")),
    ("uuid", |s| known(s, "uuid", "does not match the UUID format")),
    ("byte", |s| known(s, "byte", "invalid base64")),
    ("date", |s| known(s, "date", "invalid date")),
    ("datetime", |s| known(s, "datetime", "invalid datetime")),
];

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
    for ((name, _), function) in FORMATS.iter().zip(constants) {
        let name = format!("format.{name}");
        env.add_overload(&name, &name, vec![], function)?;
    }
    Ok(())
}

fn named(name: &CelString<'_>) -> CelOptional<'static> {
    let at = FORMATS.iter().position(|(known, _)| *known == name.inner());
    at.map_or_else(CelOptional::none, |at| CelOptional::of(Box::new(Format(at))))
}

fn validate(this: &Format, text: &CelString<'_>) -> CelOptional<'static> {
    let messages = FORMATS[this.0].1(text.inner());
    if messages.is_empty() { CelOptional::none() } else { CelOptional::of(Box::new(texts(messages))) }
}

fn constant<'b, 'v, const AT: usize>(_: Args<'b, 'v>) -> Outcome<'b, 'v> {
    Ok(CowVal::owned(Format(AT)))
}
