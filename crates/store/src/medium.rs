//! A start believes what the disk shows, and nothing that only the host's memory has.
//!
//! After a failed flush Linux keeps the pages, counts them as written and tells it once, to the process that
//! flushed. Whoever starts the target next on that host reads them like any others, and a flush of his own
//! succeeds over them; they are gone with the power, or when memory is short. So each file that a start
//! builds on is flushed and dropped from the page cache before it is read:
//! `docs/decisions/0036-nothing-believed-that-the-disk-has-not-shown.md`.

use crate::StoreError;
use model::planted::{self, Bug};
use world::{DiskFile, OpenMode, World};

/// What is read from the file from now on is on the medium, its size included. Blocks.
pub(crate) fn show(file: &dyn DiskFile, path: &str) -> Result<(), StoreError> {
    if planted::on(Bug::PhantomPages) {
        return file.sync_data().map_err(StoreError::io("cannot flush", path));
    }
    let what = "cannot make the host read from the disk again";
    file.drop_cached().map_err(StoreError::io(what, path))?;
    write_end_again(file).and_then(|()| file.sync_data()).map_err(StoreError::io(what, path))
}

/// The size is no page that could be dropped: the host may know a longer file than the disk has, and see no
/// need to flush that as long as nothing is written. A byte that is written anew takes the size along.
fn write_end_again(file: &dyn DiskFile) -> std::io::Result<()> {
    let mut last = [0];
    match file.stat()?.len.checked_sub(1) {
        Some(at) if file.read_at(&mut last, at)? == 1 => file.write_at(&last, at),
        _ => Ok(()),
    }
}

/// The same by path; false if there is no such file.
pub(crate) fn show_path(world: &World, path: &str) -> Result<bool, StoreError> {
    match world.disk.open(path, OpenMode::WRITE) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        other => {
            let file = other.map_err(StoreError::io("cannot open", path))?;
            show(&*file, path)?;
            Ok(true)
        }
    }
}
