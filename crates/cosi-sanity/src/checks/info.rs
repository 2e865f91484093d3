//! Checks of `DriverGetInfo`.

use std::collections::BTreeSet;

use crate::Protocol;
use crate::bed::TestBed;
use crate::check::{Verdict, ensure, ok};

pub(crate) async fn name(bed: &TestBed) -> Verdict {
    let name = ok("DriverGetInfo", bed.retry(|| bed.api.info()).await)?.name;
    ensure(name.len() <= 63, || format!("the name has {} characters: {name}", name.len()))?;
    ensure(name.split('.').all(is_label), || format!("the name {name:?} is not a domain name"))
}

/// Returns whether a label is valid according to RFC 1035, which requires a letter at the beginning.
fn is_label(label: &str) -> bool {
    label.starts_with(|character: char| character.is_ascii_alphabetic())
        && label.ends_with(|character: char| character.is_ascii_alphanumeric())
        && label.chars().all(|character| character.is_ascii_alphanumeric() || character == '-')
}

pub(crate) async fn protocols(bed: &TestBed) -> Verdict {
    let protocols = ok("DriverGetInfo", bed.retry(|| bed.api.info()).await)?.protocols;
    ensure(!protocols.is_empty(), || "no protocol is supported".to_owned())?;
    let unknown = protocols.iter().find(|number| Protocol::of(**number).is_none());
    ensure(unknown.is_none(), || format!("a supported protocol is unknown: {unknown:?}"))?;
    let unique: BTreeSet<_> = protocols.iter().collect();
    ensure(unique.len() == protocols.len(), || "a supported protocol is listed twice".to_owned())
}
