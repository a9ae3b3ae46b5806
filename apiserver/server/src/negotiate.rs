//! Which representation the client wants, by `Accept`, and which the body has, by `Content-Type`.
//!
//! Clauses are tried by quality, then in the client's order; one that can't be served is skipped. That is how
//! `application/vnd.kubernetes.protobuf, application/json` becomes JSON for a custom resource.

use crate::query::Query;
use freehold_machinery::Status;
use http::{HeaderMap, HeaderValue, header};

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// What an object or a list is made into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// Itself.
    #[default]
    Whole,
    /// `meta.k8s.io` `Table`.
    Table(MetaVersion),
    /// `meta.k8s.io` `PartialObjectMetadata`, or the list of them.
    Metadata(MetaVersion),
}

/// The versions of `meta.k8s.io`, which differ by their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum MetaVersion {
    #[default]
    V1,
    V1Beta1,
}

impl MetaVersion {
    fn parse(version: &str) -> Option<Self> {
        match version {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    /// As it stands in `apiVersion`.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The outcome of negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) format: Format,
    pub(crate) shape: Shape,
    pub(crate) pretty: bool,
}

/// One clause of an `Accept` header.
pub(crate) struct Clause<'a> {
    pub(crate) media_type: &'a str,
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    /// A parameter's value, empty where it is absent.
    pub(crate) fn param(&self, key: &str) -> &'a str {
        self.params.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map_or("", |(_, v)| v)
    }

    fn covers(&self, media_type: &str) -> bool {
        match self.media_type.split_once('/') {
            Some(("*", "*")) => true,
            Some((kind, "*")) => {
                media_type.split_once('/').is_some_and(|(k, _)| k.eq_ignore_ascii_case(kind))
            }
            _ => self.media_type.eq_ignore_ascii_case(media_type),
        }
    }

    fn shape(&self) -> Option<Shape> {
        match (self.param("as"), self.param("g"), self.param("v")) {
            ("", "", "") => Some(Shape::Whole),
            ("Table", "meta.k8s.io", version) => MetaVersion::parse(version).map(Shape::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", version) => {
                MetaVersion::parse(version).map(Shape::Metadata)
            }
            _ => None,
        }
    }
}

/// The clauses of all `Accept` headers, best first. No header gives no clause.
pub(crate) fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let values = headers.get_all(header::ACCEPT).into_iter().filter_map(|v| v.to_str().ok());
    let mut found: Vec<Clause<'_>> = values.flat_map(|v| v.split(',')).filter_map(clause).take(64).collect();
    let wildcards = |c: &Clause<'_>| c.media_type.matches('*').count();
    found.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(wildcards(a).cmp(&wildcards(b))));
    found
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';');
    let media_type = parts.next().map(str::trim).filter(|m| !m.is_empty())?;
    // A lone `*` is sent by some old clients and means `*/*`.
    let media_type = if media_type == "*" { "*/*" } else { media_type };
    let params: Vec<(&str, &str)> = parts
        .filter_map(|p| p.split_once('='))
        .map(|(k, v)| (k.trim(), v.trim().trim_matches('"')))
        .collect();
    let quality = params.iter().find(|(k, _)| *k == "q").map_or(1.0, |(_, v)| v.parse().unwrap_or(1.0));
    // What is wanted least is wanted still: kube-apiserver makes no difference of 0.
    Some(Clause { media_type, quality, params })
}

const FORMATS: [(&str, Format); 3] = [
    ("application/json", Format::Json),
    ("application/yaml", Format::Yaml),
    (freehold_machinery_protobuf::MEDIA_TYPE, Format::Protobuf),
];

/// Those that a stream of events can have, with the parameter that says so.
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

fn all_formats() -> String {
    FORMATS.map(|(media_type, _)| media_type).join(", ")
}

/// What an endpoint can answer with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    /// Objects, in any shape. Those of custom types have no messages, their metadata has.
    Objects { custom: bool },
    /// Documents of one shape.
    Documents,
    /// What goes out as it is, whatever shape was asked for. There is no protobuf for who asked for a shape.
    Failures,
}

impl Endpoint {
    fn allows(self, format: Format, shape: Shape) -> bool {
        match (self, shape) {
            (Self::Failures, shape) => shape == Shape::Whole || format != Format::Protobuf,
            (Self::Documents, shape) => shape == Shape::Whole,
            (Self::Objects { custom }, Shape::Whole) => !custom || format != Format::Protobuf,
            (Self::Objects { .. }, Shape::Table(_)) => format != Format::Protobuf,
            (Self::Objects { .. }, Shape::Metadata(_)) => true,
        }
    }
}

