//! Content negotiation: the header `Accept`.

use http::header::{ACCEPT, HeaderMap};

use crate::status::Status;

/// The media type of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    pub(super) representation: Representation,
    pub(super) language: Language,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Representation {
    Objects,
    /// `PartialObjectMetadata`.
    Metadata,
    /// A table in this version of `meta.k8s.io`.
    Table(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Json,
    Yaml,
}

impl MediaType {
    /// Returns the first acceptable type that can be served. Protobuf and CBOR are not supported.
    pub(super) fn wanted(headers: &HeaderMap) -> Result<Self, Status> {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let found = accept.split(',').find_map(Self::of);
        found.ok_or_else(|| Status::not_acceptable(&["application/json", "application/yaml"]))
    }

    /// `application/json;as=Table;v=v1;g=meta.k8s.io`
    fn of(choice: &str) -> Option<Self> {
        let mut parts = choice.split(';').map(str::trim);
        let language = match parts.next()? {
            "application/json" | "application/*" | "*/*" => Language::Json,
            "application/yaml" => Language::Yaml,
            _ => return None,
        };
        let parts: Vec<&str> = parts.collect();
        let value = |key: &str| parts.iter().find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
        let representation = match value("as") {
            None => Representation::Objects,
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Representation::Metadata,
            Some("Table") if value("g") == Some("meta.k8s.io") => match value("v") {
                Some("v1") => Representation::Table("v1"),
                Some("v1beta1") => Representation::Table("v1beta1"),
                _ => return None,
            },
            Some(_) => return None,
        };
        Some(Self { representation, language })
    }

    /// Returns the header `Accept` for the API itself.
    pub(super) fn accept(self) -> &'static str {
        match self.representation {
            Representation::Objects | Representation::Table(_) => "application/json",
            Representation::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn selects_first_supported_media_type() {
        let json = |representation| Some(MediaType { representation, language: Language::Json });
        let cases = [
            ("application/json", json(Representation::Objects)),
            ("application/vnd.kubernetes.protobuf,application/json", json(Representation::Objects)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", json(Representation::Table("v1"))),
            ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", json(Representation::Objects)),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
              application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                json(Representation::Metadata),
            ),
            ("application/json;stream=watch", json(Representation::Objects)),
            ("application/yaml", Some(MediaType { representation: Representation::Objects, language: Language::Yaml })),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html", None),
        ];
        for (accept, expected) in cases {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(MediaType::wanted(&headers).ok(), expected, "{accept}");
        }
        assert_eq!(MediaType::wanted(&HeaderMap::new()).ok(), json(Representation::Objects));
    }
}
