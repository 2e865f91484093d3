//! `orphans`: compares the contents of the disk with the volumes and the journal.

use std::collections::BTreeSet;

use clap::Args;
use kube_provisioner::console::{is_confirmed, print, table};
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube_provisioner::kube::{Api, Client};
use kube_provisioner::protocol::PROVISIONED_BY;
use kube_provisioner::{FencingToken, Options, error_chain, recorded_volumes};
use serde_json::Value;

use super::volumes::{LocatedVolume, Volumes};
use super::{BoxError, Place, Site, check_none_failed};
use crate::deletion::owner_of;
use crate::mark::Owner;
use crate::root::Root;
use crate::survey::{FoundMark, Survey};

/// The command and its arguments.
#[derive(Debug, Args)]
pub struct Orphans<S: Site> {
    #[command(flatten)]
    site: S,

    /// Move marked directories without a volume to the trash, after a confirmation for each
    #[arg(long)]
    delete: bool,

    /// Skip the confirmations
    #[arg(long, requires = "delete")]
    yes: bool,
}

/// The state of one mark.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Its volume and its directory exist.
    Used,
    /// Its volume exists, but its directory does not.
    DirectoryMissing,
    /// A volume of its name exists, but it is not the marked one.
    Earlier,
    /// Another volume refers to the directory, or to one above or below it.
    Referenced { by: String, how: &'static str },
    /// A volume of its name exists, but cannot be read.
    Unreadable,
    /// An attempt for its claim is under way.
    InProgress,
    /// Its volume was deleted, and its class requested that the data be kept.
    Kept,
    /// The reclaim policy of its volume was Retain.
    Retained,
    /// Created in another cluster.
    OtherCluster(String),
    /// Created by an earlier version, in an unknown cluster.
    NoCluster,
    /// Created by another provisioner that uses the same root.
    Foreign,
    /// Unused.
    Orphan,
}

impl State {
    fn text(&self, volume: &str) -> String {
        match self {
            Self::Used => "in use".to_owned(),
            Self::DirectoryMissing => "the volume exists, its directory does not exist".to_owned(),
            Self::Earlier => {
                format!(
                    "marked for an earlier volume of this name; `adopt --volume {volume}` assigns it to the current one"
                )
            }
            Self::Referenced { by, how } => format!("kept: the volume {by} {how}"),
            Self::Unreadable => "kept: the volume exists and cannot be read".to_owned(),
            Self::InProgress => "being created".to_owned(),
            Self::Kept => "kept, as its class requested (onDelete: retain)".to_owned(),
            Self::Retained => "kept: the volume's reclaim policy was Retain".to_owned(),
            Self::OtherCluster(id) => format!("kept: another cluster's ({id})"),
            Self::NoCluster => "kept: no volume, and the mark names no cluster".to_owned(),
            Self::Foreign => "another provisioner's".to_owned(),
            Self::Orphan => "no volume".to_owned(),
        }
    }
}

/// The state in the API server, and the identity of the provisioner.
struct ClusterState<'a> {
    provisioner: Options,
    cluster: &'a str,
    /// The annotation in which a volume records its root.
    root_annotation: &'static str,
    root: &'a Root,
    places: Vec<Place>,
    volumes: Volumes,
    /// The volumes with recorded attempts.
    recorded: BTreeSet<String>,
    /// The uids of the claims that were looked up.
    claims: BTreeSet<String>,
}

impl<S: Site> Orphans<S> {
    pub(crate) async fn execute(self) -> Result<(), BoxError> {
        let (root, client) = (self.site.checked_root()?, self.site.connection().client().await?);
        let cluster = self.site.connection().cluster(&client).await?;
        let (survey, known) = self.inspect(&root, &client, &cluster).await?;
        print(&self.report(&survey, &known));
        if self.delete { self.delete(&root, &client, &cluster, &survey, &known).await } else { Ok(()) }
    }

