//! Tokens, issued for an assertion or by the metadata server.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::{ADMIN, ADMIN_KEY, DecodedRequest, Model, PROJECT, Reply, ok};

impl Model {
    pub(super) fn token(&mut self, request: &DecodedRequest) -> Reply {
        match self.check_assertion(request) {
            Ok(()) => self.new_token(),
            Err(words) => {
                let body = json!({"error": "invalid_grant", "error_description": words});
                Reply::new(400, body.to_string())
            }
        }
    }

    fn new_token(&mut self) -> Reply {
        self.tokens_made += 1;
        let token = format!("ya29.token-{}", self.tokens_made);
        self.tokens.insert(token.clone());
        ok(&json!({"access_token": token, "expires_in": 3599, "token_type": "Bearer"}))
    }

    fn check_assertion(&self, request: &DecodedRequest) -> Result<(), &'static str> {
        let form = String::from_utf8_lossy(&request.body).into_owned();
        let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
        let assertion = form.strip_prefix(grant).ok_or("Bad Request")?;
        let (signed, signature) = assertion.rsplit_once('.').ok_or("Bad Request")?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "Bad Request")?;
        let der = PrivatePkcs8KeyDer::from_pem_slice(ADMIN_KEY.as_bytes()).unwrap();
        let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public().as_ref());
        key.verify(signed.as_bytes(), &signature).map_err(|_| "Invalid JWT Signature.")?;
        let (header, claims) = signed.split_once('.').ok_or("Bad Request")?;
        let read = |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
        let (header, claims) = (read(header), read(claims));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let [issued, expires] = ["iat", "exp"].map(|name| claims[name].as_u64().unwrap_or_default());
        if header["alg"] != "RS256" || header["typ"] != "JWT" {
            return Err("Bad Request");
        }
        if claims["iss"] != ADMIN {
            return Err("Invalid grant: account not found");
        }
        if claims["aud"] != format!("{}/token", self.endpoint) {
            return Err("Invalid JWT: Failed audience check.");
        }
        if claims["scope"] != "https://www.googleapis.com/auth/cloud-platform" {
            return Err("Empty or missing scope not allowed.");
        }
        if issued > now + 300 || expires < now || expires > issued + 3600 {
            return Err("Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe.");
        }
        Ok(())
    }

    pub(super) fn metadata(&mut self, request: &DecodedRequest, what: &str) -> Reply {
        if request.headers.get("metadata-flavor").is_none_or(|flavor| flavor != "Google") {
            return Reply::new(403, "Missing Metadata-Flavor:Google header.");
        }
        match what {
            "project/project-id" => Reply::new(200, PROJECT),
            "instance/service-accounts/default/token" => self.new_token(),
            _ => Reply::new(404, ""),
        }
    }

    pub(super) fn is_known(&self, request: &DecodedRequest) -> bool {
        let header = request.headers.get("authorization").and_then(|value| value.to_str().ok());
        header.and_then(|header| header.strip_prefix("Bearer ")).is_some_and(|token| self.tokens.contains(token))
    }
}
