//! Compares the pages that list messages with the code: both must contain the same messages.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::CallAborted;

use crate::error::{DeleteVerdict, ProvisionVerdict};

/// A row of a page: the preceding heading, then the message.
pub(crate) type Row = (String, String);

/// A placeholder for every number. The pages say NUMBER.
pub(crate) const NUMBER: u32 = 777;
/// A placeholder for the provisioner's message.
pub(crate) const MESSAGE: &str = "MESSAGE";

/// Fails unless the page has these rows and no others.
pub(crate) fn compare_with_page(name: &str, produced: BTreeSet<Row>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/pages/reference").join(name);
    let page = rows(&std::fs::read_to_string(path).unwrap());
    let missing: Vec<_> = produced.difference(&page).collect();
    assert!(missing.is_empty(), "{name} lacks rows for these messages: {missing:#?}");
    let unknown: Vec<_> = page.difference(&produced).collect();
    assert!(unknown.is_empty(), "nothing produces these rows of {name}: {unknown:#?}");
}

/// Returns the message as a page shows it.
pub(crate) fn with_capitals(text: &str) -> String {
    text.replace(&call_error().to_string(), "ERROR").replace(&NUMBER.to_string(), "NUMBER")
}

/// Defines examples of the variants of a type. A variant without a line does not compile; `[]` is for a variant that
/// users never see.
macro_rules! every {
    ($vis:vis $name:ident -> $type:ty { $($lines:tt)* }) => { every!($vis $name of $type => $type { $($lines)* }); };
    ($vis:vis $name:ident of $type:ty => $example:ty { $($variant:pat => $examples:expr,)* }) => {
        $vis fn $name() -> Vec<$example> {
            let _has_a_line = |value: &$type| match value { $($variant => (),)* };
            let mut all: Vec<$example> = Vec::new();
            $(all.extend(IntoIterator::into_iter($examples).map(|example: $example| example));)*
            all
        }
    };
}

pub(crate) use every;

every!(pub(crate) all_aborted -> CallAborted {
    CallAborted::Panicked(_) => [CallAborted::Panicked("PANIC".to_owned())],
    CallAborted::TimedOut(_) => [CallAborted::TimedOut(Duration::from_secs(NUMBER.into()))],
    CallAborted::Fenced => [CallAborted::Fenced],
});

every!(pub(crate) verdicts -> ProvisionVerdict {
    ProvisionVerdict::Retry => [ProvisionVerdict::Retry],
    ProvisionVerdict::NothingLeft => [ProvisionVerdict::NothingLeft],
    ProvisionVerdict::NoChange => [ProvisionVerdict::NoChange],
    ProvisionVerdict::AlreadyExists => [ProvisionVerdict::AlreadyExists],
    ProvisionVerdict::InProgress => [ProvisionVerdict::InProgress],
    ProvisionVerdict::Reschedule => [ProvisionVerdict::Reschedule],
    ProvisionVerdict::Invalid => [ProvisionVerdict::Invalid],
    ProvisionVerdict::Ignored => [ProvisionVerdict::Ignored],
});

every!(pub(crate) delete_verdicts -> DeleteVerdict {
    DeleteVerdict::Retry => [DeleteVerdict::Retry],
    DeleteVerdict::InUse => [DeleteVerdict::InUse],
    DeleteVerdict::InProgress => [DeleteVerdict::InProgress],
    DeleteVerdict::Ignored => [DeleteVerdict::Ignored],
    DeleteVerdict::Unsupported => [],
});

/// Returns an error that is not transient: transient errors have no separate event.
pub(crate) fn call_error() -> CallError {
    CallError::Forbidden("ERROR".to_owned())
}

/// Returns the rows of a page, each with the preceding heading.
fn rows(page: &str) -> BTreeSet<Row> {
    let (mut heading, mut rows) = ("", BTreeSet::new());
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
        }
        let Some(cells) = line.strip_prefix("| `") else { continue };
        let cells: Vec<&str> = cells.split(" | ").collect();
        assert_eq!(cells.len(), 3, "message, cause and remedy: {line}");
        let message = cells[0].trim_matches('`').trim();
        assert!(rows.insert((heading.to_owned(), message.to_owned())), "twice: {line}");
    }
    rows
}
