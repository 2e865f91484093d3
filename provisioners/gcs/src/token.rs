//! The administrator's access tokens, from a service account key or the metadata server.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::api::printable;
use crate::http::{Client, Response};

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Tokens are renewed this long before they expire. The metadata server returns a new token in the last five minutes.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(225);

/// An error without key or token material, whose text suggests a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TokenError(pub(crate) String);

/// Source of access tokens. Caches a token until it expires.
pub(crate) struct TokenSource {
    origin: Origin,
    client: Client,
    token: Mutex<Option<Token>>,
}

/// The origin of tokens.
pub(crate) enum Origin {
    /// Tokens are exchanged for a service account key.
    Key(ServiceAccountKey),
    /// The metadata server issues tokens of the workload's own service account.
    MetadataServer,
}

struct Token {
    text: String,
    until: Instant,
}

impl TokenSource {
    /// Creates a source. The client must connect to the key's `token_uri`, or to the metadata server.
    pub(crate) fn new(origin: Origin, client: Client) -> Self {
        Self { origin, client, token: Mutex::default() }
    }

    /// Returns a token. `renew` discards the cached token.
    pub(crate) async fn token(&self, renew: bool) -> Result<String, TokenError> {
        let mut token = self.token.lock().await;
        if let Some(token) = token.as_ref().filter(|token| !renew && token.until > Instant::now()) {
            return Ok(token.text.clone());
        }
        *token = None;
        let now = Instant::now();
        let answer = match &self.origin {
            Origin::Key(key) => self.exchange(key).await?,
            Origin::MetadataServer => {
                self.metadata("instance/service-accounts/default/token").await.and_then(|body| read(&body))?
            }
        };
        let until = now + Duration::from_secs(answer.expires_in).saturating_sub(RENEW_BEFORE_EXPIRY);
        Ok(token.insert(Token { text: answer.access_token, until }).text.clone())
    }

    /// Returns the project of the credentials.
    pub(crate) async fn project(&self) -> Result<Option<String>, TokenError> {
        match &self.origin {
            Origin::Key(key) => Ok(key.project_id.clone()),
            Origin::MetadataServer => {
                let project = self.metadata("project/project-id").await?;
                Ok(str::from_utf8(&project).ok().map(|project| project.trim().to_owned()))
            }
        }
    }

    /// <https://developers.google.com/identity/protocols/oauth2/service-account#httprest>
    async fn exchange(&self, key: &ServiceAccountKey) -> Result<Answer, TokenError> {
        let assertion = key.assertion(SystemTime::now())?;
        let form = format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}");
        let mut request = Request::new(Bytes::from(form));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = key.token_path().parse().map_err(|_| key.malformed("token_uri is not a valid URL"))?;
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, form);
        let answer = self.send(request).await?;
        if answer.status == 200 {
            return read(&answer.body);
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        // Google's text, such as "Invalid JWT Signature.", does not repeat the request.
        let [code, words] =
            ["error", "error_description"].map(|name| printable(body[name].as_str().unwrap_or_default()));
        let advice = match code.as_str() {
            "invalid_grant" if words.contains("timeframe") => "; set this machine's clock",
            "invalid_grant" => "; the key may be deleted, disabled or expired: create another one",
            _ => "",
        };
        let status = answer.status;
        Err(TokenError(format!("{self} is not accepted: {status} {code} {words}{advice}")))
    }

    /// <https://cloud.google.com/compute/docs/metadata/querying-metadata>
    async fn metadata(&self, what: &str) -> Result<Bytes, TokenError> {
        let mut request = Request::new(Bytes::new());
        let path = format!("/computeMetadata/v1/{what}");
        *request.uri_mut() = path.parse().map_err(|_| TokenError("no path".to_owned()))?;
        request.headers_mut().insert("metadata-flavor", HeaderValue::from_static("Google"));
        let answer = self.send(request).await?;
        let flavor = answer.headers.get("metadata-flavor").is_some_and(|flavor| flavor == "Google");
        match answer.status {
            200 if flavor => Ok(answer.body),
            200 => Err(TokenError(format!("{} is not Google's metadata server", self.client.endpoint()))),
            404 => Err(TokenError(
                "the metadata server knows no service account: bind one to the provisioner's Kubernetes account, or to the node"
                    .to_owned(),
            )),
            status => Err(TokenError(format!("the metadata server answered {status} for {what}"))),
        }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response, TokenError> {
        self.client.send(request).await.map_err(|error| TokenError(format!("no token: {error}")))
    }
}

/// Names the source in error texts.
impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Key(key) => write!(f, "the key of {}", key.client_email),
            Origin::MetadataServer => f.write_str("the workload's own service account"),
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: u64,
}

fn read(body: &[u8]) -> Result<Answer, TokenError> {
    serde_json::from_slice(body).map_err(|_| TokenError("the answer contains no token: check proxies".to_owned()))
}

/// The key file of a service account.
#[derive(Deserialize)]
pub(crate) struct ServiceAccountKey {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    client_email: String,
    #[serde(default)]
    private_key_id: String,
    #[serde(default)]
    private_key: String,
    #[serde(default = "google")]
    token_uri: String,
    pub(crate) project_id: Option<String>,
}

fn google() -> String {
    "https://oauth2.googleapis.com/token".to_owned()
}

impl ServiceAccountKey {
    /// `origin` names the source of the text in errors.
    pub(crate) fn parse(text: &[u8], origin: &str) -> Result<Self, TokenError> {
        // serde's error may contain parts of the key.
        let key = serde_json::from_slice::<Self>(text);
        let key = key.map_err(|_| TokenError(format!("{origin} is not a service account key in JSON")))?;
        if key.kind != "service_account" {
            let kind = printable(&key.kind);
            return Err(TokenError(format!(
                "{origin} holds credentials of the type {kind:?}: only service_account is known, or use --workload-identity"
            )));
        }
        key.pair()?;
        key.token_address()?;
        Ok(key)
    }

    /// Returns the part `https://host` of `token_uri`.
    pub(crate) fn token_address(&self) -> Result<String, TokenError> {
        let malformed = || self.malformed("token_uri is not a valid URL");
        let uri: http::Uri = self.token_uri.parse().map_err(|_| malformed())?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or_else(malformed)?;
        Ok(format!("{scheme}://{authority}"))
    }

    fn token_path(&self) -> String {
        let uri: Result<http::Uri, _> = self.token_uri.parse();
        uri.ok().and_then(|uri| uri.path_and_query().map(ToString::to_string)).unwrap_or_default()
    }

    /// Returns the signed JWT that is exchanged for a token.
    fn assertion(&self, now: SystemTime) -> Result<String, TokenError> {
        let now =
            now.duration_since(UNIX_EPOCH).map_err(|_| TokenError("set this machine's clock".to_owned()))?.as_secs();
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.private_key_id});
        let claims = json!({
            "iss": self.client_email, "scope": SCOPE, "aud": self.token_uri, "iat": now, "exp": now + 3600,
        });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let pair = self.pair()?;
        let mut signature = vec![0; pair.public().modulus_len()];
        let done = pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature);
        done.map_err(|_| self.malformed("its private_key cannot sign"))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn pair(&self) -> Result<RsaKeyPair, TokenError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(self.private_key.as_bytes());
        let der = der.map_err(|_| self.malformed("its private_key is not PKCS#8 in PEM"))?;
        RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|_| self.malformed("its private_key is not an RSA key"))
    }

    fn malformed(&self, what: &str) -> TokenError {
        TokenError(format!("the key of {} cannot be used: {what}", printable(&self.client_email)))
    }
}
