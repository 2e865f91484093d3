//! The names under which a provisioner serves classes.

use crate::options::Options;

/// The provisioner's name, and its additional names.
#[derive(Clone, Debug)]
pub(crate) struct ProvisionerNames {
    pub(crate) own: String,
    pub(crate) additional: Vec<String>,
}

impl ProvisionerNames {
    pub(crate) fn of(options: &Options) -> Self {
        Self { own: options.provisioner_name.clone(), additional: options.additional_provisioner_names.clone() }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &String> {
        [&self.own].into_iter().chain(&self.additional)
    }

    pub(crate) fn include(&self, name: &str) -> bool {
        self.all().any(|known| known == name)
    }
}