/// What a client wants of an object or list. 406 in Kubernetes' words where nothing of it can be had: routes of built-in
/// kinds tell what they have, and those of collections (`listed`) streams among it.
pub(crate) fn object(
    headers: &HeaderMap,
    query: &Query,
    custom: bool,
    listed: bool,
) -> Result<Accepted, Status> {
    let refused = || match routed(headers) || custom {
        true => Status::not_acceptable(&all_formats()),
        false if listed => Status::not_represented(&format!("{}, {STREAMS}", all_formats())),
        false => Status::not_represented(&all_formats()),
    };
    choose(headers, query, Endpoint::Objects { custom }).ok_or_else(refused)
}

/// What a client wants of a document that has one shape (discovery, reviews, errors).
pub(crate) fn document(headers: &HeaderMap, query: &Query) -> Result<Accepted, Status> {
    let refused = || match routed(headers) {
        true => Status::not_acceptable(&all_formats()),
        false => Status::not_represented(&all_formats()),
    };
    choose(headers, query, Endpoint::Documents).ok_or_else(refused)
}

/// Returns what a client accepts of a document behind no route.
pub(crate) fn plain(headers: &HeaderMap, query: &Query) -> Result<Accepted, Status> {
    choose(headers, query, Endpoint::Documents).ok_or_else(|| Status::not_acceptable(&all_formats()))
}

/// 406 for a client that does not take the one media type that a document has.
pub(crate) fn only(headers: &HeaderMap, media_type: &str) -> Result<(), Status> {
    let clauses = clauses(headers);
    match clauses.is_empty() || clauses.iter().any(|clause| clause.covers(media_type)) {
        true => Ok(()),
        false => Err(Status::not_represented(media_type)),
    }
}

/// How a client reads a failure: in the format of what it asked for.
pub(crate) fn failure(headers: &HeaderMap, query: &Query) -> Option<Accepted> {
    choose(headers, query, Endpoint::Failures).map(|accepted| Accepted { shape: Shape::Whole, ..accepted })
}

/// Whether a media type that there is was asked for, whatever was asked of it.
fn routed(headers: &HeaderMap) -> bool {
    clauses(headers).iter().any(|clause| FORMATS.iter().any(|(media_type, _)| clause.covers(media_type)))
}

/// What a client wants of a watch. YAML has no form for streams.
pub(crate) fn watch(headers: &HeaderMap, query: &Query, custom: bool) -> Result<Accepted, Status> {
    let refused = || match routed(headers) || custom {
        true => Status::not_acceptable(STREAMS),
        false => Status::not_represented(&format!("{}, {STREAMS}", all_formats())),
    };
    choose(headers, query, Endpoint::Objects { custom })
        .filter(|accepted| accepted.format != Format::Yaml)
        .ok_or_else(refused)
}

fn choose(headers: &HeaderMap, query: &Query, endpoint: Endpoint) -> Option<Accepted> {
    let pretty = is_pretty(headers, query);
    if headers.get_all(header::ACCEPT).into_iter().all(HeaderValue::is_empty) {
        return Some(Accepted { format: Format::Json, shape: Shape::Whole, pretty });
    }
    clauses(headers).iter().find_map(|clause| {
        let shape = match endpoint {
            Endpoint::Failures => clause.shape().unwrap_or(Shape::Table(MetaVersion::V1)),
            _ => clause.shape()?,
        };
        let streamed = match clause.param("stream") {
            "" => false,
            "watch" => true,
            _ => return None,
        };
        let fits = |format: Format| endpoint.allows(format, shape) && !(streamed && format == Format::Yaml);
        let mut covered = FORMATS.iter().filter(|(media_type, _)| clause.covers(media_type));
        let (_, format) = *covered.find(|(_, format)| fits(*format))?;
        Some(Accepted { format, shape, pretty: pretty || clause.param("pretty") == "1" })
    })
}

/// Whether objects go out in the form in which they are stored: JSON, whole, for no person.
pub(crate) fn is_as_stored(headers: &HeaderMap, query: &Query) -> bool {
    const STORED: Accepted = Accepted { format: Format::Json, shape: Shape::Whole, pretty: false };
    choose(headers, query, Endpoint::Objects { custom: false }).is_none_or(|accepted| accepted == STORED)
}

