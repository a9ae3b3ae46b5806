//! `'%s'.format([...])`, as cel-go writes it: what stands in lists and maps is written so that it could be CEL, and
//! numbers of `%f` and `%e` as people write them in English.

use super::invoke;
use crate::value::elements;
use cel::{
    ExecutionError,
    common::{
        types::{CelBool, CelBytes, CelDouble, CelInt, CelString, CelType, CelUInt, Kind},
        value::{CowVal, Val},
    },
};
use freehold_machinery::go::quote;

/// Decimals where nothing says how many.
const PRECISION: usize = 6;
/// A precision is kept in eight bits.
const PRECISIONS: usize = 256;
const TEXTS: &str = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps";

/// The text with its clauses filled.
///
/// # Errors
/// Clauses that are none, and arguments that are missing or of wrong types, in the words of cel-go.
pub(crate) fn format(text: &str, args: &dyn Val) -> Result<String, ExecutionError> {
    filled(text, &elements(args)).map_err(|why| ExecutionError::function_error("format", why))
}

fn filled(text: &str, args: &[Box<dyn Val + '_>]) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut index) = (text, 0);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let arg = args.get(index).ok_or_else(|| format!("index {index} out of range"))?;
        index += 1;
        let parse = |why: String| format!("could not parse formatting clause: {why}");
        let (precision, after) = precision(rest).map_err(parse)?;
        let clause = after.chars().next().ok_or("unexpected end of string")?;
        rest = &after[clause.len_utf8()..];
        if !"sdfebxXo".contains(clause) {
            return Err(parse(format!("unrecognized formatting clause \"{clause}\"")));
        }
        let written = one(clause, precision, arg.as_ref());
        out.push_str(&written.map_err(|why| format!("error during formatting: {why}"))?);
    }
    out.push_str(rest);
    Ok(out)
}

/// `.3`, and what follows.
fn precision(text: &str) -> Result<(usize, &str), String> {
    const WRONG: &str = "error while parsing precision";
    let Some(digits) = text.strip_prefix('.') else { return Ok((PRECISION, text)) };
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let end = end.ok_or_else(|| format!("{WRONG}: could not find end of precision specifier"))?;
    let why = if end == 0 { "invalid syntax" } else { "value out of range" };
    let number = digits[..end].parse::<usize>().map_err(|_| {
        let shown = quote(&digits[..end]);
        format!("{WRONG}: error while converting precision to integer: strconv.Atoi: parsing {shown}: {why}")
    })?;
    Ok((number, &digits[end..]))
}

fn one(clause: char, precision: usize, arg: &dyn Val) -> Result<String, String> {
    let wrong = |what: &str| format!("{what}, was given {}", arg.get_type().name());
    let int = arg.downcast_ref::<CelInt>().map(|int| i128::from(*int.inner()));
    let int = int.or_else(|| arg.downcast_ref::<CelUInt>().map(|uint| i128::from(*uint.inner())));
    let sign = if int.is_some_and(|int| int < 0) { "-" } else { "" };
    let size = int.map(i128::unsigned_abs);
    match clause {
        's' => text(arg),
        'd' => {
            int.map(|int| int.to_string()).ok_or_else(|| wrong("decimal clause can only be used on integers"))
        }
        'o' => size
            .map(|size| format!("{sign}{size:o}"))
            .ok_or_else(|| wrong("octal clause can only be used on integers")),
        'b' => size
            .map(|size| format!("{sign}{size:b}"))
            .or_else(|| Some(u8::from(*arg.downcast_ref::<CelBool>()?.inner()).to_string()))
            .ok_or_else(|| wrong("only integers and bools can be formatted as binary")),
        'f' => float(arg)
            .map(|float| fixed(float, precision % PRECISIONS))
            .ok_or_else(|| wrong("fixed-point clause can only be used on doubles")),
        'e' => {
            float(arg).map(scientific).ok_or_else(|| wrong("scientific clause can only be used on doubles"))
        }
        _ => {
            let bytes = arg.downcast_ref::<CelString<'_>>().map(|text| text.inner().as_bytes());
            let bytes = bytes.or_else(|| arg.downcast_ref::<CelBytes<'_>>().map(|bytes| bytes.inner()));
            let of_bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let hex = size.map(|size| format!("{sign}{size:x}")).or_else(|| bytes.map(of_bytes));
            let hex =
                hex.ok_or_else(|| wrong("only integers, byte buffers, and strings can be formatted as hex"))?;
            Ok(if clause == 'X' { hex.to_uppercase() } else { hex })
        }
    }
}

/// A double, or a text that stands for one that has no digits.
fn float(arg: &dyn Val) -> Option<f64> {
    match arg.downcast_ref::<CelString<'_>>().map(CelString::inner) {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => arg.downcast_ref::<CelDouble>().map(|float| *float.inner()),
    }
}

fn special(float: f64) -> Option<String> {
    match () {
        () if float.is_nan() => Some("NaN".to_owned()),
        () if float.is_infinite() => Some(if float < 0.0 { "-\u{221e}" } else { "\u{221e}" }.to_owned()),
        () => None,
    }
}

