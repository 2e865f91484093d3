//! Protobuf request bodies: Go clients send built-in objects as protobuf, and accept JSON in answers.
//!
//! A body is `k8s\0` and a `runtime.Unknown`, which names the kind and holds the object. The field numbers are in
//! `shapes/protobuf.txt`, which is generated from Kubernetes' Go types.

mod table;
mod wire;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::clock::seconds;
use crate::status::Status;
use table::{FieldKind, FieldType, Message};
use wire::{Malformed, Number, WireField, parts};

/// The prefix of a body.
const MAGIC: &[u8] = b"k8s\0";

/// Converts a body to JSON.
pub(super) fn to_json(body: &Bytes) -> Result<Bytes, Status> {
    if body.is_empty() {
        return Ok(body.clone());
    }
    let refuse = |why: &str| Status::bad_request(format!("couldn't decode protobuf: {why}"));
    let rest =
        body.strip_prefix(MAGIC).ok_or_else(|| refuse("provided data does not appear to be a protobuf message"))?;
    let envelope = Envelope::read(rest).map_err(|Malformed| refuse("malformed envelope"))?;
    // Delete options have the version of the deleted resource.
    let api_version = if envelope.kind == "DeleteOptions" { "v1" } else { &envelope.api_version };
    let message = Message::of(api_version, &envelope.kind).ok_or_else(|| {
        Status::not_implemented(format_args!("protobuf of {} {}", envelope.api_version, envelope.kind))
    })?;
    let mut object = message.read(envelope.object).map_err(|Malformed| refuse("malformed object"))?;
    object.insert("kind".to_owned(), envelope.kind.into());
    object.insert("apiVersion".to_owned(), envelope.api_version.into());
    Ok(Bytes::from(Value::Object(object).to_string()))
}

