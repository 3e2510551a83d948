//! The image of knmstate: one static program and nothing else.
//!
//! A static program needs no base image, whose packages would need updates, and no registry to get it from. The GNU
//! target with `crt-static` is enough: the program consists of Rust, ring and glibc, whose resolver loads no library
//! (since 2.34). The image sets no user: handlers run as root, and the manifests of the other roles set theirs.
//!
//! Images for tests ([`pack_for_tests`]) have the debug build that the tests use as well, with its shared libraries,
//! because a second, static build of all crates would take minutes. Released images are always static.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::elf::{self, Architecture};
use crate::oci::Image;

/// The name of the image in the tests.
pub const DEV_REFERENCE: &str = "localhost/knmstate:dev";

const PROGRAM: &str = "/usr/bin/knmstate";
/// A link to it, for scripts and probes that were written for kubernetes-nmstate.
const NMSTATECTL: &str = "/usr/bin/nmstatectl";

/// Builds the `knmstate` program so that it runs on an empty file system, and returns its path.
///
/// `target` is a Rust target triple; without one it is the host's. Without a version it is the workspace's. Cargo's
/// progress goes to standard error.
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
    // Not in a configuration file, because RUSTFLAGS in the caller's environment would replace that.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", "-C target-feature=+crt-static");
    if let Some(version) = version {
        cargo.env("KNMSTATE_VERSION", version);
    }
    let messages = stdout_of(cargo)?;
    let built = messages.lines().find_map(executable_of);
    built.with_context(|| format!("cargo built no knmstate program for {target}"))
}

/// Puts a statically linked `knmstate` into an image. Fails for a dynamically linked one.
pub fn pack(binary: &Path, reference: &str, version: Option<&str>) -> Result<Image> {
    let program = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let architecture = elf::architecture_of_static(&program)
        .with_context(|| format!("{} cannot be put into an image", binary.display()))?;
    image(program, architecture, reference, version)
}

/// Puts a debug build of `knmstate` into an image for tests, with the shared libraries that it loads on this machine.
///
/// A version is one that the program reports instead of its own: debug builds read it from the environment, which the
/// image sets. So two images of different versions have the same files.
pub fn pack_for_tests(binary: &Path, reference: &str, version: Option<&str>) -> Result<Image> {
    let program = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let architecture = elf::architecture_of(&program)
        .with_context(|| format!("{} cannot be put into an image", binary.display()))?;
    let mut image = image(program, architecture, reference, version)?;
    for library in libraries(binary)? {
        let content = fs::read(&library).with_context(|| format!("cannot read {library}"))?;
        image.files().file(&library, 0o755, content)?;
    }
    Ok(match version {
        Some(version) => image.env("KNMSTATE_TEST_VERSION", version),
        None => image,
    })
}

fn image(
    program: Vec<u8>,
    architecture: Architecture,
    reference: &str,
    version: Option<&str>,
) -> Result<Image> {
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

/// The loader and the shared libraries of a program, where this machine's loader finds them. They are in directories
/// that the loader searches without a cache.
fn libraries(binary: &Path) -> Result<Vec<String>> {
    let mut ldd = command("ldd", Path::new("/"));
    // As an absolute path, because ldd would search for a name without a directory.
    ldd.arg(fs::canonicalize(binary)?);
    let listed = stdout_of(ldd)?;
    let missing = listed.lines().find(|line| line.contains("=> not found"));
    ensure!(missing.is_none(), "{} needs {}", binary.display(), missing.unwrap_or_default().trim());
    Ok(listed.lines().filter_map(library_of).collect())
}

/// The path in a line of ldd, such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0b)`. The vDSO has none.
fn library_of(line: &str) -> Option<String> {
    line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned)
}

/// Writes the image to a file, which is replaced at once when it is complete. Returns how many bytes a node downloads.
pub fn write_file(image: &Image, output: &Path) -> Result<usize> {
    let directory = output.parent().context("the output has no directory")?;
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create the directory {}", directory.display()))?;
    // With the pid in its name, because two builds can run at the same time.
    let unfinished = output.with_extension(format!("{}.part", std::process::id()));
    let written = File::create(&unfinished).map_err(anyhow::Error::from).and_then(|file| {
        let mut file = BufWriter::new(file);
        let size = image.write(&mut file)?;
        file.flush()?;
        fs::rename(&unfinished, output)?;
        Ok(size)
    });
    if written.is_err() {
        // Its error is ignored: the first one is returned.
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

/// Reads the path of the program from a message of cargo.
fn executable_of(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let ours = message["reason"] == "compiler-artifact" && message["target"]["name"] == "knmstate";
    message["executable"].as_str().filter(|_| ours).map(PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "a build tool starts compilers")]
fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null()).stderr(Stdio::inherit());
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
    fn an_image_for_tests_has_the_libraries_of_its_program() {
        assert_eq!(library_of("\tlinux-vdso.so.1 (0x00007ffc)"), None);
        assert_eq!(library_of("\tlibm.so.6 => /lib/libm.so.6 (0x00007f)"), Some("/lib/libm.so.6".to_owned()));
        assert_eq!(library_of("\t/lib64/ld.so.2 (0x00007f)"), Some("/lib64/ld.so.2".to_owned()));
        // The test binary itself is linked to glibc as every debug build is.
        let mut image = pack_for_tests(&std::env::current_exe().unwrap(), DEV_REFERENCE, None).unwrap();
        let layer = image.files().to_tar().unwrap();
        let mut archive = tar::Archive::new(layer.as_slice());
        let paths: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        for name in ["usr/bin/knmstate", "libc.so.6", "ld-linux"] {
            assert!(paths.iter().any(|path| path.contains(name)), "{name} is not in {paths:?}");
        }
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
