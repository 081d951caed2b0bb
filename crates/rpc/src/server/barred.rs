//! Requests that ended a server: noted in the target's folder before the process ends, refused after the
//! restart. Their clients send them again, as they send anything again that was not answered, and would end
//! every start for ever.

use super::{ClientId, Incoming};
use bytes::Bytes;
use model::mutex::{Mutex, MutexGuard};
use wire::frame::crc32c;
use world::{OpenMode, World};

/// The file in the target's folder: a line for each request.
const FILE: &str = "barred";
/// First word of a line; lines of other versions are passed over. `docs/formats/superblock.md`.
const LINE_VERSION: &str = "1";
/// Requests remembered; the oldest gives way.
const NOTES_MAX: usize = 64;
/// Longest file that is read.
const FILE_MAX_BYTES: u64 = 64 << 10;

/// What is known again of a request: whose it was, and what it said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    client: ClientId,
    op: u16,
    /// crc32c of the message, without its context.
    sum: u32,
    /// Of the message and its bulk.
    bytes: u64,
}

/// A request while it is executed.
pub(super) struct Culprit {
    client: ClientId,
    op: u16,
    body: Bytes,
    bulk: usize,
}

impl Culprit {
    pub fn of(r: &Incoming) -> Culprit {
        Culprit { client: r.from.client, op: r.op as u16, body: r.body.clone(), bulk: r.bulk.len() }
    }

    fn note(&self) -> Note {
        let bytes = (self.body.len() as u64).saturating_add(self.bulk as u64);
        Note { client: self.client, op: self.op, sum: crc32c(&self.body), bytes }
    }
}

impl Note {
    fn line(&self) -> String {
        let client: String = self.client.0.iter().map(|b| format!("{b:02x}")).collect();
        format!("{LINE_VERSION} {client} {} {:08x} {}\n", self.op, self.sum, self.bytes)
    }

    /// `None` for a line that is none: the power may have failed while it was written.
    fn parse(line: &str) -> Option<Note> {
        let mut words = line.split_ascii_whitespace();
        words.next().filter(|v| *v == LINE_VERSION)?;
        let (client, op, sum, bytes) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let client = u128::from_str_radix(client, 16).ok().filter(|_| client.len() == 32)?;
        let sum = u32::from_str_radix(sum, 16).ok()?;
        Some(Note {
            client: ClientId(client.to_be_bytes()),
            op: op.parse().ok()?,
            sum,
            bytes: bytes.parse().ok()?,
        })
    }
}

/// The notes of one target.
pub(super) struct Barred {
    world: World,
    /// The target's folder; without one nothing outlasts the process.
    folder: Option<String>,
    notes: Mutex<Vec<Note>>,
}

impl Barred {
    /// Those of earlier lives.
    pub fn load(world: &World, folder: Option<String>) -> Barred {
        let notes = folder.as_ref().map(|dir| read(world, &format!("{dir}/{FILE}"))).unwrap_or_default();
        let label = folder.as_deref().unwrap_or_default();
        for n in &notes {
            tracing::warn!(
                "{label}: a request of client {} (opcode {}) ended this server before",
                n.client,
                n.op
            );
        }
        Barred { world: world.clone(), folder, notes: Mutex::new(notes) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Note>> {
        // What is in it is right at any moment; and this is needed most when something panicked.
        self.notes.lock_whole()
    }

    /// Whether this very request ended the server before.
    pub fn bars(&self, r: &Incoming) -> bool {
        let g = self.lock();
        if !g.iter().any(|n| n.client == r.from.client) {
            return false;
        }
        let note = Culprit::of(r).note();
        g.contains(&note)
    }

    /// Notes the request, durably. Called while the process ends.
    pub fn add(&self, c: &Culprit) {
        let mut g = self.lock();
        let note = c.note();
        if g.contains(&note) {
            return;
        }
        if g.len() >= NOTES_MAX {
            g.remove(0);
        }
        g.push(note);
        let text: String = g.iter().map(Note::line).collect();
        let Some(dir) = &self.folder else { return };
        if let Err(e) = self.write(dir, text.as_bytes()) {
            tracing::error!("{dir}: cannot note the request that panicked: {e}");
        }
    }

    fn write(&self, dir: &str, text: &[u8]) -> std::io::Result<()> {
        let (path, new) = (format!("{dir}/{FILE}"), format!("{dir}/{FILE}.new"));
        let mode = OpenMode { truncate: true, ..OpenMode::CREATE };
        let f = self.world.disk.open(&new, mode)?;
        f.write_at(text, 0)?;
        f.sync_data()?;
        self.world.disk.rename(&new, &path)?;
        self.world.disk.sync_dir(dir)
    }
}

fn read(world: &World, path: &str) -> Vec<Note> {
    let bytes = || {
        let f = world.disk.open(path, OpenMode::READ)?;
        let mut b = vec![0; f.stat()?.len.min(FILE_MAX_BYTES) as usize];
        let n = f.read_at(&mut b, 0)?;
        b.truncate(n);
        Ok(b)
    };
    match bytes() {
        Ok(b) => String::from_utf8_lossy(&b).lines().filter_map(Note::parse).take(NOTES_MAX).collect(),
        Err(e) => {
            let e: std::io::Error = e;
            if e.kind() != std::io::ErrorKind::NotFound {
                tracing::error!("{path}: which requests ended this server before is not known: {e}");
            }
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_go_there_and_back_and_torn_lines_are_none() {
        let n = Note { client: ClientId([0x0a; 16]), op: 81, sum: 0xdead, bytes: u64::MAX };
        let line = n.line();
        assert_eq!(Note::parse(&line), Some(n));
        for bad in
            ["", "1 0a 81 00 7", "zz", &line[..40], &line.replace("81", "x"), &line.replacen('1', "2", 1)]
        {
            assert_eq!(Note::parse(bad), None, "{bad}");
        }
    }
}