/// `runtime.Unknown`
struct Envelope<'a> {
    api_version: String,
    kind: String,
    object: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut envelope = Self { api_version: String::new(), kind: String::new(), object: &[] };
        for part in parts(bytes) {
            match part? {
                WireField { number: 1, value: Number::Bytes(types) } => {
                    for part in parts(types) {
                        match part? {
                            WireField { number: 1, value } => envelope.api_version = value.text()?,
                            WireField { number: 2, value } => envelope.kind = value.text()?,
                            _ => {}
                        }
                    }
                }
                WireField { number: 2, value: Number::Bytes(object) } => envelope.object = object,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

impl Message {
    fn read(&self, bytes: &[u8]) -> Result<Map<String, Value>, Malformed> {
        let mut object = Map::new();
        self.read_into(bytes, &mut object)?;
        Ok(object)
    }

    fn read_into(&self, bytes: &[u8], object: &mut Map<String, Value>) -> Result<(), Malformed> {
        for part in parts(bytes) {
            let part = part?;
            // Unknown fields of newer clients are dropped, as in JSON.
            let Some(field) = self.field(part.number) else { continue };
            match (&field.name, &field.ty.kind) {
                (None, FieldKind::Message(inner)) => Self::named(inner).read_into(part.value.bytes()?, object)?,
                (None, _) => {}
                (Some(name), FieldKind::List(element)) => {
                    let list = object.entry(*name).or_insert_with(|| json!([]));
                    if let Value::Array(items) = list {
                        items.push(element.read(&part.value)?);
                    }
                }
                (Some(name), FieldKind::Map(element)) => {
                    let (key, value) = entry(part.value.bytes()?, element)?;
                    let map = object.entry(*name).or_insert_with(|| json!({}));
                    if let Value::Object(members) = map {
                        members.insert(key, value);
                    }
                }
                (Some(name), _) => {
                    let value = field.ty.read(&part.value)?;
                    // Protobuf contains every field that is not a pointer. JSON omits empty values.
                    if field.ty.pointer || !(field.omit_empty && is_empty(&value)) {
                        object.insert((*name).to_owned(), value);
                    }
                }
            }
        }
        Ok(())
    }
}

impl FieldType {
    fn read(&self, value: &Number<'_>) -> Result<Value, Malformed> {
        Ok(match &self.kind {
            FieldKind::Text => value.text()?.into(),
            FieldKind::Bool => (value.integer()? != 0).into(),
            FieldKind::Int => value.integer()?.into(),
            FieldKind::Bytes => STANDARD.encode(value.bytes()?).into(),
            FieldKind::Quantity => text_of(value.bytes()?, 1)?.into(),
            FieldKind::Time => time(value.bytes()?)?.map(seconds).into(),
            FieldKind::MicroTime => time(value.bytes()?)?.map(|time| format!("{time:.6}")).into(),
            FieldKind::Json => {
                let json = bytes_of(value.bytes()?, 1)?;
                if json.is_empty() { Value::Null } else { serde_json::from_slice(json).map_err(|_| Malformed)? }
            }
            FieldKind::IntOrString => {
                let bytes = value.bytes()?;
                match integer_of(bytes, 1)? {
                    0 => integer_of(bytes, 2)?.into(),
                    _ => text_of(bytes, 3)?.into(),
                }
            }
            FieldKind::Texts => {
                let items = parts(value.bytes()?).map(|part| part?.value.text().map(Value::from));
                Value::Array(items.collect::<Result<_, Malformed>>()?)
            }
            FieldKind::Message(id) => Value::Object(Message::named(id).read(value.bytes()?)?),
            // Protobuf does not support lists of lists.
            FieldKind::List(_) | FieldKind::Map(_) => return Err(Malformed),
        })
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        // Go's JSON never omits structs.
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// Decodes an entry of a map: key 1, value 2.
fn entry(bytes: &[u8], element: &FieldType) -> Result<(String, Value), Malformed> {
    let (mut key, mut value) = (String::new(), None);
    for part in parts(bytes) {
        match part? {
            WireField { number: 1, value } => key = value.text()?,
            WireField { number: 2, value: number } => value = Some(element.read(&number)?),
            _ => {}
        }
    }
    // An empty value may be omitted.
    let value = match value {
        Some(value) => value,
        None => element.read(&Number::Bytes(&[]))?,
    };
    Ok((key, value))
}

/// Decodes a time: seconds 1, nanoseconds 2. Go's zero time is `None`.
fn time(bytes: &[u8]) -> Result<Option<Timestamp>, Malformed> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let nanoseconds = i32::try_from(integer_of(bytes, 2)?).map_err(|_| Malformed)?;
    Timestamp::new(integer_of(bytes, 1)?, nanoseconds).map(Some).map_err(|_| Malformed)
}

fn integer_of(bytes: &[u8], number: u32) -> Result<i64, Malformed> {
    find(bytes, number)?.map_or(Ok(0), |value| value.integer())
}

fn text_of(bytes: &[u8], number: u32) -> Result<String, Malformed> {
    find(bytes, number)?.map_or(Ok(String::new()), |value| value.text())
}

fn bytes_of(bytes: &[u8], number: u32) -> Result<&[u8], Malformed> {
    match find(bytes, number)? {
        Some(Number::Bytes(found)) => Ok(found),
        Some(Number::Integer(_)) => Err(Malformed),
        None => Ok(&[]),
    }
}

fn find(bytes: &[u8], number: u32) -> Result<Option<Number<'_>>, Malformed> {
    let mut found = None;
    for part in parts(bytes) {
        let part = part?;
        if part.number == number {
            found = Some(part.value);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn integer(number: u8, value: u8) -> Vec<u8> {
        vec![number << 3, value]
    }

    fn body(api_version: &str, kind: &str, object: &[u8]) -> Bytes {
        let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        Bytes::from([MAGIC, &field(1, &types), &field(2, object), &field(3, b""), &field(4, b"")].concat())
    }

    fn read(body: &Bytes) -> Value {
        serde_json::from_slice(&to_json(body).unwrap()).unwrap()
    }

    #[test]
    fn decodes_a_volume() {
        let entry = [field(1, b"storage"), field(2, &field(1, b"1Gi"))].concat();
        let host_path = field(3, &field(1, b"/data"));
        let claim = field(2, b"default");
        let spec =
            [field(1, &entry), field(2, &host_path), field(3, b"ReadWriteOnce"), field(4, &claim), field(5, b"")]
                .concat();
        let metadata = [field(1, b"v"), field(2, b""), integer(7, 0), field(8, b"")].concat();
        let object = [field(1, &metadata), field(2, &spec), field(3, b"")].concat();
        assert_eq!(
            read(&body("v1", "PersistentVolume", &object)),
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": "v"},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"},
                    "accessModes": ["ReadWriteOnce"], "claimRef": {"namespace": "default"},
                },
                "status": {},
            })
        );
    }

    #[test]
    fn decodes_pointers_times_and_bytes() {
        let time = [integer(1, 60), integer(2, 0)].concat();
        let spec = [field(1, b"me"), integer(2, 0), field(3, &time), field(4, &[])].concat();
        let lease = read(&body("coordination.k8s.io/v1", "Lease", &field(2, &spec)));
        let expected = json!({
            "holderIdentity": "me", "leaseDurationSeconds": 0, "acquireTime": "1970-01-01T00:01:00.000000Z",
            "renewTime": null,
        });
        assert_eq!(lease["spec"], expected);
        let data = field(2, &[field(1, b"key"), field(2, b"\x00\x01")].concat());
        assert_eq!(read(&body("v1", "Secret", &data))["data"], json!({"key": "AAE="}));
        let options = [field(4, b"Background"), field(2, &field(1, b"u"))].concat();
        let options = read(&body("storage.k8s.io/v1", "DeleteOptions", &options));
        assert_eq!(options["preconditions"], json!({"uid": "u"}));
        assert_eq!(options["propagationPolicy"], "Background");
    }

    #[test]
    fn rejects_unreadable_bodies() {
        assert_eq!(to_json(&Bytes::from_static(b"{}")).unwrap_err().code, 400);
        assert_eq!(to_json(&body("v1", "Nothing", b"")).unwrap_err().code, 501);
        assert_eq!(to_json(&body("v1", "Secret", &[0x0a, 0x7f])).unwrap_err().code, 400);
        assert_eq!(to_json(&Bytes::new()).unwrap(), Bytes::new());
    }
}
