//! The recipe of our own image: one static binary and nothing else.
//!
//! Static, because then the image needs no base image, no registry and no package list to keep patched. The GNU
//! target with `crt-static` is enough: what is linked is pure Rust, ring and glibc, whose resolver reads files and
//! DNS without loading anything (since 2.34). No user is named: handlers are root, and whoever is not says so itself.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::elf;
use crate::oci::Image;

/// What pods in the tests ask for.
pub const DEV_REFERENCE: &str = "localhost/knmstate:dev";

const PROGRAM: &str = "/usr/bin/knmstate";
/// The same program by the name that scripts and probes made for kubernetes-nmstate call.
const NMSTATECTL: &str = "/usr/bin/nmstatectl";

/// Builds the `knmstate` program so that it runs on an empty file system, and says where it lies.
///
/// `target` is a Rust target triple; without one it is the machine's own. Without a version it is the workspace's. Cargo's progress goes to standard error.
pub fn build_static(
    workspace: &Path,
    profile: &str,
    target: Option<&str>,
    version: Option<&str>,
) -> Result<PathBuf> {
    let target = match target {
        Some(target) => target.to_owned(),
        None => host_target(workspace)?,
    };
    let mut cargo = command("cargo", workspace);
    cargo.args(["build", "--quiet", "--package", "knmstate", "--bin", "knmstate"]);
    // An explicit target keeps the flags away from build scripts and macros, which must stay dynamic.
    cargo.args(["--profile", profile, "--target", &target, "--message-format", "json-render-diagnostics"]);
    // Set here and not in a configuration file, because a RUSTFLAGS of the caller would hide that one.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", "-C target-feature=+crt-static");
    if let Some(version) = version {
        cargo.env("KNMSTATE_VERSION", version);
    }
    let messages = stdout_of(cargo)?;
    let built = messages.lines().find_map(executable_of);
    built.with_context(|| format!("cargo built no knmstate program for {target}"))
}

/// Puts a statically linked `knmstate` into an image.
pub fn pack(binary: &Path, reference: &str, version: Option<&str>) -> Result<Image> {
    let program = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let architecture = elf::architecture_of_static(&program)
        .with_context(|| format!("{} cannot be put into an image", binary.display()))?;
    let mut image = Image::new(reference, architecture)?
        .entrypoint(&[PROGRAM])
        .env("PATH", "/usr/bin")
        .label("org.opencontainers.image.title", "knmstate")
        .label("org.opencontainers.image.version", version.unwrap_or(env!("CARGO_PKG_VERSION")))
        .label("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE"))
        .label("org.opencontainers.image.source", env!("CARGO_PKG_REPOSITORY"));
    image.files().file(PROGRAM, 0o755, program)?;
    image.files().symlink(NMSTATECTL, "knmstate")?;
    image.files().dir("/tmp", 0o1777)?;
    Ok(image)
}

/// Writes the image so that a reader sees the old file or the new one, never a part. Returns how many bytes a node
/// fetches for it.
pub fn write_file(image: &Image, output: &Path) -> Result<usize> {
    let folder = output.parent().context("the output has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    // The process in the name, so that two builds at once do not write into each other's file.
    let unfinished = output.with_extension(format!("{}.part", std::process::id()));
    let written = File::create(&unfinished).map_err(anyhow::Error::from).and_then(|file| {
        let mut file = BufWriter::new(file);
        let size = image.write(&mut file)?;
        file.flush()?;
        fs::rename(&unfinished, output)?;
        Ok(size)
    });
    if written.is_err() {
        // Best effort: the error that is reported is the one above.
        let _ = fs::remove_file(&unfinished);
    }
    written.with_context(|| format!("cannot write {}", output.display()))
}

fn host_target(workspace: &Path) -> Result<String> {
    let mut rustc = command("rustc", workspace);
    rustc.arg("-vV");
    let version = stdout_of(rustc)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

/// The path in the message by which cargo announces a finished program.
fn executable_of(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let ours = message["reason"] == "compiler-artifact" && message["target"]["name"] == "knmstate";
    message["executable"].as_str().filter(|_| ours).map(PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "a build tool starts compilers")]
fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stderr(Stdio::inherit());
    command
}

fn stdout_of(mut command: Command) -> Result<String> {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => bail!("cannot start {}: {error}", command.get_program().display()),
    };
    ensure!(output.status.success(), "{} failed: {}", command.get_program().display(), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_our_program_among_cargo_messages() {
        let library = r#"{"reason":"compiler-artifact","target":{"name":"knmstate"},"executable":null}"#;
        let other = r#"{"reason":"compiler-artifact","target":{"name":"build"},"executable":"/t/build"}"#;
        let ours =
            r#"{"reason":"compiler-artifact","target":{"name":"knmstate"},"executable":"/t/knmstate"}"#;
        assert_eq!(executable_of(library), None);
        assert_eq!(executable_of(other), None);
        assert_eq!(executable_of("not json"), None);
        assert_eq!(executable_of(ours), Some(PathBuf::from("/t/knmstate")));
    }

    #[test]
    fn a_dynamic_program_is_refused_with_its_path_and_the_remedy() {
        // The test binary itself is linked to glibc as every debug build is.
        let program = std::env::current_exe().unwrap();
        let error = format!("{:#}", pack(&program, DEV_REFERENCE, None).unwrap_err());
        assert!(error.contains(program.to_str().unwrap()), "{error}");
        assert!(error.contains("crt-static"), "{error}");
    }
}