    /// Reads the root, then the journal, and then the volumes. An attempt is recorded from before its directory is
    /// created until its volume is saved, so reading in this order misses none.
    async fn inspect<'a>(
        &'a self,
        root: &'a Root,
        client: &Client,
        cluster: &'a str,
    ) -> Result<(Survey, ClusterState<'a>), BoxError> {
        let survey = root.survey()?;
        let provisioner = self.site.connection().options();
        let recorded = recorded_volumes(&provisioner).await?.into_iter().collect();
        let mut known = ClusterState {
            provisioner,
            cluster,
            root_annotation: S::ANNOTATIONS.root,
            root,
            places: self.site.places(root),
            volumes: Volumes::list(client).await?,
            recorded,
            claims: BTreeSet::new(),
        };
        for found in &survey.marked {
            if known.state(found) == State::Orphan {
                known.look_for_claim(client, &found.mark.owner).await?;
            }
        }
        Ok((survey, known))
    }

    /// Asks for confirmation. Because answers take time, everything is checked once more before the first directory is
    /// moved.
    async fn delete(
        &self,
        root: &Root,
        client: &Client,
        cluster: &str,
        survey: &Survey,
        known: &ClusterState<'_>,
    ) -> Result<(), BoxError> {
        known.volumes.check_readable()?;
        let mut chosen = Vec::new();
        for found in survey.marked.iter().filter(|found| known.state(found) == State::Orphan) {
            let (directory, owner) = (root.path().join(found.path.as_str()), &found.mark.owner);
            let question = if found.has_directory {
                format!("move {} of {owner} to the trash?", directory.display())
            } else {
                format!("remove the mark of the missing directory {} of {owner}?", directory.display())
            };
            if self.yes || is_confirmed(&question)? {
                chosen.push(found);
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        let (now, known) = self.inspect(root, client, cluster).await?;
        known.volumes.check_readable()?;
        let mut failed = 0;
        for found in chosen {
            let FoundMark { path, mark, has_directory } = found;
            if !now.marked.contains(found) || known.state(found) != State::Orphan {
                print(&format!("{path} is kept: it changed in the meantime\n"));
                continue;
            }
            let moved = self.site.unpublish(root, path).await.and_then(|()| {
                Ok(root.move_to_trash(path, &mark.owner, None, Value::Null, &FencingToken::unlimited())?)
            });
            // A directory that cannot be moved, such as a mount point, must not prevent the others from being moved.
            if let Err(error) = moved {
                failed += 1;
                print(&format!("{path} is not moved: {}\n", error_chain(&*error)));
                continue;
            }
            if !has_directory {
                print(&format!("{path}: its mark is removed; it had no directory\n"));
                continue;
            }
            print(&format!(
                "{path} is in the trash as {volume}; `trash restore {volume}` brings it back, `trash purge {volume}` \
                 removes it permanently\n",
                volume = mark.owner.volume
            ));
        }
        check_none_failed(failed, "directories were not moved")
    }

    fn report(&self, survey: &Survey, known: &ClusterState<'_>) -> String {
        let mut rows = vec![["PATH", "VOLUME", "CLAIM", "STATE"].map(str::to_owned)];
        let states: Vec<State> = survey.marked.iter().map(|found| known.state(found)).collect();
        for (found, state) in survey.marked.iter().zip(&states).filter(|(_, state)| **state != State::Used) {
            let (owner, path) = (&found.mark.owner, found.path.to_string());
            let claim = owner.claim.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name));
            rows.push([path, owner.volume.clone(), claim.unwrap_or_default(), state.text(&owner.volume)]);
        }
        let marked: BTreeSet<&str> = survey.marked.iter().map(|found| found.path.as_str()).collect();
        let mut without_mark: BTreeSet<&str> = survey.unmarked.iter().map(String::as_str).collect();
        for volume in &known.volumes.all {
            let path = self.site.path_of(&volume.object, known.root).ok().map(String::from);
            let Some(path) = path.filter(|path| !marked.contains(path.as_str())) else { continue };
            let state = match (without_mark.remove(path.as_str()), known.is_ours(volume)) {
                (true, _) => format!("no ownership mark; `adopt --volume {}` takes it over", volume.name),
                (false, true) if !self.site.is_elsewhere(&volume.object) => State::DirectoryMissing.text(&volume.name),
                (false, _) => continue,
            };
            rows.push([path, volume.name.clone(), String::new(), state]);
        }
        for path in without_mark {
            let state = "no ownership mark: not created by this provisioner".to_owned();
            rows.push([path.to_owned(), String::new(), String::new(), state]);
        }
        let mut text = match rows.len() {
            1 => String::new(),
            _ => table(&rows),
        };
        survey.damaged.iter().for_each(|error| text.push_str(&format!("{error}\n")));
        for (name, why) in &known.volumes.unreadable {
            text.push_str(&format!("the volume {name} cannot be read, so its location is unknown: {why}\n"));
        }
        let count = |what: &State| states.iter().filter(|state| *state == what).count();
        let orphans = count(&State::Orphan);
        text.push_str(&format!(
            "{} in use, {orphans} {}, {} in the trash, {} being removed\n",
            count(&State::Used),
            if orphans == 1 { "orphan" } else { "orphans" },
            survey.trash.len(),
            survey.deleting.len()
        ));
        text
    }
}

