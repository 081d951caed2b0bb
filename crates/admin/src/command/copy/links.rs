//! Files with several names: the first name that is met is copied, the others become hard links to it.

use model::Map;
use model::mutex::Mutex;
use std::path::{Path, PathBuf};

/// Device and inode.
type Id = (u64, u64);

enum State<T> {
    /// Somebody copies it; these names wait.
    UnderWay(Vec<T>),
    /// Its copy, below DST, and how many names may still ask for it.
    Made(PathBuf, u64),
}

/// What a name of such a file has to do.
pub enum Claim<T> {
    /// Nobody has it: copy it, and say so with [`Links::made`] or [`Links::failed`].
    Copy(T),
    /// Make a link to this one.
    Link(T, PathBuf),
    /// It was put aside, until the copy is made.
    Wait,
}

/// Files of which names are still missing: memory grows with their number.
pub struct Links<T> {
    files: Mutex<Map<Id, State<T>>>,
}

impl<T> Default for Links<T> {
    fn default() -> Links<T> {
        Links { files: Mutex::default() }
    }
}

impl<T> Links<T> {
    pub fn claim(&self, id: Id, name: T) -> Claim<T> {
        let mut files = self.files.lock();
        let Some(state) = files.get_mut(&id) else {
            files.insert(id, State::UnderWay(Vec::new()));
            return Claim::Copy(name);
        };
        match state {
            State::UnderWay(waiting) => {
                waiting.push(name);
                Claim::Wait
            }
            State::Made(path, left) => {
                let path = path.clone();
                *left -= 1;
                if *left == 0 {
                    files.remove(&id);
                }
                Claim::Link(name, path)
            }
        }
    }

    /// The copy lies at `path`; `names` is how many the file has in all. Returns those that waited.
    pub fn made(&self, id: Id, path: &Path, names: u64) -> Vec<T> {
        let mut files = self.files.lock();
        let waiting = take_waiting(&mut files, id);
        let left = names.saturating_sub(1 + waiting.len() as u64);
        if left > 0 {
            files.insert(id, State::Made(path.to_path_buf(), left));
        }
        waiting
    }

    /// There is no copy. One of those that waited has to try anew.
    pub fn failed(&self, id: Id) -> Vec<T> {
        take_waiting(&mut self.files.lock(), id)
    }
}

fn take_waiting<T>(files: &mut Map<Id, State<T>>, id: Id) -> Vec<T> {
    match files.remove(&id) {
        Some(State::UnderWay(waiting)) => waiting,
        _ => unreachable!("who copies a file claimed it before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_copied_and_the_others_are_linked() {
        let links = Links::default();
        let id = (1, 2);
        assert!(matches!(links.claim(id, "a"), Claim::Copy("a")));
        assert!(matches!(links.claim(id, "b"), Claim::Wait));
        assert_eq!(links.failed(id), ["b"]);
        assert!(matches!(links.claim(id, "b"), Claim::Copy("b")));
        assert!(matches!(links.claim(id, "c"), Claim::Wait));
        assert_eq!(links.made(id, Path::new("b"), 3), ["c"]);
        assert!(matches!(links.claim(id, "a"), Claim::Link("a", p) if p == Path::new("b")));
        assert!(links.files.lock().is_empty());
    }

    #[test]
    fn a_file_is_forgotten_with_its_last_name() {
        let links = Links::default();
        let id = (1, 2);
        assert!(matches!(links.claim(id, 0), Claim::Copy(0)));
        assert!(links.made(id, Path::new("x"), 3).is_empty());
        assert!(matches!(links.claim(id, 1), Claim::Link(1, _)));
        assert!(matches!(links.claim(id, 2), Claim::Link(2, _)));
        assert!(links.files.lock().is_empty());
    }
}
