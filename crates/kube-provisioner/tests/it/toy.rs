//! An in-memory backend, and a provisioner with at most one flaw.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube_provisioner::{
    Capabilities, DeleteError, ExpandError, FencingToken, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume,
    Provisioner, StartError, Volume,
};
use tokio::time::sleep;

/// The flaw of a toy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    Nothing,
    /// Every call creates another asset.
    RandomNames,
    /// Checks whether an asset exists, and creates one a moment later.
    ChecksThenCreates,
    /// Partly created assets have another name each time.
    LeavesPartialAssets,
    /// Rounds sizes down.
    TooSmall,
    /// All volumes point to the same place.
    OnePlace,
    /// Finds assets only by their label, which is set after their creation.
    LabelsLate,
    /// Fails to delete an asset that no longer exists.
    FailsOnMissingAsset,
    /// Deletes all assets whose name has this prefix.
    DeletesByPrefix,
    /// Deletes the asset that the volume object names.
    DeletesByPath,
    /// Renames an asset before its deletion, and forgets the new name.
    ForgetsTrash,
    /// Deletes only assets that this process created.
    RemembersInProcess,
    /// `probe` fails until the first volume is provisioned.
    ReadyWhenItWorks,
    /// Detects a bad parameter late, and reports it as a transient failure.
    RetriesBadParameters,
    /// Panics in a call.
    Panics,
    /// Cleans up only the asset itself, not its parts.
    CleansUpWithoutParts,
    /// Renames an asset before the clean-up, and forgets the new name.
    CleansUpByTrash,
    /// A thread whose token is no longer valid leaves something that later calls do not find.
    StopsHalfway,
    /// Detects a size that is too large only after it has created a part.
    RefusesLate,
    /// Expands only assets that this process created.
    ExpandsFromMemory,
    /// Checks whether the name is free, and takes it a moment later.
    SharesNames,
    /// Adopts assets without a label.
    TakesOver,
}

/// The contents of the backend: IDs, and the volume of each.
#[derive(Clone, Default)]
pub(crate) struct ToyBackend(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    assets: BTreeMap<String, String>,
    numbers: u64,
}

impl ToyBackend {
    pub(crate) fn ids(&self) -> Vec<String> {
        self.lock().assets.keys().cloned().collect()
    }

    /// Takes some time, like a call over a network.
    async fn put(&self, id: &str, label: &str) {
        sleep(Duration::from_millis(1)).await;
        self.lock().assets.insert(id.to_owned(), label.to_owned());
        sleep(Duration::from_millis(1)).await;
    }

    /// Takes a name atomically if it is free. Returns its owner.
    async fn take(&self, id: &str, label: &str) -> String {
        sleep(Duration::from_millis(1)).await;
        self.lock().assets.entry(id.to_owned()).or_insert_with(|| label.to_owned()).clone()
    }

    /// Creates an asset manually, like an administrator.
    pub(crate) fn create_manually(&self, id: String) -> Option<String> {
        let mut inner = self.lock();
        let is_free = !inner.assets.contains_key(&id);
        is_free.then(|| inner.assets.insert(id.clone(), String::new()));
        is_free.then_some(id)
    }

    async fn label(&self, id: &str) -> Option<String> {
        sleep(Duration::from_millis(1)).await;
        self.lock().assets.get(id).cloned()
    }

    async fn remove(&self, id: &str) -> bool {
        sleep(Duration::from_millis(1)).await;
        let removed = self.lock().assets.remove(id).is_some();
        sleep(Duration::from_millis(1)).await;
        removed
    }

    async fn find(&self, label: &str) -> Option<String> {
        sleep(Duration::from_millis(1)).await;
        self.lock().assets.iter().find(|(_, of)| *of == label).map(|(id, _)| id.clone())
    }

