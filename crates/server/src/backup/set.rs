//! A backup's folder: generations, each with what changed since the one before, in parts with checksums. Byte
//! table: `docs/formats/backup.md`.

use model::hex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::format::Superblock;
use wire::frame::crc32c;
use world::{DiskFile, OpenMode, World};

pub const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"NACREBK1";
/// A part is begun anew when it has so many bytes.
const PART_BYTES: usize = 8 << 20;
/// Of a value that is not there: the key was deleted since the generation before.
const DELETED: u32 = u32::MAX;
/// Generations of one backup.
pub const GENERATIONS_MAX: u32 = 1000;
const MANIFEST: &str = "manifest";
const STATE: &str = "state";
const PARTIAL: &str = ".partial";
const LABEL: &str = "label";
/// Of a manifest: so large is none.
const MANIFEST_MAX_BYTES: u64 = 64 << 20;

/// Key, and its value; `None`: deleted.
pub type Change = (Vec<u8>, Option<Vec<u8>>);
/// Key and value.
pub type Pair = (Vec<u8>, Vec<u8>);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    pub bytes: u64,
    pub crc: u32,
    pub pairs: u64,
    /// Its last key, in hexadecimal digits.
    pub last: String,
}

/// What a generation is of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// `scratch-MDT0000`.
    pub target: String,
    pub uuid: String,
    /// `mdt`, `mgt`, `ost-labels`.
    pub kind: String,
    /// Start of the target, and its last transaction that is in it.
    pub epoch: u32,
    pub lsn: u64,
    /// Seconds since 1970.
    pub taken: i64,
    /// The target was stopped.
    pub stopped: bool,
    /// Of a served one: nothing was modified, and all mounts had told what they had done.
    pub barrier: bool,
    pub generation: u32,
    /// Checksum of the manifest before.
    pub follows: Option<u32>,
    /// Of the server that keeps the moment, while it is being copied.
    pub view: Option<u64>,
    pub tables: BTreeMap<String, Vec<Part>>,
}

impl Manifest {
    pub fn pairs(&self) -> u64 {
        self.tables.values().flatten().map(|p| p.pairs).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.tables.values().flatten().map(|p| p.bytes).sum()
    }
}

/// One that is complete.
#[derive(Clone, Debug)]
pub struct Generation {
    pub manifest: Manifest,
    pub crc: u32,
    dir: String,
}

pub struct Set {
    world: World,
    pub dir: String,
}

pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let at = |i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok();
    text.len().is_multiple_of(2).then(|| (0..text.len()).step_by(2).map(at).collect())?
}

fn said<T>(what: &str, path: &str, r: std::io::Result<T>) -> Result<T, String> {
    r.map_err(|e| format!("cannot {what} '{path}': {e}"))
}

impl Set {
    /// The folder is made if it is not there.
    pub fn open(world: &World, dir: &str, make: bool) -> Result<Set, String> {
        let there = said("look at", dir, world.disk.exists(dir))?;
        if !there && !make {
            return Err(format!("there is no backup in '{dir}'"));
        }
        if !there {
            said("make", dir, world.disk.mkdir(dir))?;
        }
        Ok(Set { world: world.clone(), dir: dir.to_string() })
    }

    fn path(&self, number: u32, partial: bool) -> String {
        format!("{}/{number:04}{}", self.dir, if partial { PARTIAL } else { "" })
    }

    /// Those that are complete, oldest first. Refused if one is missing or its manifest is damaged.
    pub fn generations(&self) -> Result<Vec<Generation>, String> {
        let mut all: Vec<Generation> = Vec::new();
        let mut numbers: Vec<u32> = said("list", &self.dir, self.world.disk.list(&self.dir))?
            .iter()
            .filter_map(|n| (n.len() == 4).then(|| n.parse().ok())?)
            .collect();
        numbers.sort_unstable();
        for (i, n) in numbers.into_iter().enumerate() {
            let dir = self.path(n, false);
            if n as usize != i {
                return Err(format!("generation {i:04} is missing in '{}'", self.dir));
            }
            let (manifest, crc) = self.manifest(&format!("{dir}/{MANIFEST}"))?;
            let before = all.last();
            if manifest.generation != n || manifest.follows != before.map(|g| g.crc) {
                return Err(format!("'{dir}/{MANIFEST}' does not follow the generation before it"));
            }
            if before.is_some_and(|b| b.manifest.uuid != manifest.uuid) {
                return Err(format!("'{dir}' is of another target than the generation before it"));
            }
            all.push(Generation { manifest, crc, dir });
        }
        Ok(all)
    }

