//! The command line that every provisioner has: its author's arguments, and `check-class`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory, Parser, value_parser};
use k8s_openapi::api::storage::v1::StorageClass;

use crate::controller;
use crate::options::{GO_COMPAT, provisioner_name};
use crate::parameters;
use crate::provisioner::Provisioner;

const CHECK_CLASS: &str = "check-class";
const PRESET: &str = "preset";

/// Reads the program's arguments, and carries out `check-class FILE`, which ends the program.
///
/// `check-class` tells what is wrong with the StorageClasses in a YAML or JSON file before anybody uses
/// them: what the user of a claim would see. It needs neither a cluster nor the program's other options.
///
/// ```no_run
/// # use kube_provisioner::*;
/// # struct Exports;
/// # impl Provisioner for Exports {
/// #     type Parameters = ();
/// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::nfs("server", r.name)) }
/// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
/// # }
/// #[derive(clap::Parser)]
/// struct Args {
///     #[command(flatten)]
///     options: Options,
/// }
///
/// let Args { options } = kube_provisioner::arguments::<Args, Exports>();
/// ```
pub fn arguments<A: Parser, P: Provisioner>() -> A {
    match read::<A>(std::env::args_os()) {
        Ok(Request::Run(arguments)) => arguments,
        Ok(Request::CheckClass(file)) => {
            let (text, code) = check_file::<P>(&file);
            print(&text);
            std::process::exit(code);
        }
        Err(error) => error.exit(),
    }
}

enum Request<A> {
    Run(A),
    CheckClass(PathBuf),
}

/// The command with all that it understands, for `--help`.
fn command<A: CommandFactory>() -> Command {
    let file = Arg::new("FILE").required(true).value_parser(value_parser!(PathBuf));
    let check = Command::new(CHECK_CLASS)
        .about("Tell what a claim's user would see of the StorageClasses in a YAML or JSON file")
        .arg(file.help("File with one or more StorageClasses"));
    let preset = Arg::new(PRESET).long(PRESET).env("PRESET").value_name("NAME").value_parser(["default", "go-compat"]);
    let preset =
        preset.default_value("default").help("Defaults of the other options: ours, or those of the Go library");
    A::command().arg(preset).subcommand(check).subcommand_negates_reqs(true)
}

fn read<A: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<Request<A>, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = command::<A>();
    // The preset decides what the other arguments are by default, so it is read first.
    let first_look = command.clone().ignore_errors(true).try_get_matches_from(&arguments);
    if first_look.is_ok_and(|matches| matches.get_one::<String>(PRESET).is_some_and(|preset| preset == "go-compat")) {
        for (argument, value) in GO_COMPAT {
            command = command.mut_arg(argument, |argument| argument.default_value(value));
        }
    }
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    if let Some((CHECK_CLASS, check)) = matches.subcommand()
        && let Some(file) = check.get_one::<PathBuf>("FILE")
    {
        return Ok(Request::CheckClass(file.clone()));
    }
    let arguments = A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
    Ok(Request::Run(arguments))
}

/// The text to print and the program's exit status.
fn check_file<P: Provisioner>(file: &Path) -> (String, i32) {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => return (format!("cannot read {}: {error}\n", file.display()), 2),
    };
    let objects: Vec<serde_json::Value> = match serde_saphyr::from_multiple(&text) {
        Ok(objects) => objects,
        Err(error) => return (format!("{} is no YAML: {error}\n", file.display()), 2),
    };
    let (mut text, mut classes, mut wrong) = (String::new(), 0, false);
    for object in objects.into_iter().filter(|object| object["kind"] == "StorageClass") {
        classes += 1;
        let name = object["metadata"]["name"].as_str().unwrap_or("(without a name)").to_owned();
        let problem = check::<P>(object).err();
        wrong |= problem.is_some();
        let verdict = problem.map_or("ok".to_owned(), |problem| format!("Warning ProvisioningFailed: {problem}"));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "storageclass/{name}: {verdict}");
    }
    if classes == 0 {
        return (format!("{} holds no StorageClass\n", file.display()), 2);
    }
    (text, i32::from(wrong))
}

