//! The images that pods in a lab can use. No registry can be reached: nodes import them from files.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::sync::OnceCell;
use xtask::{elf, oci::Image};

use crate::{binaries, machine::rig_file, process::Invocation};

/// Holds `/pod`, which waits (`/pod`) or serves HTTP (`/pod PORT`, answering with the name of its host). Every
/// kubelet node has it; it also holds the namespaces of every pod.
pub const POD: &str = "localhost/rig-pod:dev";

/// The product, under the name that `image` makes by default. A node has it when given the file of [`knmstate`].
pub const KNMSTATE: &str = xtask::knmstate_image::DEV_REFERENCE;

/// The same, as it may be after an upgrade: another version of the same code.
pub const NEXT: &str = "localhost/knmstate:next";
/// What that one says to be.
pub const NEXT_VERSION: &str = "99.0.0-next";

/// Long enough for a cold build on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// The product's image, built on first use from what the tree holds now.
pub async fn knmstate() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    BUILT.get_or_try_init(|| build(KNMSTATE, None, "knmstate-dev.tar")).await.cloned()
}

/// The image of the next version.
pub async fn next() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    // One after the other: the programs lie at the same place.
    let _ = knmstate().await?;
    BUILT.get_or_try_init(|| build(NEXT, Some(NEXT_VERSION), "knmstate-next.tar")).await.cloned()
}

async fn build(tag: &str, version: Option<&str>, file: &str) -> Result<PathBuf> {
    let xtask = binaries::program("xtask").await?;
    // Not the file of `make image`: that one is a release build.
    let image = rig_file("../../target/image").join(file);
    Invocation::new([xtask.display().to_string()])
        .args(["image", "--profile=dev", "--uncompressed", "--tag", tag, "--output"])
        .arg(image.display().to_string())
        .args(version.map(|version| format!("--version={version}")))
        .run(BUILD_LIMIT)
        .await?
        .success()
        .context("build the image of knmstate")?;
    Ok(image)
}

pub(crate) fn write_pod(path: &Path) -> Result<()> {
    let program = include_bytes!(concat!(env!("OUT_DIR"), "/pod"));
    let mut image = Image::new(POD, elf::architecture_of_static(program)?)?.entrypoint(&["/pod"]);
    image.files().file("/pod", 0o755, program.to_vec())?;
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    image.write(BufWriter::new(file)).map(drop)
}