    /// A manifest as it is stored, and its checksum.
    fn manifest(&self, path: &str) -> Result<(Manifest, u32), String> {
        let bytes = self.whole(path, MANIFEST_MAX_BYTES)?;
        let text = String::from_utf8(bytes).map_err(|_| format!("'{path}' is damaged: it is no text"))?;
        let (body, sum) = text
            .trim_end()
            .rsplit_once("\ncrc32c ")
            .ok_or_else(|| format!("'{path}' is damaged: it has no checksum"))?;
        let crc = crc32c(body.as_bytes());
        if u32::from_str_radix(sum, 16) != Ok(crc) {
            return Err(format!("'{path}' is damaged: its checksum differs"));
        }
        let m: Manifest = serde_json::from_str(body).map_err(|e| format!("'{path}' cannot be read: {e}"))?;
        if m.format != FORMAT {
            return Err(format!("'{path}' has format {}, this Nacre knows {FORMAT}", m.format));
        }
        Ok((m, crc))
    }

    fn whole(&self, path: &str, max: u64) -> Result<Vec<u8>, String> {
        let f = said("open", path, self.world.disk.open(path, OpenMode::READ))?;
        let len = said("look at", path, f.stat())?.len;
        if len > max {
            return Err(format!("'{path}' is damaged: it has {len} bytes"));
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let n = said("read", path, f.read_at(&mut bytes, 0))?;
        bytes.truncate(n);
        Ok(bytes)
    }

    /// Written whole or not at all.
    fn replace(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        let new = format!("{path}.new");
        let mode = OpenMode { truncate: true, ..OpenMode::CREATE };
        let f = said("make", &new, self.world.disk.open(&new, mode))?;
        self.fill(&*f, &new, bytes)?;
        said("rename", &new, self.world.disk.rename(&new, path))
    }

    fn fill(&self, f: &dyn DiskFile, path: &str, bytes: &[u8]) -> Result<(), String> {
        said("write", path, f.write_at(bytes, 0))?;
        said("flush", path, f.sync_data())
    }

    /// What an interrupted run left of generation `number`.
    pub fn partial(&self, number: u32) -> Option<Manifest> {
        self.manifest(&format!("{}/{STATE}", self.path(number, true))).ok().map(|(m, _)| m)
    }

    /// Takes away what an interrupted run left.
    pub fn drop_partial(&self, number: u32) -> Result<(), String> {
        let dir = self.path(number, true);
        if !said("look at", &dir, self.world.disk.exists(&dir))? {
            return Ok(());
        }
        for sub in [format!("{dir}/{LABEL}"), dir.clone()] {
            if !said("look at", &sub, self.world.disk.exists(&sub))? {
                continue;
            }
            for n in said("list", &sub, self.world.disk.list(&sub))? {
                if sub == dir && n == LABEL {
                    continue;
                }
                said("remove", &n, self.world.disk.unlink(&format!("{sub}/{n}")))?;
            }
            said("remove", &sub, self.world.disk.rmdir(&sub))?;
        }
        Ok(())
    }

    /// A generation that is begun, or gone on with.
    pub fn begin(&self, m: Manifest, sb: &Superblock) -> Result<Writer<'_>, String> {
        assert!(m.generation < GENERATIONS_MAX, "checked by who asks for one");
        let dir = self.path(m.generation, true);
        let label = format!("{dir}/{LABEL}");
        for d in [&dir, &label] {
            if !said("look at", d, self.world.disk.exists(d))? {
                said("make", d, self.world.disk.mkdir(d))?;
            }
        }
        sb.write(&self.world, &label).map_err(|e| e.to_string())?;
        let w =
            Writer { set: self, dir, m, table: String::new(), part: Vec::new(), pairs: 0, last: Vec::new() };
        w.save()?;
        Ok(w)
    }
}

