//! Takes out of what is collected whatever signs somebody in. Secrets are not asked for in the first place; this is for
//! credentials that stand where they should not: in an annotation, an argument, a line of a log.

use freehold_machinery::Value;
use std::borrow::Cow;

/// The field beside a variable's `name`.
const VALUE: &str = "value";
/// What stands in place of a credential.
pub(super) const REDACTED: &str = "[redacted]";
/// Words in the name of a field or flag whose value is a credential; names of files and of Secrets are none.
const WORDS: [&str; 6] = ["token", "password", "passwd", "privatekey", "secretkey", "keydata"];
/// Ends of such names that say that the value only leads to a credential.
const LEADS: [&str; 10] =
    ["file", "dir", "ref", "secret", "name", "path", "ttl", "url", "audiences", "seconds"];
/// What begins a JSON Web Token: `{"` in base64.
const JWT: &str = "eyJ";
/// What links that sign somebody in once have, such as the console's in what `freehold up` prints.
const CODE: &str = "code";
/// The least that is taken for a token.
const SHORTEST: usize = 16;

fn is_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    WORDS.iter().any(|word| plain.contains(word)) && !LEADS.iter().any(|end| plain.ends_with(end))
}

/// Removes credentials from an object, and what only servers read.
pub(super) fn object(value: &mut Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    strings(value);
}

fn strings(value: &mut Value) {
    match value {
        Value::String(found) => *found = text(found),
        Value::Array(items) => items.iter_mut().for_each(strings),
        Value::Object(fields) => {
            // As a variable of a container has it.
            let is_named_secret = fields.get("name").and_then(Value::as_str).is_some_and(is_secret);
            for (name, field) in fields {
                match field {
                    Value::String(found) if is_named_secret && name == VALUE => REDACTED.clone_into(found),
                    Value::String(found) if is_secret(name) && !found.is_empty() => {
                        REDACTED.clone_into(found)
                    }
                    other => strings(other),
                }
            }
        }
        _ => {}
    }
}

/// A text without private keys, tokens and passwords.
pub(super) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        if in_key || line.contains("-----BEGIN") && line.contains("PRIVATE KEY-----") {
            let ends = line.contains("-----END");
            if !in_key {
                out.push_str(REDACTED);
                out.push('\n');
            }
            in_key = !ends;
            continue;
        }
        words(&without_passwords(line), &mut out);
    }
    out
}

/// A line whose URLs have no passwords: `scheme://USER:PASSWORD@host`.
fn without_passwords(line: &str) -> Cow<'_, str> {
    const AUTHORITY: &str = "://";
    if !line.contains(AUTHORITY) || !line.contains('@') {
        return Cow::Borrowed(line);
    }
    let mut parts = line.split(AUTHORITY);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let ends = |c: char| c.is_whitespace() || "/?#\"'<>".contains(c);
        let (authority, rest) = part.split_at(part.find(ends).unwrap_or(part.len()));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        out.push_str(AUTHORITY);
        if host.len() < authority.len() {
            out.push_str(REDACTED);
            out.push('@');
        }
        out.push_str(host);
        out.push_str(rest);
    }
    Cow::Owned(out)
}

/// A line whose words are looked at one by one. Words end where neither tokens nor base64 go on.
fn words(line: &str, out: &mut String) {
    let goes_on = |c: char| c.is_ascii_alphanumeric() || "-_.+/=~".contains(c);
    let mut rest = line;
    let mut secret_follows = false;
    while !rest.is_empty() {
        let end = rest.find(|c| !goes_on(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if !word.is_empty() {
            // `Bearer X`, `--token X`; `--token=X` is one word.
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if secret_follows || looks_secret(word) {
                out.push_str(REDACTED);
            } else if value.len() >= SHORTEST && name == CODE
                || !value.is_empty() && is_secret(name) && name.starts_with('-')
            {
                out.push_str(name);
                out.push('=');
                out.push_str(REDACTED);
            } else {
                out.push_str(word);
            }
            secret_follows = word.eq_ignore_ascii_case("bearer")
                || word.starts_with("--") && value.is_empty() && is_secret(word);
        }
        let next = after.find(goes_on).unwrap_or(after.len());
        out.push_str(&after[..next]);
        rest = &after[next..];
        // A name of something else has begun: what follows a flag without a value is no value.
        secret_follows &= !rest.starts_with("--");
    }
}

/// A token by its form: a JWT, a bootstrap token, a long word of base64 that holds a key.
fn looks_secret(word: &str) -> bool {
    let value = word.rsplit('=').find(|part| !part.is_empty()).unwrap_or(word);
    let jwt = value.starts_with(JWT) && value.matches('.').count() == 2;
    let key = word.len() > SHORTEST && word.contains("LS0tLS1CRUdJTi"); // "-----BEGIN" in base64
    let bootstrap = word.split_once('.').is_some_and(|(id, secret)| {
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase());
        id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)
    });
    jwt || key || bootstrap
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn credentials_are_taken_out_of_text() {
        let rows = [
            ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
            (
                "freehold up --etcd-password hunter2 --log info",
                "freehold up --etcd-password [redacted] --log info",
            ),
            ("x --token=abc y", "x --token=[redacted] y"),
            ("--etcd-password-file=/etc/p --token-ttl=5", "--etcd-password-file=/etc/p --token-ttl=5"),
            ("got eyJhbGciOiJ9.eyJpc3MiOiJ9.c2ln!", "got [redacted]!"),
            (
                "https://h/login#code=0NKtHXezQDSmSX-3l3 exit code=1",
                "https://h/login#code=[redacted] exit code=1",
            ),
            ("token abcdef.0123456789abcdef", "token [redacted]"),
            ("a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb", "a\n[redacted]\nb"),
            ("--enable-bootstrap-token-auth --listen=:7443", "--enable-bootstrap-token-auth --listen=:7443"),
            (
                "dsn postgres://u:p@ss@db:5432/x?a=b, https://a/b@c",
                "dsn postgres://[redacted]@db:5432/x?a=b, https://a/b@c",
            ),
            ("größe 12% of {\"a\":1}", "größe 12% of {\"a\":1}"),
        ];
        for (found, expected) in rows {
            assert_eq!(text(found), expected);
        }
    }

    #[test]
    fn credentials_are_taken_out_of_objects() {
        let mut found = json!({
            "metadata": {"name": "a", "managedFields": [{}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "b": "c"}},
            "spec": {"tokenSecretRef": {"name": "s"}, "password": "p", "args": ["--token=t"],
                "env": [{"name": "DB_PASSWORD", "value": "p"}, {"name": "TOKEN_FILE", "value": "/t"}]},
            "status": {"token": "fh-1", "privateKey": "k"},
        });
        object(&mut found);
        let expected = json!({
            "metadata": {"name": "a", "annotations": {"b": "c"}},
            "spec": {"tokenSecretRef": {"name": "s"}, "password": REDACTED, "args": ["--token=[redacted]"],
                "env": [{"name": "DB_PASSWORD", "value": REDACTED}, {"name": "TOKEN_FILE", "value": "/t"}]},
            "status": {"token": REDACTED, "privateKey": REDACTED},
        });
        assert_eq!(found, expected);
    }
}
