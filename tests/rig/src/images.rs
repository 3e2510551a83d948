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

/// Long enough for a cold build on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// The product's image, built on first use from what the tree holds now.
pub async fn knmstate() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    BUILT.get_or_try_init(build_knmstate).await.cloned()
}

async fn build_knmstate() -> Result<PathBuf> {
    let xtask = binaries::program("xtask").await?;
    // Not the file of `make image`: that one is a release build.
    let image = rig_file("../../target/image/knmstate-dev.tar");
    Invocation::new([xtask.display().to_string()])
        .args(["image", "--profile=dev", "--uncompressed", "--tag", KNMSTATE, "--output"])
        .arg(image.display().to_string())
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
