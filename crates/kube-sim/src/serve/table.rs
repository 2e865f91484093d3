//! Objects as rows of a table (`meta.k8s.io` `Table`), as `kubectl get` requests them.
//!
//! Columns and cells match `pkg/printers/internalversion/printers.go` and, for custom resources, apiextensions'
//! `tableconvertor.go`; the descriptions of columns are omitted.

mod age;
mod columns;
mod custom;
mod printer;
mod storage;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::object::meta;
use crate::request::Options;
use crate::resource::Resource;
use crate::service::Body;
use crate::status::{Cause, Status};
use printer::Printer;

/// The query parameter `includeObject`: the object in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub(super) fn of(query: &str) -> Result<Self, Status> {
        match Options::parse(query)?.include_object.as_str() {
            "None" => Ok(Self::Nothing),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            other => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                let cause = Cause::invalid("includeObject", &other.into(), detail).text();
                Err(Status::bad_request(format!("Unable to convert to Table as requested: {cause}")))
            }
        }
    }
}

/// Prints tables of one resource's objects.
pub(super) struct Tables {
    cluster: Cluster,
    resource: Arc<Resource>,
    version: &'static str,
    include: Include,
    printer: Printer,
}

impl Tables {
    pub(super) fn new(cluster: &Cluster, resource: Arc<Resource>, version: &'static str, include: Include) -> Self {
        let printer = Printer::of(cluster, &resource);
        Self { cluster: cluster.clone(), resource, version, include, printer }
    }

    /// Converts a list or an object to a table.
    pub(super) fn of_document(&self, document: &Value) -> Value {
        let one = std::slice::from_ref(document);
        let (objects, metadata) = match document.get("items").and_then(Value::as_array) {
            Some(items) => (items.as_slice(), document["metadata"].clone()),
            None => (one, json!({"resourceVersion": meta(document, "resourceVersion")})),
        };
        self.table(objects, metadata, true)
    }

    fn table(&self, objects: &[Value], metadata: Value, with_columns: bool) -> Value {
        let now = self.cluster.clock().now();
        let marked = printer::default_class(&self.resource, objects);
        let row = |object| json!({"cells": self.printer.cells(object, now, marked), "object": self.object(object)});
        let rows: Vec<Value> = objects.iter().map(row).collect();
        let columns = if with_columns { self.printer.columns() } else { Value::Null };
        json!({
            "kind": "Table", "apiVersion": format!("meta.k8s.io/{}", self.version),
            "metadata": metadata, "columnDefinitions": columns, "rows": rows,
        })
    }

    fn object(&self, object: &Value) -> Value {
        match self.include {
            Include::Nothing => Value::Null,
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{}", self.version),
                "metadata": object["metadata"],
            }),
            Include::Object => {
                let mut object = object.clone();
                object["kind"] = self.resource.kind.as_str().into();
                object["apiVersion"] = self.resource.api_version().into();
                object
            }
        }
    }
}

/// The body of a watch that delivers each object as a table with one row. Only the first table has columns.
pub(super) struct TableWatch {
    body: Body,
    tables: Tables,
    has_columns: bool,
    /// The start of an incomplete line.
    rest: Vec<u8>,
}

impl TableWatch {
    pub(super) fn new(body: Body, tables: Tables) -> Self {
        Self { body, tables, has_columns: false, rest: Vec::new() }
    }

    /// Converts the complete lines.
    fn convert(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let rest = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, rest);
        let mut converted = Vec::with_capacity(lines.len());
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Value>(line) {
                Ok(mut event) if event["type"] != "ERROR" => {
                    let object = event["object"].take();
                    let metadata = json!({"resourceVersion": meta(&object, "resourceVersion")});
                    event["object"] = self.tables.table(&[object], metadata, !self.has_columns);
                    self.has_columns = true;
                    converted.extend_from_slice(event.to_string().as_bytes());
                }
                _ => converted.extend_from_slice(line),
            }
            converted.push(b'\n');
        }
        converted
    }
}

impl http_body::Body for TableWatch {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let watch = self.get_mut();
        loop {
            let frame = match Pin::new(&mut watch.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => return other,
            };
            let lines = frame.data_ref().map(|bytes| watch.convert(bytes)).unwrap_or_default();
            if !lines.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(lines.into()))));
            }
        }
    }
}