fn check<P: Provisioner>(object: serde_json::Value) -> Result<(), String> {
    let class: StorageClass = serde_json::from_value(object).map_err(|error| error.to_string())?;
    provisioner_name(&class.provisioner)
        .map_err(|problem| format!("provisioner {:?}: {problem}", class.provisioner))?;
    one_of("reclaimPolicy", class.reclaim_policy.as_deref(), &["Delete", "Retain"])?;
    one_of("volumeBindingMode", class.volume_binding_mode.as_deref(), &["Immediate", "WaitForFirstConsumer"])?;
    let parsed = parameters::from_map::<P::Parameters>(&class.parameters.unwrap_or_default());
    parsed.map(drop).map_err(|problems| controller::parameters_problem(&problems.to_string()))
}

fn one_of(field: &str, value: Option<&str>, allowed: &[&str]) -> Result<(), String> {
    match value {
        Some(value) if !allowed.contains(&value) => {
            Err(format!("{field} {value:?} is not one of {}", allowed.join(", ")))
        }
        _ => Ok(()),
    }
}

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn print(text: &str) {
    print!("{text}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{DeleteError, Options, ProvisionError, ProvisionRequest, ProvisionedVolume, Volume};

    #[derive(Parser, Debug)]
    struct Args {
        #[arg(long)]
        root: String,
        #[command(flatten)]
        options: Options,
    }

    struct Exports;

    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "parsed, never read")]
    struct Parameters {
        server: String,
        #[serde(default)]
        on_delete: String,
    }

    impl Provisioner for Exports {
        type Parameters = Parameters;
        async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
            Ok(Volume::nfs("server", request.name))
        }
        async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
            Ok(())
        }
    }

    fn options(more: &[&str]) -> Options {
        let arguments =
            ["p", "--root", "/v", "--provisioner-name", "example.com/p"].into_iter().chain(more.iter().copied());
        match read::<Args>(arguments.map(OsString::from)) {
            Ok(Request::Run(arguments)) => arguments.options,
            Ok(Request::CheckClass(_)) => panic!("no check was asked for"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_go_preset_changes_defaults_and_arguments_win() {
        let plain = options(&[]);
        assert_eq!((plain.workers, plain.volume_finalizer), (32, true));
        let go = options(&["--preset", "go-compat", "--workers", "9"]);
        assert_eq!((go.workers, go.volume_finalizer, go.failed_provision_threshold), (9, false, 15));
        assert_eq!(
            (go.retry_interval_start, go.retry_interval_max),
            (Duration::from_secs(15), Duration::from_secs(1000))
        );
        assert!(go.retry_on_resync);
    }

    #[test]
    fn wrong_arguments_are_errors() {
        for wrong in [&["--preset", "other"][..], &["--workers", "0"], &["--provision-timeout", "5"], &["extra"]] {
            let arguments = ["p", "--root", "/v", "--provisioner-name", "example.com/p"].iter().chain(wrong);
            assert!(read::<Args>(arguments.map(OsString::from)).is_err(), "{wrong:?}");
        }
        assert!(read::<Args>(["p"].map(OsString::from)).is_err());
    }

    fn checked(text: &str) -> (String, i32) {
        let file = std::env::temp_dir().join(format!(
            "class-{}-{}",
            std::process::id(),
            crate::controller::fingerprint_of(text)
        ));
        std::fs::write(&file, text).unwrap();
        let answer = match read::<Args>(["p", CHECK_CLASS].map(OsString::from).into_iter().chain([file.clone().into()]))
        {
            Ok(Request::CheckClass(file)) => check_file::<Exports>(&file),
            _ => panic!("a check was asked for"),
        };
        std::fs::remove_file(file).unwrap();
        answer
    }

    #[test]
    fn g16_a_class_is_checked_before_it_is_used() {
        let class = |parameters: &str| {
            format!(
                "kind: StorageClass\nmetadata: {{name: k}}\nprovisioner: example.com/p\nparameters: {{{parameters}}}\n"
            )
        };
        assert_eq!(checked(&class("server: s")), ("storageclass/k: ok\n".to_owned(), 0));
        let (text, code) = checked(&format!("{}---\n{}", class("server: s"), class("sever: s, onDelte: x")));
        assert_eq!((text.lines().count(), code), (2, 1));
        assert!(
            text.contains("Warning ProvisioningFailed") && text.contains("sever") && text.contains("onDelte"),
            "{text}"
        );
        assert_eq!(checked("kind: Secret").1, 2);
        assert_eq!(checked("a: [").1, 2);
        assert_eq!(checked(&class("server: s").replace("example.com", "kubernetes.io")).1, 1);
    }
}
