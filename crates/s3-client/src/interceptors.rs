//! Interceptors that make the AWS SDK work with other S3 implementations.

use std::sync::{Arc, OnceLock};

use aws_sdk_s3::config::interceptors::{
    BeforeDeserializationInterceptorContextMut, BeforeDeserializationInterceptorContextRef,
    BeforeTransmitInterceptorContextMut,
};
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use aws_smithy_types::body::SdkBody;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use md5::Digest as _;

/// Sends a checksum that all stores support instead of one that older stores do not support: radosgw 16 refuses
/// lifecycles and lists of objects to delete without `Content-MD5`.
#[derive(Debug)]
pub(crate) struct ContentMd5;

impl Intercept for ContentMd5 {
    fn name(&self) -> &'static str {
        "ContentMd5"
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request_mut();
        let sums: Vec<String> = request
            .headers()
            .iter()
            .map(|(name, _)| name)
            .filter(|name| name.starts_with("x-amz-checksum-") || *name == "x-amz-sdk-checksum-algorithm")
            .map(str::to_owned)
            .collect();
        let Some(body) = request.body().bytes().filter(|_| !sums.is_empty()) else { return Ok(()) };
        let sum = STANDARD.encode(md5::Md5::digest(body));
        for name in sums {
            request.headers_mut().remove(name);
        }
        request.headers_mut().insert("content-md5", sum);
        Ok(())
    }
}

/// Limits the number of bytes read from a response.
#[derive(Debug)]
pub(crate) struct AnswerLimit(pub(crate) usize);

impl Intercept for AnswerLimit {
    fn name(&self) -> &'static str {
        "AnswerLimit"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.response_mut().body_mut();
        *body = SdkBody::from_body_1_x(Limited::new(take(body), self.0));
        Ok(())
    }
}

/// Records the name that the service sends in the header `Server` of its first response. Responses with status 429 or
/// 5xx are ignored, because they may come from a proxy in front of the service.
#[derive(Debug)]
pub(crate) struct ServerHeader(pub(crate) Arc<OnceLock<String>>);

impl Intercept for ServerHeader {
    fn name(&self) -> &'static str {
        "ServerHeader"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        let status = response.status();
        if let (Some(name), false) =
            (response.headers().get("server"), status.is_server_error() || status.as_u16() == 429)
        {
            self.0.get_or_init(|| name.to_owned());
        }
        Ok(())
    }
}

/// Replaces characters in names with private-use characters if XML does not allow them, but some stores send them
/// nevertheless. Otherwise, the AWS SDK would refuse the entire list, and the bucket could never be emptied.
#[derive(Debug)]
pub(crate) struct InvalidXmlCharacters;

impl InvalidXmlCharacters {
    /// Restores the name as it is in the store.
    pub(crate) fn original(name: &str) -> String {
        let original = |letter| match letter {
            '\u{e000}'..='\u{e01f}' => char::from_u32(letter as u32 - PRIVATE).unwrap_or(letter),
            letter => letter,
        };
        name.chars().map(original).collect()
    }
}

/// The first private-use character of Unicode.
const PRIVATE: u32 = 0xe000;

impl Intercept for InvalidXmlCharacters {
    fn name(&self) -> &'static str {
        "InvalidXmlCharacters"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.response_mut().body_mut();
        let readable = take(body).map_frame(|frame| frame.map_data(with_private_characters));
        *body = SdkBody::from_body_1_x(readable);
        Ok(())
    }
}

fn take(body: &mut SdkBody) -> SdkBody {
    std::mem::replace(body, SdkBody::taken())
}

fn with_private_characters(data: Bytes) -> Bytes {
    let is_odd = |byte: u8| byte < b' ' && !b"\t\n\r".contains(&byte);
    if !data.iter().any(|byte| is_odd(*byte)) {
        return data;
    }
    let mut readable = Vec::with_capacity(data.len() + 16);
    for byte in data {
        match char::from_u32(PRIVATE + u32::from(byte)).filter(|_| is_odd(byte)) {
            Some(letter) => readable.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
            None => readable.push(byte),
        }
    }
    readable.into()
}
