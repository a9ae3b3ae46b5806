//! Trace contexts as they stand in headers (W3C Trace Context, level 1).

use http::HeaderValue;

/// The header with a trace context.
pub const TRACEPARENT: &str = "traceparent";

/// A span of a trace, seen from those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace's identifier, not all zeros.
    pub trace: [u8; 16],
    /// The span's identifier, not all zeros.
    pub span: [u8; 8],
    /// Whether spans of the trace are recorded.
    pub sampled: bool,
}

impl Context {
    /// Reads `00-TRACE-SPAN-FLAGS`; `None` where the value says nothing that can be used.
    pub fn parse(value: &HeaderValue) -> Option<Self> {
        let text = value.to_str().ok()?;
        let (version, rest) = text.split_once('-')?;
        // Later versions may have more behind the flags.
        let longer = version != "00";
        let lower = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if version.len() != 2
            || version == "ff"
            || !lower(version)
            || rest.len() < 52
            || (rest.len() > 52 && !longer)
        {
            return None;
        }
        let (trace, rest) = rest.split_at_checked(32)?;
        let (span, rest) = rest.strip_prefix('-')?.split_at_checked(16)?;
        let (flags, more) = rest.strip_prefix('-')?.split_at_checked(2)?;
        if !(more.is_empty() || more.starts_with('-')) || ![trace, span, flags].into_iter().all(lower) {
            return None;
        }
        let (mut context, mut bits) = (Self { trace: [0; 16], span: [0; 8], sampled: false }, [0; 1]);
        hex::decode_to_slice(trace, &mut context.trace).ok()?;
        hex::decode_to_slice(span, &mut context.span).ok()?;
        hex::decode_to_slice(flags, &mut bits).ok()?;
        context.sampled = bits[0] & 1 == 1;
        (context.trace != [0; 16] && context.span != [0; 8]).then_some(context)
    }

    /// The value of [`TRACEPARENT`].
    pub fn header(&self) -> HeaderValue {
        let flags = u8::from(self.sampled);
        let text = format!("00-{}-{}-{flags:02x}", hex::encode(self.trace), hex::encode(self.span));
        HeaderValue::from_str(&text).expect("hexadecimal digits are a header value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(text: &str) -> Option<Context> {
        Context::parse(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn a_context_is_read_and_written_as_w3c_has_it() {
        let context = parse(GOOD).unwrap();
        assert!(context.sampled && context.header() == GOOD);
        assert!(!parse(&GOOD.replace("-01", "-00")).unwrap().sampled);
        assert!(parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes").is_some());
    }

    #[test]
    fn what_is_no_context_is_none() {
        let zero_trace = GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_span = GOOD.replace("00f067aa0ba902b7", &"0".repeat(16));
        let rows = [
            "",
            "00",
            "00-",
            &zero_trace,
            &zero_span,
            &GOOD.replace("00-4", "ff-4"),
            &GOOD.to_uppercase(),
            &format!("{GOOD}-more"),
            &GOOD[..54],
            &GOOD.replace("-01", "-0g"),
            &GOOD.replace("-00f0", "x00f0"),
        ];
        for row in rows {
            assert_eq!(parse(row), None, "{row}");
        }
    }
}
