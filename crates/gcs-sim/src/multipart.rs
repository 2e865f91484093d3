//! Multipart uploads over the S3 protocol.
//! <https://cloud.google.com/storage/docs/multipart-uploads>

use http::Method;

use super::objects::{LAST_MODIFIED, escaped, etag, xml};
use super::{DecodedRequest, Model, Reply, Upload};

/// The minimum size of all parts except the last. <https://cloud.google.com/storage/quotas#requests>
const LEAST: usize = 5 << 20;

impl Model {
    /// Begins an upload.
    pub(super) fn begin_upload(&mut self, bucket: &str, object: &str) -> Reply {
        let id = format!("upload-{}", self.next());
        let text = format!(
            "<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{}</Key><UploadId>{id}</UploadId>\
             </InitiateMultipartUploadResult>",
            escaped(object)
        );
        let upload = Upload { bucket: bucket.to_owned(), object: object.to_owned(), parts: Default::default() };
        self.uploads.insert(id, upload);
        Reply::new(200, text)
    }

    /// Handles a request for an upload that has begun.
    pub(super) fn upload(&mut self, request: &DecodedRequest, bucket: &str, object: &str) -> Reply {
        let id = request.query["uploadId"].clone();
        let ours = |upload: &&mut Upload| upload.bucket == bucket && upload.object == object;
        let Some(upload) = self.uploads.get_mut(&id).filter(ours) else { return xml(404, "NoSuchUpload") };
        match request.method {
            Method::PUT => match request.query.get("partNumber").and_then(|number| number.parse().ok()) {
                Some(number @ 1..=10_000) => {
                    upload.parts.insert(number, request.body.clone());
                    Reply::new(200, "").header("etag", part_etag(&id, number))
                }
                _ => xml(400, "InvalidArgument"),
            },
            Method::GET => {
                let parts = upload.parts.iter().map(|(number, body)| {
                    format!(
                        "<Part><PartNumber>{number}</PartNumber><LastModified>{LAST_MODIFIED}</LastModified><ETag>{}</ETag>\
                         <Size>{}</Size></Part>",
                        escaped(&part_etag(&id, *number)),
                        body.len()
                    )
                });
                let parts: String = parts.collect();
                let of = format!("<Bucket>{bucket}</Bucket><Key>{}</Key><UploadId>{id}</UploadId>", escaped(object));
                Reply::new(
                    200,
                    format!("<ListPartsResult>{of}<IsTruncated>false</IsTruncated>{parts}</ListPartsResult>"),
                )
            }
            Method::DELETE => {
                self.uploads.remove(&id);
                Reply::new(204, "")
            }
            Method::POST => self.complete(&id, &String::from_utf8_lossy(&request.body)),
            _ => xml(405, "MethodNotAllowed"),
        }
    }

    fn complete(&mut self, id: &str, text: &str) -> Reply {
        let upload = &self.uploads[id];
        let element = |part: &str, name: &str| {
            let (_, rest) = part.split_once(&format!("<{name}>"))?;
            Some(rest.split_once('<')?.0.replace("&quot;", "\"").replace("&#34;", "\""))
        };
        let mut body = Vec::new();
        let named: Vec<&str> = text.split("<Part>").skip(1).collect();
        for (at, part) in named.iter().enumerate() {
            let number = element(part, "PartNumber").and_then(|number| number.parse().ok()).unwrap_or_default();
            let is_same = |etag: &str| etag.trim_matches('"') == part_etag(id, number).trim_matches('"');
            match upload.parts.get(&number).filter(|_| element(part, "ETag").as_deref().is_some_and(is_same)) {
                None => return xml(400, "InvalidPart"),
                Some(part) if at + 1 < named.len() && part.len() < LEAST => return xml(400, "EntityTooSmall"),
                Some(part) => body.extend_from_slice(part),
            }
        }
        if named.is_empty() {
            return xml(400, "MalformedXML");
        }
        let generation = self.next();
        let Some(Upload { bucket, object, .. }) = self.uploads.remove(id) else { return xml(404, "NoSuchUpload") };
        let text = format!(
            "<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{}</Key><ETag>{}</ETag>\
             </CompleteMultipartUploadResult>",
            escaped(&object),
            escaped(&etag(generation))
        );
        self.put(&bucket, &object, generation, body.into());
        Reply::new(200, text)
    }
}

fn part_etag(upload: &str, number: u32) -> String {
    format!("\"{upload}-{number}\"")
}