impl Generation {
    /// Who the target was.
    pub fn label(&self, set: &Set) -> Result<Superblock, String> {
        Superblock::read(&set.world, &format!("{}/{LABEL}", self.dir)).map_err(|e| e.to_string())
    }

    fn stream<'a>(&'a self, set: &'a Set, table: &str) -> Stream<'a> {
        let parts = self.manifest.tables.get(table).map_or(&[][..], |p| p);
        Stream { set, dir: &self.dir, parts, pairs: VecDeque::new() }
    }

    /// Reads all parts; what is wrong with each, in words.
    pub fn damage(&self, set: &Set) -> Vec<String> {
        let mut bad = Vec::new();
        for p in self.manifest.tables.values().flatten() {
            if let Err(e) = read_part(set, &self.dir, p) {
                bad.push(e);
            }
        }
        if let Err(e) = self.label(set) {
            bad.push(e);
        }
        bad
    }
}

/// Writes one generation.
pub struct Writer<'a> {
    set: &'a Set,
    dir: String,
    m: Manifest,
    table: String,
    part: Vec<u8>,
    pairs: u64,
    last: Vec<u8>,
}

impl Writer<'_> {
    fn save(&self) -> Result<(), String> {
        self.set.replace(&format!("{}/{STATE}", self.dir), &encoded(&self.m))
    }

    pub fn manifest(&self) -> &Manifest {
        &self.m
    }

    /// What follows is of this table; the key behind which it goes on.
    pub fn table(&mut self, name: &str) -> Result<Option<Vec<u8>>, String> {
        self.flush()?;
        self.table = name.to_string();
        let parts = self.m.tables.entry(name.to_string()).or_default();
        Ok(parts.last().and_then(|p| unhex(&p.last)))
    }

    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        assert!(self.last.is_empty() || self.part.is_empty() || *self.last < *key, "keys come in order");
        if self.part.is_empty() {
            self.part.extend_from_slice(&MAGIC);
        }
        let length = |n: usize| u32::try_from(n).ok().filter(|n| *n != DELETED).ok_or("a pair is too long");
        self.part.extend_from_slice(&length(key.len())?.to_le_bytes());
        let bytes = value.map_or(Ok(DELETED), |v| length(v.len()))?;
        self.part.extend_from_slice(&bytes.to_le_bytes());
        self.part.extend_from_slice(key);
        self.part.extend_from_slice(value.unwrap_or_default());
        self.pairs += 1;
        self.last = key.to_vec();
        if self.part.len() >= PART_BYTES { self.flush() } else { Ok(()) }
    }

    /// What was pushed stands on the disk.
    fn flush(&mut self) -> Result<(), String> {
        if self.part.is_empty() {
            return Ok(());
        }
        let parts = self.m.tables.entry(self.table.clone()).or_default();
        let name = format!("{}-{:06}", self.table, parts.len());
        let path = format!("{}/{name}", self.dir);
        let (bytes, crc) = (self.part.len() as u64, crc32c(&self.part));
        let part = Part { name, bytes, crc, pairs: self.pairs, last: hex(&self.last) };
        let mode = OpenMode { truncate: true, ..OpenMode::CREATE };
        let f: Arc<dyn DiskFile> = said("make", &path, self.set.world.disk.open(&path, mode))?;
        self.set.fill(&*f, &path, &self.part)?;
        parts.push(part);
        self.part.clear();
        self.pairs = 0;
        self.last.clear();
        self.save()
    }

    /// It is complete from now on.
    pub fn finish(mut self) -> Result<Manifest, String> {
        self.flush()?;
        assert!(self.part.is_empty() && self.pairs == 0, "all that was pushed stands in parts");
        self.m.view = None;
        let disk = &self.set.world.disk;
        let state = format!("{}/{STATE}", self.dir);
        self.set.replace(&format!("{}/{MANIFEST}", self.dir), &encoded(&self.m))?;
        said("remove", &state, disk.unlink(&state))?;
        said("flush", &self.dir, disk.sync_dir(&self.dir))?;
        let done = self.set.path(self.m.generation, false);
        said("rename", &self.dir, disk.rename(&self.dir, &done))?;
        said("flush", &self.set.dir, disk.sync_dir(&self.set.dir))?;
        Ok(self.m)
    }
}

