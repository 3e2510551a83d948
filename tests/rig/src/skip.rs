//! Records tests that cannot run on this machine. `scripts/test` shows them in its summary.

use std::{fs::File, io::Write as _, path::Path};

use anyhow::{Context, Result};

use crate::parts;

/// Records that the calling test was skipped, and why. The test returns after that.
pub fn skip(reason: &str) -> Result<()> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("skipped: {test}: {reason}");
    parts::skip_list().map_or(Ok(()), |list| append(&list, &test, reason))
}

fn append(list: &Path, test: &str, reason: &str) -> Result<()> {
    let mut file =
        File::options().append(true).create(true).open(list).context("open the list of skipped tests")?;
    Ok(writeln!(file, "{test}: {reason}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_skipped_test_is_a_line() -> Result<()> {
        let list = parts::scratch_root().join(format!("knmstate-rig-{}-skip-test", std::process::id()));
        append(&list, "one", "no such kernel feature")?;
        append(&list, "other", "no such server")?;
        let text = std::fs::read_to_string(&list)?;
        std::fs::remove_file(&list)?;
        assert_eq!(text, "one: no such kernel feature\nother: no such server\n");
        Ok(())
    }
}
