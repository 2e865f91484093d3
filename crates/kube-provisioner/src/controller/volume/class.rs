//! StorageClasses from the watch, with their parameters parsed by the provisioner's code before any lock is taken.

use k8s_openapi::api::storage::v1::StorageClass;
use provisioner_runtime::fingerprint;
use provisioner_runtime::watch::Change;

use super::backend::Backend;
use super::decide::Rules;
use super::facts::OurClass;
use super::{author_view, journal_entry};
use crate::controller::shared::watched::WatchedClass;

pub(crate) type ReadClass = crate::controller::shared::read_class::ReadClass<OurClass>;

pub(crate) fn read_class(event: Change<WatchedClass>, rules: &Rules, backend: &dyn Backend) -> Change<ReadClass> {
    ReadClass::of_event(event, &rules.names, |class| read_own(class, rules, backend))
}

fn read_own(class: StorageClass, rules: &Rules, backend: &dyn Backend) -> OurClass {
    let fingerprint = fingerprint(&(&class.metadata.uid, &class.metadata.resource_version));
    let object = author_view::class(class, &rules.capabilities);
    let snapshot = journal_entry::snapshot(&object, fingerprint);
    OurClass::read(object, fingerprint, (backend, &rules.capabilities), snapshot)
}
