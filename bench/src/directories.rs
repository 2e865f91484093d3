//! Pending claims with a directory each: the hostPath provisioner compared with one written with the Go library that
//! only creates directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use tempfile::TempDir;
use testbed::cluster::provisioner_program;
use testbed::figures::Figures;
use testbed::process::output;

use crate::cluster::Cluster;
use crate::contender::{Contender, Turns};
use crate::measurement::Measurement;
use crate::waiting::turn;

/// Size of the file with a file system.
const IMAGE_BYTES: u64 = 4 << 30;
const WITHOUT: &str = "no directories";

/// Options of the measurement.
#[derive(Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    turns: Turns,
    /// The new file system on which the volumes are created; needs root
    #[arg(long, value_enum, default_value = "ext4")]
    file_system: Kind,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Ext4,
    Xfs,
    Tmpfs,
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let cluster = Cluster::connect().await?;
    let contenders = [
        Contender::ours("hostPath", provisioner_program("hostpath-provisioner")?, "hostpath", &[]),
        Contender::go_tuned("Go library, tuned, no fsync", &[]),
        Contender::go_tuned("Go library, tuned, fsync", &["-sync".to_owned()]),
        Contender::noop(WITHOUT, &[])?,
    ];
    let file_system = FileSystem::mount(settings.file_system)?;
    // All roots are removed at the end: for a minute, ext4 checks each freed inode before it allocates another one.
    let mut roots = Vec::new();
    let in_new_root = async |contender: &Contender, figures: &mut Figures| {
        let root = new_root(&file_system.place())?;
        let arguments = ["--root".to_owned(), root.path().display().to_string()];
        let more: &[String] = if contender.name == WITHOUT { &[] } else { &arguments };
        let result = turn(&cluster, settings.turns.claims, contender, more, figures).await;
        roots.push(root);
        result
    };
    let figures = settings.turns.take(&contenders, in_new_root).await?;
    cluster.clear().await?;
    Ok(figures.into())
}

fn new_root(place: &Path) -> anyhow::Result<TempDir> {
    let root = tempfile::tempdir_in(place)?;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700))?;
    Ok(root)
}

/// A new file system, in a file of the directory for temporary files or in memory.
struct FileSystem {
    folder: TempDir,
}

impl FileSystem {
    fn mount(kind: Kind) -> anyhow::Result<Self> {
        let mounted = Self { folder: tempfile::tempdir()? };
        let (place, image) = (mounted.place(), mounted.folder.path().join("image"));
        fs::create_dir(&place)?;
        let mkfs: &[&str] = match kind {
            // Otherwise the kernel initializes the rest in the background, during the first turn.
            Kind::Ext4 => &["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            Kind::Xfs => &["mkfs.xfs", "-q"],
            Kind::Tmpfs => return command("mount", &["-t", "tmpfs", "tmpfs"], &place).map(|()| mounted),
        };
        fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        command(mkfs[0], &mkfs[1..], &image)?;
        let options = ["-o", "loop", &image.display().to_string()];
        command("mount", &options, &place)?;
        Ok(mounted)
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("volumes")
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // It may not have been mounted.
        let _ = command("umount", &[], &self.place());
    }
}

fn command(program: &str, arguments: &[&str], last: &Path) -> anyhow::Result<()> {
    output(Command::new(program).args(arguments).arg(last)).map(drop)
}
