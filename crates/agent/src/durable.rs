//! Files that are either wholly there or not at all, also after a loss of power.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Who may read what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// It may hold secrets.
    ByOwner,
    ByAll,
}

/// Puts a file in place of the one that may be there. Makes the folder if need be.
pub fn replace(path: &Path, content: &[u8], readable: Readable) -> io::Result<()> {
    let (folder_mode, file_mode) = match readable {
        Readable::ByOwner => (0o700, 0o600),
        Readable::ByAll => (0o755, 0o644),
    };
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    DirBuilder::new().recursive(true).mode(folder_mode).create(folder)?;
    // A dot in front: whoever lists the folder for files by their endings does not find it.
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let unfinished = folder.join(name);
    let _ = fs::remove_file(&unfinished);
    let mut file = File::options().write(true).create_new(true).mode(file_mode).open(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    File::open(folder)?.sync_all()
}

/// Removes a file; one that is not there is as good as removed.
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
    fn a_file_is_replaced_as_a_whole_and_leaves_nothing_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/file.json");
        for content in ["one", "two"] {
            replace(&path, content.as_bytes(), Readable::ByOwner).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
    }
}
