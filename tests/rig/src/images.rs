//! The images that pods in a lab can use. A lab has no registry: nodes import the images from files.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::sync::OnceCell;
use xtask::{elf, knmstate_image, oci::Image};

use crate::{binaries, machine::rig_file, parts, process::Invocation};

const STRIP_LIMIT: Duration = Duration::from_mins(2);

/// An image with the program `/pod`, which waits for ever, or, as `/pod PORT`, answers HTTP requests with its host
/// name. Every kubelet node has it, and uses it as the pause image as well.
pub const POD: &str = "localhost/rig-pod:dev";

/// The image of the product, a debug build. A node has it if it was started with the file of [`knmstate`].
pub const KNMSTATE: &str = knmstate_image::DEV_REFERENCE;

/// The image of the next version, for tests of upgrades: the same program, which reports [`NEXT_VERSION`]. A node has
/// it if it was started with the file of [`next`].
pub const NEXT: &str = "localhost/knmstate:next";
/// The version that the program in [`NEXT`] reports.
pub const NEXT_VERSION: &str = "99.0.0-next";

/// The file of [`KNMSTATE`], packed on first use.
pub async fn knmstate() -> Result<PathBuf> {
    static PACKED: OnceCell<PathBuf> = OnceCell::const_new();
    PACKED.get_or_try_init(|| pack(KNMSTATE, None, "knmstate-dev.tar")).await.cloned()
}

/// The file of [`NEXT`], packed on first use.
pub async fn next() -> Result<PathBuf> {
    static PACKED: OnceCell<PathBuf> = OnceCell::const_new();
    PACKED.get_or_try_init(|| pack(NEXT, Some(NEXT_VERSION), "knmstate-next.tar")).await.cloned()
}

/// Packs the program that tests run outside of images, so that there is no second build.
async fn pack(tag: &'static str, version: Option<&'static str>, file: &'static str) -> Result<PathBuf> {
    let program = stripped(&binaries::knmstate().await?, file).await?;
    // Another file than that of `make image`, which is a release build.
    let output = rig_file("../../target/image").join(file);
    // Computing the digests of many megabytes would block the async tasks of this thread.
    let packed = tokio::task::spawn_blocking(move || {
        let image = knmstate_image::pack_for_tests(&program, tag, version)?;
        std::fs::remove_file(&program)?;
        knmstate_image::write_file(&image, &output)?;
        anyhow::Ok(output)
    });
    packed.await?.context("pack the image of knmstate")
}

/// Makes a copy without debug information, which is most of a debug build, because nodes copy and unpack the image.
async fn stripped(program: &Path, name: &str) -> Result<PathBuf> {
    let copy = parts::scratch_root().join(format!("knmstate-rig-{}-{name}", std::process::id()));
    let (from, to) = (program.display().to_string(), copy.display().to_string());
    Invocation::new(["strip", "--strip-debug", "-o", &to, &from]).run(STRIP_LIMIT).await?.success()?;
    Ok(copy)
}

pub(crate) fn write_pod(path: &Path) -> Result<()> {
    let program = include_bytes!(concat!(env!("OUT_DIR"), "/pod"));
    let mut image = Image::new(POD, elf::architecture_of_static(program)?)?.entrypoint(&["/pod"]);
    image.files().file("/pod", 0o755, program.to_vec())?;
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    image.write(BufWriter::new(file)).map(drop)
}