fn encoded(m: &Manifest) -> Vec<u8> {
    let body = serde_json::to_string_pretty(m).expect("plain data encodes");
    format!("{body}\ncrc32c {:08x}\n", crc32c(body.as_bytes())).into_bytes()
}

/// One part's pairs, in order.
fn read_part(set: &Set, dir: &str, p: &Part) -> Result<VecDeque<Change>, String> {
    let path = format!("{dir}/{}", p.name);
    let damaged = |why: &str| format!("part '{path}' is damaged: {why}");
    let bytes = set.whole(&path, p.bytes.max(1) * 2)?;
    if bytes.len() as u64 != p.bytes {
        return Err(damaged(&format!("it has {} bytes instead of {}", bytes.len(), p.bytes)));
    }
    if crc32c(&bytes) != p.crc {
        return Err(damaged("its checksum differs"));
    }
    let mut rest = bytes.strip_prefix(&MAGIC).ok_or_else(|| damaged("it begins with something else"))?;
    let mut out = VecDeque::new();
    let mut take = |n: usize| -> Option<&[u8]> {
        let (now, later) = rest.split_at_checked(n)?;
        rest = later;
        Some(now)
    };
    for _ in 0..p.pairs {
        let mut one = || -> Option<Change> {
            let key = u32::from_le_bytes(take(4)?.try_into().ok()?);
            let value = u32::from_le_bytes(take(4)?.try_into().ok()?);
            let key = take(key as usize)?.to_vec();
            let value = if value == DELETED { None } else { Some(take(value as usize)?.to_vec()) };
            Some((key, value))
        };
        out.push_back(one().ok_or_else(|| damaged("it is cut short"))?);
    }
    Ok(out)
}

/// The pairs of one generation.
struct Stream<'a> {
    set: &'a Set,
    dir: &'a str,
    parts: &'a [Part],
    pairs: VecDeque<Change>,
}

impl Stream<'_> {
    /// Passes over what is not behind a key.
    fn pass(&mut self, key: &[u8]) -> Result<(), String> {
        let whole = self.parts.partition_point(|p| unhex(&p.last).is_some_and(|last| *last <= *key));
        self.parts = &self.parts[whole..];
        self.fill()?;
        self.pairs.drain(..self.pairs.partition_point(|(k, _)| **k <= *key));
        Ok(())
    }

    fn fill(&mut self) -> Result<(), String> {
        while self.pairs.is_empty() {
            let Some((next, rest)) = self.parts.split_first() else { return Ok(()) };
            self.pairs = read_part(self.set, self.dir, next)?;
            self.parts = rest;
        }
        Ok(())
    }
}

/// What a table held at a generation: of each key what the newest one says that says anything.
pub struct Merged<'a>(Vec<Stream<'a>>);

impl<'a> Merged<'a> {
    /// Of these generations, the oldest first; what is behind a key, if one is given.
    pub fn of(
        set: &'a Set,
        generations: &'a [Generation],
        table: &str,
        after: Option<&[u8]>,
    ) -> Result<Merged<'a>, String> {
        let mut all: Vec<Stream<'a>> = generations.iter().map(|g| g.stream(set, table)).collect();
        if let Some(key) = after {
            all.iter_mut().try_for_each(|s| s.pass(key))?;
        }
        Ok(Merged(all))
    }

    /// The next pair in order. The error names the part that cannot be read.
    pub fn next(&mut self) -> Result<Option<Pair>, String> {
        loop {
            self.0.iter_mut().try_for_each(Stream::fill)?;
            let least = self.0.iter().filter_map(|s| s.pairs.front()).map(|(k, _)| k).min();
            let Some(key) = least.cloned() else { return Ok(None) };
            assert!(!key.is_empty(), "keys begin with their tag");
            let mut newest = None;
            for s in &mut self.0 {
                if s.pairs.front().is_some_and(|(k, _)| *k == key) {
                    newest = s.pairs.pop_front();
                }
            }
            if let Some((k, Some(v))) = newest {
                return Ok(Some((k, v)));
            }
        }
    }
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
