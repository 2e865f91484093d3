//! Requests that are signed as those of S3 are, for the gateway's admin API.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{Method, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3_client::{Answer, Credentials as Key, Error, Http};
use serde::Deserialize;

/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Sends requests with one key.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) http: Http,
    /// `http://host:port`.
    pub(crate) address: String,
    pub(crate) region: String,
    pub(crate) key: Key,
}

impl Signed {
    /// The body of the answer, if that is 2xx.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        limit: Duration,
    ) -> Result<Bytes, Error> {
        let request = self.signed(method, path, query)?;
        let (status, body) = self.http.send(&self.address, request, limit).await?;
        match (200..300).contains(&status) {
            true => Ok(body),
            false => Err(self.refusal(status, &body)),
        }
    }

    fn signed(&self, method: Method, path: &str, query: &[(&str, String)]) -> Result<Request<Bytes>, Error> {
        let cannot = |error: &dyn std::error::Error| Error::Request(error.to_string());
        let encoded = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let uri = format!("{}{path}?{}", self.address, query.join("&"));
        let uri: Uri = uri.parse().map_err(|error| cannot(&error))?;
        let mut request = Request::new(Bytes::new());
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        let identity =
            Credentials::new(&self.key.access_key_id, &self.key.secret_access_key, None, None, "admin").into();
        let mut settings = SigningSettings::default();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("s3")
            .time(SystemTime::now())
            .settings(settings)
            .build()
            .map_err(|error| cannot(&error))?;
        let uri = request.uri().to_string();
        let signable =
            SignableRequest::new(request.method().as_str(), &uri, std::iter::empty(), SignableBody::Bytes(&[]));
        let signed = sign(signable.map_err(|error| cannot(&error))?, &parameters.into());
        let (instructions, _) = signed.map_err(|error| cannot(&error))?.into_parts();
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }

    /// <https://docs.ceph.com/en/latest/radosgw/adminops/#standard-error-responses>
    fn refusal(&self, status: u16, body: &[u8]) -> Error {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Refusal {
            #[serde(default)]
            code: String,
            #[serde(default)]
            message: String,
            #[serde(default)]
            request_id: String,
        }
        let refusal = match body.iter().all(u8::is_ascii_whitespace) {
            true => Refusal::default(),
            false => match serde_json::from_slice::<Refusal>(body) {
                Ok(refusal) if !refusal.code.is_empty() => refusal,
                _ => return Error::NotS3 { endpoint: self.address.clone(), status },
            },
        };
        Error::refusal(&self.address, Answer::new(status, &refusal.code, &refusal.message, &refusal.request_id))
    }
}
