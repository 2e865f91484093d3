//! `orphans`: what is on disk, compared with the volumes and the journal.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube_provisioner::kube::api::ListParams;
use kube_provisioner::kube::{Api, Client};
use kube_provisioner::protocol::PROVISIONED_BY;
use kube_provisioner::{FencingToken, recorded_volumes};

use super::{BoxError, Site, print, table};
use crate::mark::Owner;
use crate::root::Root;
use crate::survey::{Found, Survey};

/// How many volumes are asked for at once.
const PAGE: u32 = 500;

/// The command and its arguments.
#[derive(Debug, Args)]
pub struct Orphans<S: Site> {
    #[command(flatten)]
    site: S,

    /// Remove the directories that carry a mark of this provisioner and belong to no volume
    #[arg(long)]
    delete: bool,
}

/// What is known of one mark or volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its volume is there, and so is the directory.
    Used,
    /// Its volume is there, and the directory is not.
    DirectoryMissing,
    /// An attempt for its claim is under way.
    InProgress,
    /// Its volume was deleted and its class said that the data stay.
    Kept,
    /// Nobody's.
    Orphan,
    /// Made by another provisioner that has the same root.
    Foreign,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            Self::Used => "in use",
            Self::DirectoryMissing => "the volume is there, its directory is not",
            Self::InProgress => "being made",
            Self::Kept => "kept, as its class said (onDelete: retain)",
            Self::Orphan => "no volume: nobody's",
            Self::Foreign => "another provisioner's",
        }
    }
}

/// What the API server knows.
struct Known {
    /// The path that each volume names, or none where it is not below the root.
    volumes: BTreeMap<String, Option<String>>,
    /// The volumes for which attempts are recorded.
    recorded: BTreeSet<String>,
    /// The uids of claims, of those that were looked for.
    claims: BTreeSet<String>,
}

impl<S: Site> Orphans<S> {
    pub(crate) async fn carry_out(self) -> Result<(), BoxError> {
        let (root, client) = (self.site.checked_root()?, self.site.connection().client().await?);
        let provisioner = &*self.site.connection().provisioner_name;
        // An attempt is recorded before its directory is made, and until its volume is saved: in this order nothing is missed.
        let survey = root.survey()?;
        let recorded = recorded_volumes(&self.site.connection().options()).await?.into_iter().collect();
        let volumes = self.volumes(&client, &root).await?;
        let mut known = Known { volumes, recorded, claims: BTreeSet::new() };
        for found in &survey.marked {
            if known.state(found, provisioner) == State::Orphan {
                known.look_for_claim(&client, &found.mark.owner).await?;
            }
        }
        print(&report(&survey, &known, provisioner));
        if self.delete {
            self.delete(&root, &survey, &known)?;
        }
        Ok(())
    }

    fn delete(&self, root: &Root, survey: &Survey, known: &Known) -> Result<(), BoxError> {
        for found in &survey.marked {
            if known.state(found, &self.site.connection().provisioner_name) == State::Orphan {
                root.remove(&found.path, &found.mark.owner, &FencingToken::unlimited())?;
                print(&format!("{} is removed\n", found.path));
            }
        }
        Ok(())
    }

    /// The paths of all volumes; of others than this provisioner's the names alone.
    async fn volumes(&self, client: &Client, root: &Root) -> Result<BTreeMap<String, Option<String>>, BoxError> {
        let (api, provisioner) =
            (Api::<PersistentVolume>::all(client.clone()), &self.site.connection().provisioner_name);
        let (mut volumes, mut page) = (BTreeMap::new(), ListParams::default().limit(PAGE));
        loop {
            let list = api.list(&page).await?;
            for volume in list.items {
                let by = volume.metadata.annotations.as_ref().and_then(|all| all.get(PROVISIONED_BY));
                let path = self.site.path_of(&volume, root).ok().filter(|_| by == Some(provisioner));
                volumes.insert(volume.metadata.name.unwrap_or_default(), path.map(String::from));
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(volumes),
            }
        }
    }
}

impl Known {
    fn state(&self, found: &Found, provisioner: &str) -> State {
        let owner = &found.mark.owner;
        let claim = owner.claim.as_ref();
        match self.volumes.contains_key(&owner.volume) {
            true if found.has_directory => State::Used,
            true => State::DirectoryMissing,
            false if found.mark.kept.is_some() => State::Kept,
            false if owner.provisioner != provisioner => State::Foreign,
            false if self.recorded.contains(&owner.volume) => State::InProgress,
            false if claim.is_some_and(|claim| self.claims.contains(&claim.uid)) => State::InProgress,
            false => State::Orphan,
        }
    }

    /// Where claims record their attempts there is no journal.
    async fn look_for_claim(&mut self, client: &Client, owner: &Owner) -> Result<(), BoxError> {
        if let Some(claim) = &owner.claim {
            let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &claim.namespace);
            let found = claims.get_metadata_opt(&claim.name).await?;
            self.claims.extend(found.and_then(|found| found.metadata.uid));
        }
        Ok(())
    }
}

fn report(survey: &Survey, known: &Known, provisioner: &str) -> String {
    let mut rows = vec![["PATH", "VOLUME", "CLAIM", "STATE"].map(str::to_owned)];
    for found in &survey.marked {
        let state = known.state(found, provisioner);
        if state != State::Used {
            let (owner, path) = (&found.mark.owner, found.path.to_string());
            let claim = owner.claim.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name));
            rows.push([path, owner.volume.clone(), claim.unwrap_or_default(), state.text().to_owned()]);
        }
    }
    let marked: BTreeSet<&str> = survey.marked.iter().map(|found| found.path.as_str()).collect();
    let mut without_mark: BTreeSet<&str> = survey.unmarked.iter().map(String::as_str).collect();
    for (volume, path) in &known.volumes {
        if let Some(path) = path.as_deref().filter(|path| !marked.contains(path)) {
            let state = match without_mark.remove(path) {
                true => format!("no ownership mark; `adopt --volume {volume}` takes it over"),
                false => State::DirectoryMissing.text().to_owned(),
            };
            rows.push([path.to_owned(), volume.clone(), String::new(), state]);
        }
    }
    for path in without_mark {
        rows.push([
            path.to_owned(),
            String::new(),
            String::new(),
            "no ownership mark: not of this provisioner".to_owned(),
        ]);
    }
    let mut text = match rows.len() {
        1 => String::new(),
        _ => table(&rows),
    };
    survey.damaged.iter().for_each(|error| text.push_str(&format!("{error}\n")));
    let count = |what: State| survey.marked.iter().filter(|found| known.state(found, provisioner) == what).count();
    text.push_str(&format!(
        "{} in use, {} orphans, {} in the trash, {} being removed\n",
        count(State::Used),
        count(State::Orphan),
        survey.trash.len(),
        survey.deleting.len()
    ));
    text
}
