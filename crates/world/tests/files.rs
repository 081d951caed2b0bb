//! Files of the host, as programs leave them.

use std::path::{Path, PathBuf};
use world::sys::files;

/// A folder that goes when the test ends, however it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let at = std::env::temp_dir().join(format!("nacre-files-{name}-{}", std::process::id()));
        files::create_dir_all(&at).unwrap();
        Folder(at)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_is_replaced_whole() {
    let dir = Folder::new("whole");
    let at = dir.path().join("status");
    files::replace(&at, b"a longer text").unwrap();
    files::replace(&at, b"short").unwrap();
    assert_eq!(files::read(&at).unwrap(), b"short");
    assert_eq!(files::list(dir.path()).unwrap(), ["status"]);
}

/// A path that a user gave as root, such as /dev/null: the rename would put a file where the device was.
#[test]
fn what_is_not_a_regular_file_is_not_replaced() {
    let dir = Folder::new("device");
    let at = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&at).unwrap();
    let refused = files::replace(&at, b"text").unwrap_err();
    assert!(refused.to_string().contains("not a regular file"), "{refused}");
    assert!(!std::fs::metadata(&at).unwrap().is_file());
    assert_eq!(files::list(dir.path()).unwrap(), ["socket"]);
}