impl Volumes {
    /// Fails if a volume cannot be read, because it may refer to any directory.
    fn check_readable(&self) -> Result<(), BoxError> {
        let names: Vec<&str> = self.unreadable.iter().map(|(name, _)| name.as_str()).collect();
        if names.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "no directory is moved while these volumes cannot be read, because each may use any directory: {}",
                names.join(", ")
            )
            .into())
        }
    }
}

impl ClusterState<'_> {
    fn state(&self, found: &FoundMark) -> State {
        let owner = &found.mark.owner;
        let claim = owner.claim.as_ref();
        if let Some(other) = owner.cluster.as_ref().filter(|id| *id != self.cluster) {
            return State::OtherCluster(other.clone());
        }
        if let Some(volume) = self.volumes.get(&owner.volume) {
            return match (found.mark.belongs_to(&owner_of(&volume.object)), found.has_directory) {
                (false, _) => State::Earlier,
                (true, true) => State::Used,
                (true, false) => State::DirectoryMissing,
            };
        }
        if self.volumes.is_unreadable(&owner.volume) {
            return State::Unreadable;
        }
        let mut overlapping = self.volumes.overlapping(self.root, &self.places, &found.path);
        if let Some((volume, relation)) = overlapping.find(|(volume, _)| !self.is_elsewhere(volume)) {
            return State::Referenced { by: volume.name.clone(), how: relation.text() };
        }
        match () {
            () if found.has_directory && found.mark.kept.is_some() => State::Kept,
            () if found.has_directory && found.mark.retain => State::Retained,
            () if !self.provisioner.serves(&owner.provisioner) => State::Foreign,
            () if self.recorded.contains(&owner.volume) => State::InProgress,
            () if claim.is_some_and(|claim| self.claims.contains(&claim.uid)) => State::InProgress,
            () if found.has_directory && owner.cluster.is_none() => State::NoCluster,
            () => State::Orphan,
        }
    }

    /// Returns true if a volume records that it is in another root.
    fn is_elsewhere(&self, volume: &LocatedVolume) -> bool {
        let root = volume.object.metadata.annotations.as_ref().and_then(|all| all.get(self.root_annotation));
        root.is_some_and(|root| Some(root.as_str()) != self.root.id())
    }

    fn is_ours(&self, volume: &LocatedVolume) -> bool {
        let by = volume.object.metadata.annotations.as_ref().and_then(|all| all.get(PROVISIONED_BY));
        by.is_some_and(|by| self.provisioner.serves(by)) && !self.is_elsewhere(volume)
    }

    /// Looks up the claim of an owner. There is no journal if attempts are recorded on their claims.
    async fn look_for_claim(&mut self, client: &Client, owner: &Owner) -> Result<(), BoxError> {
        if let Some(claim) = &owner.claim {
            let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &claim.namespace);
            let found = claims.get_metadata_opt(&claim.name).await?;
            self.claims.extend(found.and_then(|found| found.metadata.uid));
        }
        Ok(())
    }
}
