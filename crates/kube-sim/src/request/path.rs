//! Paths of resources: `/api/v1/...` and `/apis/GROUP/VERSION/...`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The parts of a path, whether the resource exists or not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Path<'a> {
    pub(crate) group: Cow<'a, str>,
    pub(crate) version: Cow<'a, str>,
    pub(crate) plural: Cow<'a, str>,
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    /// The rest of the path. Empty for the object itself.
    pub(crate) subresource: Cow<'a, str>,
}

impl<'a> Path<'a> {
    /// `None` for a non-resource path, e.g. `/version` or `/apis/apps/v1`.
    pub(crate) fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/').map(decode);
        let group = match &*parts.next()? {
            "api" => Cow::Borrowed(""),
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let parts: Vec<Cow<'a, str>> = parts.filter(|part| !part.is_empty()).collect();
        let text = |index: usize| parts.get(index).cloned().unwrap_or_default();
        let is_core = group.is_empty();
        // `/namespaces/NAME` is a namespace. `/namespaces/NAME/PLURAL` is a collection, unless it is a subresource.
        let is_part = is_core && parts.len() == 3 && matches!(&*parts[2], "status" | "finalize");
        let path = match &**parts.first()? {
            "namespaces" if parts.len() > 2 && !is_part => Self {
                group,
                version,
                namespace: text(1),
                plural: text(2),
                name: text(3),
                subresource: parts.get(4..).unwrap_or_default().join("/").into(),
            },
            _ => Self {
                group,
                version,
                namespace: Cow::Borrowed(""),
                plural: text(0),
                name: text(1),
                subresource: parts.get(2..).unwrap_or_default().join("/").into(),
            },
        };
        Some(path)
    }
}

fn decode(part: &str) -> Cow<'_, str> {
    if part.contains('%') { percent_decode_str(part).decode_utf8_lossy() } else { Cow::Borrowed(part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_resource_paths() {
        let cases = [
            ("/api/v1/persistentvolumes", Some(["", "v1", "persistentvolumes", "", "", ""])),
            ("/api/v1/persistentvolumes/a/status", Some(["", "v1", "persistentvolumes", "", "a", "status"])),
            ("/api/v1/namespaces", Some(["", "v1", "namespaces", "", "", ""])),
            ("/api/v1/namespaces/a", Some(["", "v1", "namespaces", "", "a", ""])),
            ("/api/v1/namespaces/a/finalize", Some(["", "v1", "namespaces", "", "a", "finalize"])),
            ("/api/v1/namespaces/a/pods", Some(["", "v1", "pods", "a", "", ""])),
            ("/api/v1/namespaces/a/pods/b%2Dc/log", Some(["", "v1", "pods", "a", "b-c", "log"])),
            ("/apis/g.io/v2/things/x", Some(["g.io", "v2", "things", "", "x", ""])),
            ("/apis/g.io/v2/namespaces/n/things/x/status", Some(["g.io", "v2", "things", "n", "x", "status"])),
            ("/apis/g.io/v2", None),
            ("/version", None),
        ];
        for (path, expected) in cases {
            let parsed = Path::parse(path);
            let parts = parsed.as_ref().map(|path| {
                [&path.group, &path.version, &path.plural, &path.namespace, &path.name, &path.subresource]
                    .map(|part| &**part)
            });
            assert_eq!(parts, expected, "{path}");
        }
    }
}
