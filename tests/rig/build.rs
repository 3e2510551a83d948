//! Compiles the program of the rig's own pods: on its own, because cargo cannot link one program of a package
//! statically and the others not.

use std::{env, error::Error, path::Path, process::Command};

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script by the environment what to compile with"
)]
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
