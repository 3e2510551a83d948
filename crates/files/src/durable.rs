//! Atomic writes: after a power loss a file has either its old content or its new one.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// The users who may read a file, and the directory that is created for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The owner alone: for files that may have secrets in them.
    Owner,
    /// All users.
    All,
}

/// Writes a file, or replaces it. Creates its directory if it does not exist. Returns when the content would survive a
/// power loss.
pub fn replace(path: &Path, content: &[u8], readers: Readers) -> io::Result<()> {
    let (directory_mode, file_mode) = match readers {
        Readers::Owner => (0o700, 0o600),
        Readers::All => (0o755, 0o644),
    };
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(directory_mode).create(directory)?;
    // With a dot in front, so that a reader that lists `*.json` or `*.yaml` does not find it.
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let unfinished = directory.join(name);
    let _ = fs::remove_file(&unfinished);
    let mut file = File::options().write(true).create_new(true).mode(file_mode).open(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    File::open(directory)?.sync_all()
}

/// Removes a file. It is no error when the file does not exist.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_no_other_file_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/er/file.json");
        for content in ["one", "two"] {
            replace(&path, content.as_bytes(), Readers::Owner).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
    }
}