/// Whether a person reads it: `pretty`, or a browser or command-line client that did not say.
pub(crate) fn is_pretty(headers: &HeaderMap, query: &Query) -> bool {
    match query.get("pretty").filter(|p| !p.is_empty()) {
        Some(given) => matches!(given, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => {
            let agent = headers.get(header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
            [&b"curl"[..], b"Wget", b"Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
        }
    }
}

/// A body's media type in lower case, without parameters; empty where the header is absent.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let raw = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    raw.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

/// A patch's media type, which is looked for as it is written.
pub(crate) fn patch_type(headers: &HeaderMap) -> &str {
    let raw = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    raw.split(';').next().unwrap_or("")
}

/// Which format a body has; none means JSON. 415 in Kubernetes' words for any other, and for parameters that are none.
pub(crate) fn body_format(headers: &HeaderMap) -> Result<Format, Status> {
    let raw = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let given = content_type(headers);
    if raw.is_empty() {
        return Ok(Format::Json);
    }
    let found = FORMATS.iter().find(|(media_type, _)| *media_type == given && has_parameters(raw));
    found.map(|(_, format)| *format).ok_or_else(|| Status::unsupported_media_type(&given, &all_formats()))
}

/// Whether what follows a media type are parameters (RFC 2045, section 5.1), each one once. A lone semicolon at the end is let
/// pass, as in Go.
fn has_parameters(raw: &str) -> bool {
    let mut seen: Vec<String> = Vec::new();
    let mut rest = raw.find(';').map_or("", |at| &raw[at..]).trim();
    while !rest.is_empty() {
        if rest == ";" {
            return true;
        }
        let Some((name, after)) = parameter(rest) else { return false };
        if seen.contains(&name) {
            return false;
        }
        seen.push(name);
        rest = after.trim_start();
    }
    true
}

/// `; name=value` at the beginning of a text: the name, and what follows.
fn parameter(text: &str) -> Option<(String, &str)> {
    let (name, text) = token(text.strip_prefix(';')?.trim_start())?;
    let text = text.trim_start().strip_prefix('=')?.trim_start();
    let after = match text.strip_prefix('"') {
        None => token(text)?.1,
        Some(mut quoted) => loop {
            let mut chars = quoted.chars();
            match chars.next()? {
                '"' => break chars.as_str(),
                '\\' => drop(chars.next()?),
                _ => {}
            }
            quoted = chars.as_str();
        },
    };
    Some((name.to_ascii_lowercase(), after))
}

fn token(text: &str) -> Option<(&str, &str)> {
    let is_word = |c: char| c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(c);
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Whether the client takes gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|v| v.to_str().ok());
    values.flat_map(|v| v.split(',')).any(|coding| {
        let (name, params) = coding.split_once(';').unwrap_or((coding, ""));
        let refused = params.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0f32));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Shape = Shape::Table(MetaVersion::V1);
    const METADATA: Shape = Shape::Metadata(MetaVersion::V1);

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        let mut map = HeaderMap::new();
        if !value.is_empty() {
            map.insert(name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn accept_chooses_the_first_clause_that_can_be_served() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let old = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
        let kubectl = format!("{table},{old},application/json");
        let client_go = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let protobuf = "application/vnd.kubernetes.protobuf";
        let (json, yaml, binary) = (Format::Json, Format::Yaml, Format::Protobuf);
        let whole = |format| Some((format, Shape::Whole));
        // Accept -> built-in object, custom object, document, watch
        type Row<'a> = (&'a str, [Option<(Format, Shape)>; 4]);
        let rows: Vec<Row<'_>> = vec![
            ("", [whole(json); 4]),
            ("*/*", [whole(json); 4]),
            ("application/*", [whole(json); 4]),
            ("application/yaml", [whole(yaml), whole(yaml), whole(yaml), None]),
            ("text/html", [None; 4]),
            (&kubectl, [Some((json, TABLE)), Some((json, TABLE)), whole(json), Some((json, TABLE))]),
            (table, [Some((json, TABLE)), Some((json, TABLE)), None, Some((json, TABLE))]),
            (
                old,
                [
                    Some((json, Shape::Table(MetaVersion::V1Beta1))),
                    Some((json, Shape::Table(MetaVersion::V1Beta1))),
                    None,
                    Some((json, Shape::Table(MetaVersion::V1Beta1))),
                ],
            ),
            ("application/json;as=Unknown;v=v1;g=meta.k8s.io", [None; 4]),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", [None; 4]),
            (
                client_go,
                [Some((binary, METADATA)), Some((binary, METADATA)), whole(json), Some((binary, METADATA))],
            ),
            (protobuf, [whole(binary), None, whole(binary), whole(binary)]),
            (
                "application/vnd.kubernetes.protobuf, application/json",
                [whole(binary), whole(json), whole(binary), whole(binary)],
            ),
            (
                "application/vnd.kubernetes.protobuf;stream=watch",
                [whole(binary), None, whole(binary), whole(binary)],
            ),
            ("application/json;q=0.5, application/vnd.kubernetes.protobuf;q=0.4", [whole(json); 4]),
            ("application/json;stream=watch", [whole(json); 4]),
            ("application/yaml;stream=watch", [None; 4]),
            ("application/json;stream=other", [None; 4]),
            ("application/cbor", [None; 4]),
            ("application/cbor,application/json;q=0.9", [whole(json); 4]),
            ("application/json;q=0.1,application/yaml;q=0.9", [whole(yaml), whole(yaml), whole(yaml), None]),
            ("*/*;q=0.5,application/yaml;q=0.5", [whole(yaml), whole(yaml), whole(yaml), None]),
            ("application/json;q=0", [whole(json); 4]),
            ("text/html,*/*;q=0", [whole(json); 4]),
        ];
        for (accept, expected) in rows {
            let (headers, query) = (headers(header::ACCEPT, accept), Query::default());
            let got = [
                object(&headers, &query, false, false),
                object(&headers, &query, true, false),
                document(&headers, &query),
                watch(&headers, &query, false),
            ];
            assert_eq!(got.map(|a| a.ok().map(|a| (a.format, a.shape))), expected, "{accept}");
        }
        let refused =
            object(&headers(header::ACCEPT, "text/html"), &Query::default(), true, false).unwrap_err();
        let words = "only the following media types are accepted: application/json, application/yaml, \
                     application/vnd.kubernetes.protobuf";
        assert_eq!((refused.code, refused.message.as_str()), (406, words));
    }

    #[test]
    fn a_body_is_json_yaml_or_refused() {
        let rows = [
            ("", Ok(Format::Json)),
            ("application/json", Ok(Format::Json)),
            ("Application/JSON; charset=utf-8", Ok(Format::Json)),
            ("application/yaml", Ok(Format::Yaml)),
            ("application/json;", Ok(Format::Json)),
            ("application/json; a=\"x\\\";y\" ; b=c", Ok(Format::Json)),
            ("application/json;;", Err(415)),
            ("application/json; a=", Err(415)),
            ("application/json; a b", Err(415)),
            ("application/json; a=1; A=2", Err(415)),
            ("application/json; a=\"x", Err(415)),
            ("application/vnd.kubernetes.protobuf", Ok(Format::Protobuf)),
            ("text/plain", Err(415)),
            ("application/cbor", Err(415)),
        ];
        for (given, expected) in rows {
            let got = body_format(&headers(header::CONTENT_TYPE, given)).map_err(|s| s.code);
            assert_eq!(got, expected, "{given}");
        }
    }

    #[test]
    fn people_get_indentation_and_programs_do_not() {
        let rows = [
            ("curl/8", "", true),
            ("curl/8", "pretty=0", false),
            ("kubectl/v1.36", "", false),
            ("", "pretty=true", true),
        ];
        for (agent, query, expected) in rows {
            let query = Query::parse(Some(query)).unwrap();
            assert_eq!(is_pretty(&headers(header::USER_AGENT, agent), &query), expected, "{agent} {query:?}");
        }
    }

    #[test]
    fn what_is_stored_goes_out_as_it_is_to_those_who_take_json() {
        let rows = [
            ("", true),
            ("*/*", true),
            ("application/json, */*", true),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", false),
            ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", false),
            ("application/vnd.kubernetes.protobuf,application/json", false),
            ("application/yaml", false),
            ("application/json;pretty=1", false),
        ];
        for (accept, expected) in rows {
            let headers = headers(header::ACCEPT, accept);
            assert_eq!(is_as_stored(&headers, &Query::default()), expected, "{accept}");
        }
        assert!(
            !is_as_stored(&headers(header::USER_AGENT, "curl/8"), &Query::default()),
            "a person reads it"
        );
    }

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        for (given, expected) in
            [("gzip", true), ("br, gzip;q=0.5", true), ("gzip;q=0", false), ("br", false), ("", false)]
        {
            assert_eq!(takes_gzip(&headers(header::ACCEPT_ENCODING, given)), expected, "{given}");
        }
    }
}
