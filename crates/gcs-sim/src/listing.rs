//! Object lists in both S3 versions.
//! <https://cloud.google.com/storage/docs/xml-api/get-bucket-list>

use std::collections::BTreeSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::objects::{LAST_MODIFIED, escaped, etag};
use super::{Bucket, DecodedRequest, Reply};

/// Characters that are not encoded in encoded names.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'/');

pub(super) fn list(request: &DecodedRequest, name: &str, bucket: &Bucket) -> Reply {
    let argument = |name: &str| request.query.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let encoded = argument("encoding-type") == Some("url");
    let shown = |text: &str| if encoded { utf8_percent_encode(text, PLAIN).to_string() } else { escaped(text) };
    let second = argument("list-type") == Some("2");
    let after = if second { argument("continuation-token").or(argument("start-after")) } else { argument("marker") };
    let prefix = argument("prefix").unwrap_or_default();
    let most: usize = argument("max-keys").and_then(|most| most.parse().ok()).unwrap_or(1000).min(1000);
    let (mut objects, mut prefixes, mut last, mut truncated) = (String::new(), BTreeSet::new(), "", false);
    let mut count = 0;
    for (object, generations) in bucket.objects.iter().filter(|(object, _)| object.starts_with(prefix)) {
        let rest = &object[prefix.len()..];
        let common = argument("delimiter").and_then(|delimiter| Some(&rest[..rest.find(delimiter)? + delimiter.len()]));
        let common = common.map(|common| format!("{prefix}{common}"));
        if after.is_some_and(|after| object.as_str() <= after)
            || common.as_ref().is_some_and(|common| prefixes.contains(common))
        {
            continue;
        }
        if count == most {
            truncated = true;
            break;
        }
        (count, last) = (count + 1, object);
        match (common, generations.last()) {
            (Some(common), _) => drop(prefixes.insert(common)),
            (None, Some((generation, body))) => objects.push_str(&format!(
                "<Contents><Key>{}</Key><LastModified>{LAST_MODIFIED}</LastModified><ETag>{}</ETag><Size>{}</Size>\
                 <StorageClass>STANDARD</StorageClass></Contents>",
                shown(object),
                escaped(&etag(*generation)),
                body.len()
            )),
            (None, None) => {}
        }
    }
    let prefixes: String = prefixes
        .iter()
        .map(|prefix| format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", shown(prefix)))
        .collect();
    let next = match (truncated, second) {
        (false, _) => String::new(),
        (true, true) => format!("<NextContinuationToken>{}</NextContinuationToken>", escaped(last)),
        (true, false) => format!("<NextMarker>{}</NextMarker>", shown(last)),
    };
    let encoding = if encoded { "<EncodingType>url</EncodingType>" } else { "" };
    let counted = if second { format!("<KeyCount>{count}</KeyCount>") } else { String::new() };
    Reply::new(
        200,
        format!(
            "<ListBucketResult><Name>{name}</Name><Prefix>{}</Prefix><MaxKeys>{most}</MaxKeys>{encoding}{counted}\
             <IsTruncated>{truncated}</IsTruncated>{next}{objects}{prefixes}</ListBucketResult>",
            shown(prefix)
        ),
    )
}