    fn number(&self) -> u64 {
        let mut inner = self.lock();
        inner.numbers += 1;
        inner.numbers
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Toy {
    backend: ToyBackend,
    flaw: Flaw,
    made: Mutex<Vec<String>>,
}

impl Toy {
    pub(crate) fn new(backend: ToyBackend, flaw: Flaw) -> Self {
        Self { backend, flaw, made: Mutex::default() }
    }

    /// Works without an await, like a thread: creates something, checks whether it may continue, and removes it.
    fn block(&self, fencing_token: &FencingToken) -> Result<(), ProvisionError> {
        let id = format!("scratch-{}", self.backend.number());
        self.backend.lock().assets.insert(id.clone(), String::new());
        if !fencing_token.is_valid() {
            return Err(ProvisionError::retry("cut off"));
        }
        self.backend.lock().assets.remove(&id);
        Ok(())
    }

    /// Creates an asset with the name of the claim.
    async fn make_named(&self, id: &str, name: &str) -> Result<String, ProvisionError> {
        let label = match self.flaw {
            Flaw::SharesNames => self.backend.label(id).await.unwrap_or_else(|| name.to_owned()),
            _ => self.backend.take(id, name).await,
        };
        let is_ours = label == name || (label.is_empty() && self.flaw == Flaw::TakesOver);
        if !is_ours {
            return Err(ProvisionError::invalid(format!("{id} exists already and is not this claim's")));
        }
        self.backend.put(id, name).await;
        Ok(id.to_owned())
    }

    async fn make(&self, name: &str) -> String {
        let Self { backend, flaw, .. } = self;
        match flaw {
            Flaw::RandomNames => {
                let id = format!("{name}-{}", backend.number());
                backend.put(&id, name).await;
                return id;
            }
            Flaw::ChecksThenCreates | Flaw::LabelsLate => {
                if let Some(id) = backend.find(name).await {
                    return id;
                }
                let id = format!("vol-{}", backend.number());
                if *flaw == Flaw::LabelsLate {
                    backend.put(&id, "").await;
                }
                backend.put(&id, name).await;
                return id;
            }
            _ => {}
        }
        let part = match flaw {
            Flaw::LeavesPartialAssets => format!("{name}.part-{}", backend.number()),
            _ => format!("{name}.part"),
        };
        backend.put(&part, name).await;
        backend.put(name, name).await;
        backend.remove(&part).await;
        name.to_owned()
    }
}

/// More than any backend provides.
const TOO_LARGE: u64 = 1 << 40;

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Parameters {
    #[serde(default)]
    tier: Tier,
    #[serde(default)]
    colour: String,
    #[serde(default)]
    named: Named,
}

/// The names of assets.
#[derive(Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Named {
    #[default]
    Volume,
    Claim,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Tier {
    #[default]
    Slow,
    Fast,
}

impl Provisioner for Toy {
    type Parameters = Parameters;

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        let Parameters { tier, colour, named } = &*request.parameters;
        if *tier == Tier::Fast && colour == "red" {
            let why = "there is nothing fast that is red";
            return Err(match self.flaw {
                Flaw::RetriesBadParameters => ProvisionError::retry(why),
                _ => ProvisionError::invalid(why),
            });
        }
        if request.bytes > TOO_LARGE {
            if self.flaw == Flaw::RefusesLate {
                self.backend.put(&format!("{}.part", request.name), "").await;
            }
            return Err(ProvisionError::nothing_left("there is not that much"));
        }
        if self.flaw == Flaw::StopsHalfway {
            self.block(&request.fencing_token)?;
        }
        let id = match named {
            Named::Volume => self.make(&request.name).await,
            Named::Claim => {
                let claim = request.claim.metadata.name.as_deref().unwrap_or_default();
                self.make_named(claim, &request.name).await?
            }
        };
        self.made.lock().unwrap().push(request.name.clone());
        let place = if self.flaw == Flaw::OnePlace { "all" } else { &id };
        let bytes = match self.flaw {
            Flaw::TooSmall => request.bytes / 1024 * 1024,
            _ => request.bytes.next_multiple_of(1024),
        };
        Ok(Volume::nfs("server", format!("/exports/{place}")).capacity(bytes).annotation("example.com/id", id))
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        let Self { backend, flaw, made } = self;
        let name = &volume.name;
        match flaw {
            Flaw::Panics => panic!("no way to delete {name}"),
            Flaw::RandomNames | Flaw::ChecksThenCreates | Flaw::LabelsLate => {
                while let Some(id) = backend.find(name).await {
                    backend.remove(&id).await;
                }
            }
            Flaw::DeletesByPrefix => backend.lock().assets.retain(|id, _| !id.starts_with(name)),
            Flaw::DeletesByPath => {
                let path = volume.object.spec.as_ref().and_then(|spec| Some(&spec.nfs.as_ref()?.path));
                let id = path.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
                backend.remove(id).await;
                backend.remove(&format!("{id}.part")).await;
            }
            Flaw::ForgetsTrash => {
                if backend.remove(name).await {
                    let trash = format!("trash-{}", backend.number());
                    backend.put(&trash, "").await;
                    backend.remove(&trash).await;
                }
                backend.remove(&format!("{name}.part")).await;
            }
            Flaw::RemembersInProcess if !made.lock().unwrap().iter().any(|made| made == name) => {}
            _ => {
                if let Some(id) = backend.find(name).await.filter(|id| !id.starts_with(name)) {
                    backend.remove(&id).await;
                }
                let removed = backend.remove(name).await;
                let part = backend.remove(&format!("{name}.part")).await;
                if *flaw == Flaw::FailsOnMissingAsset && !removed && !part {
                    return Err(DeleteError::retry(format!("there is no {name}")));
                }
            }
        }
        Ok(())
    }

    async fn probe(&self) -> Result<(), StartError> {
        if self.flaw == Flaw::ReadyWhenItWorks && self.made.lock().unwrap().is_empty() {
            Err(StartError::new("nothing is set up"))
        } else {
            Ok(())
        }
    }
}

impl Hooks for Toy {}

/// A toy with `expand` and `clean_up`.
pub(crate) struct TidyToy(pub(crate) Toy);

impl Provisioner for TidyToy {
    type Parameters = Parameters;

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        self.0.provision(request).await
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.0.delete(volume).await
    }

    async fn expand(&self, volume: ProvisionedVolume, _: u64) -> Result<(), ExpandError> {
        let Toy { backend, flaw, made } = &self.0;
        let known = made.lock().unwrap().contains(&volume.name);
        match backend.find(&volume.name).await {
            Some(_) if known || *flaw != Flaw::ExpandsFromMemory => Ok(()),
            _ => Err(ExpandError::retry(format!("there is no {}", volume.name))),
        }
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().expansion()
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        let Toy { backend, flaw, .. } = &self.0;
        let part = format!("{}.part", attempt.name);
        match flaw {
            Flaw::CleansUpByTrash => {
                if backend.remove(&attempt.name).await {
                    let trash = format!("trash-{}", backend.number());
                    backend.put(&trash, "").await;
                    backend.remove(&trash).await;
                }
                backend.remove(&part).await;
            }
            Flaw::CleansUpWithoutParts => drop(backend.remove(&attempt.name).await),
            _ => {
                backend.remove(&attempt.name).await;
                backend.remove(&part).await;
            }
        }
        Ok(())
    }
}

impl Hooks for TidyToy {}
