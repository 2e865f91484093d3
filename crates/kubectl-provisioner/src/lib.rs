//! `kubectl provisioner`: explains why a volume or bucket claim is pending, its current state, and which provisioner
//! manages it.
//!
//! The answers come from the controllers' own rules, [`kube_provisioner::explain`], applied to the objects that the
//! user may read. An answer lists the objects that could not be read. The plugin never writes anything, and never
//! requests the data of Secrets.

mod answer;
mod args;
mod bucket;
mod claim;
mod common;
mod explanation;
mod fleets;
mod object;
mod orphans;
mod overview;
mod reader;
mod volume;

use kube::Client;
use provisioner_runtime::Environment;

pub use self::answer::Answer;
pub use self::args::{Args, Command, Explain, Format};
use self::reader::{NAMESPACE, Reader};

/// The inputs of a command, and the clock.
pub(crate) struct CommandContext<'a> {
    pub(crate) reader: Reader,
    pub(crate) environment: Environment,
    pub(crate) args: &'a Args,
    pub(crate) namespace: &'a str,
    /// The cluster ID, if known.
    pub(crate) cluster_id: Option<String>,
}

/// Runs a command, and returns its formatted answer. `namespace` is the namespace of the kubeconfig's context.
pub async fn answer(args: &Args, client: Client, namespace: &str, environment: Environment) -> String {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let reader = Reader::new(client);
    let cluster_id = match (&args.cluster_id, &args.command) {
        (None, Command::Explain(_) | Command::Bucket { .. }) => {
            let namespace = reader.get_metadata(&NAMESPACE, "", "kube-system").await;
            namespace.object().and_then(|object| object["metadata"]["uid"].as_str().map(str::to_owned))
        }
        (given, _) => given.clone(),
    };
    let context = CommandContext { reader, environment, args, namespace, cluster_id };
    let answer = match &args.command {
        Command::Explain(Explain::Pvc { name }) => claim::explain(&context, name).await,
        Command::Explain(Explain::Pv { name }) => volume::explain(&context, name).await,
        Command::Bucket { name } => bucket::explain(&context, name).await,
        Command::List => overview::list(&context).await,
        Command::Journal => overview::journal(&context).await,
        Command::Orphans => orphans::find(&context).await,
    };
    let answer = Answer { unknown: context.reader.unknown(), ..answer };
    match args.output {
        Format::Text => answer.text(),
        Format::Json => answer.json(),
    }
}