/// `12,345.600000`.
fn fixed(float: f64, precision: usize) -> String {
    if let Some(special) = special(float) {
        return special;
    }
    let written = format!("{:.precision$}", float.abs());
    let (whole, decimals) = written.split_at(written.find('.').unwrap_or(written.len()));
    let mut grouped = String::with_capacity(written.len() + whole.len() / 3 + 1);
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if float < 0.0 { "-" } else { "" };
    format!("{sign}{grouped}{decimals}")
}

/// `1.234560×10⁰⁴`: always six decimals, since cel-go takes a precision here for a width.
fn scientific(float: f64) -> String {
    if let Some(special) = special(float) {
        return special;
    }
    let written = format!("{float:.PRECISION$e}");
    let (number, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(("", exponent), |digits| ("\u{207b}", digits));
    let number = if float == 0.0 { number.trim_start_matches('-') } else { number };
    let raised: String = format!("{digits:0>2}").chars().map(superscript).collect();
    format!("{number}×10{sign}{raised}")
}

fn superscript(digit: char) -> char {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    digit.to_digit(10).map_or(digit, |digit| RAISED[digit as usize])
}

/// A value as `%s` writes it.
fn text(arg: &dyn Val) -> Result<String, String> {
    match arg.get_type().kind() {
        Kind::List => {
            let items =
                elements(arg).iter().map(|item| literal(item.as_ref())).collect::<Result<Vec<_>, _>>()?;
            Ok(format!("[{}]", items.join(", ")))
        }
        Kind::Map => map(arg),
        Kind::NullType => Ok("null".to_owned()),
        Kind::Int
        | Kind::UInt
        | Kind::Double
        | Kind::Boolean
        | Kind::String
        | Kind::Timestamp
        | Kind::Bytes
        | Kind::Duration => plain(arg),
        Kind::Type => Ok(arg.downcast_ref::<CelType>().map(|ty| ty.name().to_owned()).unwrap_or_default()),
        _ => Err(format!("string clause can only be used on {TEXTS}, was given {}", arg.get_type().name())),
    }
}

fn plain(arg: &dyn Val) -> Result<String, String> {
    let made = invoke("string", vec![CowVal::Owned(arg.clone_as_boxed())]).map_err(|error| match error {
        ExecutionError::FunctionError { message, .. } => message,
        error => error.to_string(),
    });
    match made {
        Ok(text) => {
            Ok(text.downcast_ref::<CelString<'_>>().map(|t| t.inner().to_owned()).unwrap_or_default())
        }
        Err(why) => Err(format!("could not convert argument {} to string", quote(&why))),
    }
}

fn map(arg: &dyn Val) -> Result<String, String> {
    let indexer = arg.as_indexer().ok_or("not a map")?;
    let mut entries = Vec::new();
    for key in elements(arg) {
        if !matches!(key.get_type().kind(), Kind::String | Kind::Boolean | Kind::Int | Kind::UInt) {
            return Err(format!("no formatting function for map key of type {}", key.get_type().name()));
        }
        let value = indexer.get(key.as_ref()).map_err(|error| error.to_string())?;
        entries.push((literal(key.as_ref())?, literal(value.as_ref())?));
    }
    entries.sort();
    let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    Ok(format!("{{{}}}", entries.join(", ")))
}

/// A value in a list or map, as it could stand in an expression.
fn literal(arg: &dyn Val) -> Result<String, String> {
    Ok(match arg.get_type().kind() {
        Kind::String => quote(&plain(arg)?),
        Kind::Bytes => format!("b{}", quote(&plain(arg)?)),
        Kind::Timestamp => format!("timestamp({})", quote(&plain(arg)?)),
        Kind::Duration => format!("duration({})", quote(&plain(arg)?)),
        Kind::Double => match float(arg) {
            Some(float) if float.is_finite() => format!("{float:.PRECISION$}"),
            _ => quote(&plain(arg)?),
        },
        Kind::List | Kind::Map | Kind::NullType | Kind::Int | Kind::UInt | Kind::Boolean | Kind::Type => {
            text(arg)?
        }
        _ => return Err(format!("no formatting function for {}", arg.get_type().name())),
    })
}

/// A double as Go's shortest form: `1e+21`, `0.5`, `+Inf`.
pub(crate) fn shortest(float: f64) -> String {
    if float.is_infinite() {
        return if float < 0.0 { "-Inf" } else { "+Inf" }.to_owned();
    }
    let written = format!("{float:e}");
    let Some((number, exponent)) = written.split_once('e') else { return written };
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&power) {
        return format!("{float}");
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{number}e{sign}{:02}", power.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_go_writes_them() {
        for (float, want) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (100_000.0, "100000"),
            (1e6, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(shortest(float), want);
        }
        for (float, decimals, in_full, raised) in [
            (12_345_678.678, 2, "12,345,678.68", "1.234568×10⁰⁷"),
            (-0.0, 0, "0", "0.000000×10⁰⁰"),
            (-1e-10, 1, "-0.0", "-1.000000×10⁻¹⁰"),
            (f64::NEG_INFINITY, 6, "-∞", "-∞"),
        ] {
            assert_eq!((fixed(float, decimals), scientific(float)), (in_full.to_owned(), raised.to_owned()));
        }
    }
}
