//! Which bucket of which store, and as whom.

use crate::{Credentials, Error, Result};
use http::Uri;
use std::time::Duration;

/// A place in a store: `s3://BUCKET[/PREFIX]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The bucket's name.
    pub bucket: String,
    /// What keys begin with, without a slash at either end; empty: the whole bucket.
    pub prefix: String,
}

impl Address {
    /// Reads `s3://BUCKET[/PREFIX]`; `None` where the text is something else.
    ///
    /// # Errors
    /// The bucket has no name that buckets may have.
    pub fn parse(text: &str) -> Result<Option<Self>> {
        let Some(rest) = text.strip_prefix("s3://") else { return Ok(None) };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(allowed) || bucket.contains("..") {
            return Err(Error::Config(format!(
                "{text:?}: a bucket has 3 to 63 small letters, digits, dots and dashes"
            )));
        }
        Ok(Some(Self { bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() }))
    }
}

/// How a store is reached, and as whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// `https://HOST[:PORT]` of a store other than Amazon's; `http` for those on this machine or network.
    pub endpoint: Option<String>,
    /// The region, which signatures name.
    pub region: String,
    /// Whose requests they are.
    pub credentials: Credentials,
    /// Authorities that the store's certificate is checked against, PEM; `None`: those that the machine trusts.
    pub ca_pem: Option<String>,
    /// How long a request may go without progress.
    pub timeout: Duration,
}

impl Config {
    /// A configuration from Amazon's variables, asked for by name: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_SESSION_TOKEN`, `AWS_REGION` or `AWS_DEFAULT_REGION`, `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`.
    ///
    /// # Errors
    /// The keys are not there.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let needed = |name: &str| variable(name).ok_or_else(|| Error::Config(format!("{name} is not set")));
        let credentials = Credentials {
            access_key: needed("AWS_ACCESS_KEY_ID")?,
            secret_key: needed("AWS_SECRET_ACCESS_KEY")?,
            session_token: variable("AWS_SESSION_TOKEN"),
        };
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        Ok(Self {
            endpoint: variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL")),
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            credentials,
            ca_pem: None,
            timeout: Duration::from_secs(60),
        })
    }

    /// The URL of a bucket. Amazon has the bucket in its host's name; other stores, and buckets with dots, for which no
    /// certificate holds, have it in the path.
    pub(crate) fn bucket_url(&self, bucket: &str) -> Result<String> {
        let url = match &self.endpoint {
            Some(endpoint) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
            None if bucket.contains('.') => format!("https://s3.{}.amazonaws.com/{bucket}", self.region),
            None => format!("https://{bucket}.s3.{}.amazonaws.com", self.region),
        };
        let bad = |why: &str| Error::Config(format!("the store's URL {url:?} can't be used: {why}"));
        let uri: Uri = url.parse().map_err(|_| bad("not a URL"))?;
        if !matches!(uri.scheme_str(), Some("https" | "http")) || uri.host().is_none_or(str::is_empty) {
            return Err(bad("https://HOST is wanted"));
        }
        // An authority of `user@host` would be signed and never sent.
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) || uri.query().is_some()
        {
            return Err(bad("neither a user nor a query belongs there"));
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(endpoint: Option<&str>) -> Config {
        let variable = |name: &str| match name {
            "AWS_ENDPOINT_URL" => endpoint.map(str::to_owned),
            "AWS_SESSION_TOKEN" => Some(String::new()),
            "AWS_DEFAULT_REGION" => Some("eu-central-1".to_owned()),
            _ => Some("x".to_owned()).filter(|_| name.contains("KEY")),
        };
        Config::from_variables(variable).unwrap()
    }

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| Address::parse(text).unwrap().map(|found| (found.bucket, found.prefix));
        let row = |bucket: &str, prefix: &str| Some((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(read("s3://backups"), row("backups", ""));
        assert_eq!(read("s3://backups/a/b/"), row("backups", "a/b"));
        assert_eq!(read("backups/a"), None);
        for bad in ["s3://", "s3://ab", "s3://Upper", "s3://a..b", "s3://a@b", "s3://a?b"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bucket_is_in_the_host_at_amazon_and_in_the_path_elsewhere() {
        let url = |endpoint, bucket| config(endpoint).bucket_url(bucket).unwrap();
        assert_eq!(url(None, "abc"), "https://abc.s3.eu-central-1.amazonaws.com");
        assert_eq!(url(None, "a.b"), "https://s3.eu-central-1.amazonaws.com/a.b");
        assert_eq!(url(Some("http://127.0.0.1:9000/"), "abc"), "http://127.0.0.1:9000/abc");
        for bad in ["ftp://a", "https://", "nothing", "https://me@host", "https://host?x"] {
            assert!(config(Some(bad)).bucket_url("abc").is_err(), "{bad}");
        }
    }

    #[test]
    fn an_empty_variable_counts_as_none() {
        assert_eq!(config(None).credentials.session_token, None);
        let error = Config::from_variables(|_| None).unwrap_err();
        assert_eq!(error.to_string(), "AWS_ACCESS_KEY_ID is not set");
    }
}
