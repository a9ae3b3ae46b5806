//! Objects of an S3-compatible store, by presigned requests.

use crate::sign::{Credentials, Signer, escape, escape_path};
use crate::{Body, Error, Outbound, Request};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RANGE};
use http::{HeaderValue, Method, StatusCode, Uri};
use jiff::Timestamp;
use std::time::Duration;

/// How long requests hold that are sent at once.
const SOON: Duration = Duration::from_secs(900);

/// Where a bucket is.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct BucketConfig {
    /// URL of the store: `https://s3.eu-central-1.amazonaws.com`.
    pub endpoint: String,
    /// Name of the bucket.
    pub bucket: String,
    /// Region that signatures are for; `us-east-1` without one.
    pub region: String,
    /// Whether the bucket is the first part of the path, and not of the host's name.
    pub path_style: bool,
}

/// A bucket with the credentials for it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// What stands before keys.
    url: String,
    signer: Signer,
}

impl Bucket {
    /// A bucket.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(config: &BucketConfig, credentials: Credentials) -> Result<Self, String> {
        let uri: Uri =
            config.endpoint.parse().map_err(|_| format!("endpoint {:?} is no URL", config.endpoint))?;
        let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
        let scheme =
            scheme.ok_or_else(|| format!("endpoint {:?} is neither http nor https", config.endpoint))?;
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        if authority.is_empty() || authority.contains('@') {
            return Err(format!("endpoint {:?} has no host, or a user", config.endpoint));
        }
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if !(3..=63).contains(&config.bucket.len()) || !config.bucket.chars().all(is_name) {
            return Err(format!("{:?} is no name of a bucket", config.bucket));
        }
        let (host, base) = match config.path_style {
            true => (authority.to_owned(), format!("{}/{}", uri.path().trim_end_matches('/'), config.bucket)),
            false => (format!("{}.{authority}", config.bucket), uri.path().trim_end_matches('/').to_owned()),
        };
        let default_port = if scheme == "https" { ":443" } else { ":80" };
        let host = host.strip_suffix(default_port).unwrap_or(&host).to_ascii_lowercase();
        let region = if config.region.is_empty() { "us-east-1" } else { &config.region };
        let signer = Signer { credentials, region: region.to_owned(), service: "s3".to_owned() };
        Ok(Self { url: format!("{scheme}://{host}{base}"), signer })
    }

    /// Returns the URL of a request to an object, or without a key to the bucket, that holds for a time: a week at most.
    ///
    /// # Errors
    /// [`Error::Url`] where the key is too long for a URL.
    pub fn presign(
        &self,
        method: &Method,
        key: &str,
        query: &[(&str, &str)],
        holds: Duration,
    ) -> Result<String, Error> {
        let pairs: Vec<String> =
            query.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
        let divider = if pairs.is_empty() { "" } else { "?" };
        let url = format!("{}/{}{divider}{}", self.url, escape_path(key), pairs.join("&"));
        let uri: Uri = url.parse().map_err(|_| Error::Url(url.clone()))?;
        Ok(self.signer.presign(method, &uri, holds, Timestamp::now()))
    }

    pub(crate) fn request(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
    ) -> Result<Request, Error> {
        let url = self.presign(&method, key, query, SOON)?;
        Ok(Request::new(method, url))
    }

    /// Writes an object.
    ///
    /// # Errors
    /// What [`Outbound::send`] fails with, and [`Error::Status`].
    pub async fn put(&self, outbound: &Outbound, key: &str, body: Body) -> Result<(), Error> {
        let request = Request { body, ..self.request(Method::PUT, key, &[])? };
        outbound.send(request).await?.succeeded().await.map(drop)
    }

    /// Reads `length` bytes of an object from a byte on; `None` where there is none.
    ///
    /// # Errors
    /// What [`Outbound::send`] fails with, [`Error::Status`] and [`Error::TooLarge`].
    pub async fn get(
        &self,
        outbound: &Outbound,
        key: &str,
        from: u64,
        length: u64,
    ) -> Result<Option<Bytes>, Error> {
        if length == 0 {
            return Ok(self.length(outbound, key).await?.map(|_| Bytes::new()));
        }
        let mut request = self.request(Method::GET, key, &[])?;
        let range = format!("bytes={from}-{}", from.saturating_add(length - 1));
        if let Ok(range) = HeaderValue::from_str(&range) {
            request.headers.insert(RANGE, range);
        }
        let answer = outbound.send(request).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            // It ends before.
            StatusCode::RANGE_NOT_SATISFIABLE => Ok(Some(Bytes::new())),
            StatusCode::PARTIAL_CONTENT => {
                let limit = usize::try_from(length).unwrap_or(usize::MAX);
                answer.bytes(limit).await.map(Some)
            }
            // Stores send an object of no bytes whole.
            _ => Ok(Some(
                answer.succeeded().await?.bytes(usize::try_from(length).unwrap_or(usize::MAX)).await?,
            )),
        }
    }

    /// Returns an object's length in bytes; `None` where there is none.
    ///
    /// # Errors
    /// What [`Outbound::send`] fails with, and [`Error::Status`].
    pub async fn length(&self, outbound: &Outbound, key: &str) -> Result<Option<u64>, Error> {
        let answer = outbound.send(self.request(Method::HEAD, key, &[])?).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = answer.succeeded().await?;
        let length = answer.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Ok(Some(length.unwrap_or(0)))
    }

    /// Deletes an object; one that is not there is no error.
    ///
    /// # Errors
    /// What [`Outbound::send`] fails with, and [`Error::Status`].
    pub async fn delete(&self, outbound: &Outbound, key: &str) -> Result<(), Error> {
        let answer = outbound.send(self.request(Method::DELETE, key, &[])?).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        answer.succeeded().await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(endpoint: &str, path_style: bool) -> Result<String, String> {
        let config = BucketConfig {
            endpoint: endpoint.into(),
            bucket: "artifacts".into(),
            region: String::new(),
            path_style,
        };
        let bucket = Bucket::new(&config, Credentials::default())?;
        let url = bucket.presign(&Method::GET, "a/b c", &[], SOON).map_err(|error| error.to_string())?;
        Ok(url.split('?').next().unwrap_or_default().to_owned())
    }

    #[test]
    fn requests_about_objects_are_signed_with_their_parameters() {
        let config = BucketConfig {
            endpoint: "https://S3.example".into(),
            bucket: "artifacts".into(),
            ..BucketConfig::default()
        };
        let bucket = Bucket::new(&config, Credentials::default()).unwrap();
        let url = bucket.presign(&Method::POST, "a+b", &[("uploads", "")], Duration::from_secs(60)).unwrap();
        assert!(
            url.starts_with("https://artifacts.s3.example/a%2Bb?X-Amz-Algorithm=AWS4-HMAC-SHA256&"),
            "{url}"
        );
        for part in ["&X-Amz-Expires=60&", "&uploads=&X-Amz-Signature=", "us-east-1%2Fs3%2Faws4_request&"] {
            assert!(url.contains(part), "{url}");
        }
    }

    #[test]
    fn buckets_are_in_the_path_or_in_the_host() {
        assert_eq!(url("http://127.0.0.1:7070", true).unwrap(), "http://127.0.0.1:7070/artifacts/a/b%20c");
        assert_eq!(url("https://s3.example/", false).unwrap(), "https://artifacts.s3.example/a/b%20c");
        assert_eq!(url("https://s3.example:443/x/", true).unwrap(), "https://s3.example/x/artifacts/a/b%20c");
        for bad in ["s3.example", "ftp://x", "https://user@s3.example", ""] {
            assert!(url(bad, true).is_err(), "{bad}");
        }
    }
}
