//! Compiles the program in the rig's pods. Cargo cannot do it, because it links all programs of a package in the same
//! way, and this one has to be static.

use std::{env, error::Error, path::Path, process::Command};

#[expect(clippy::disallowed_methods, reason = "cargo configures a build script by its environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=kube/pod.rs");
    let program = Path::new(&env::var("OUT_DIR")?).join("pod");
    let status = Command::new(env::var("RUSTC")?)
        .args(["--edition=2024", "--crate-name=pod", "--target", &env::var("TARGET")?])
        .args(["-Ctarget-feature=+crt-static", "-Copt-level=s", "-Cpanic=abort", "-Cstrip=symbols"])
        .args(["kube/pod.rs", "-o"])
        .arg(program)
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("kube/pod.rs does not compile: {status}").into()) }
}
