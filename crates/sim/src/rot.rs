//! Bit rot: the disk changes a bit of an object at rest. Readers get an error that names the block, never
//! wrong bytes, and scrubbing finds that block and no other.

use crate::cluster::Cluster;
use crate::run::Violation;
use store::StoreError;
use store::object::scrub::Cursor;
use world::rng::Rng;

/// Objects of each OST that are hit.
const HITS: usize = 3;
const BLOCK: u64 = 4096;

/// Flips bits, one after the other, and turns each back.
pub async fn strike(c: &Cluster, rng: &mut Rng) -> Result<(), Violation> {
    for ost in 0..c.servers.len() - 1 {
        let objects = c.objects(ost).ok_or_else(|| format!("OST {ost} is down"))?;
        let disk = c.servers[ost + 1].node().disk();
        let said = |what: &str, e: StoreError| format!("OST {ost}: {what}: {e}");
        let all = objects.list(None, 500).map_err(|e| said("objects cannot be listed", e))?;
        let sized: Vec<_> = all.into_iter().filter(|(.., a)| a.size > 0).collect();
        for _ in 0..HITS.min(sized.len()) {
            let (id, file, attr) = sized[rng.index(sized.len())];
            let at = rng.below(attr.size);
            let Some((path, pos)) = objects.place(id, at).map_err(|e| said("object", e))? else { continue };
            let start = at / BLOCK * BLOCK;
            let before =
                objects.read(id, start, BLOCK as u32).await.map_err(|e| said("before bit rot", e))?;
            let mask = 1 << rng.below(8);
            disk.corrupt(&path, pos, mask).map_err(|e| format!("OST {ost}: '{path}': {e}"))?;
            let after = objects.read(id, start, BLOCK as u32).await;
            let hit = match after {
                // A hole has no bits.
                Ok(f) if f.data == before.data => false,
                Ok(_) => {
                    return Err(format!(
                        "OST {ost}: object {id} of file {file}: a rotten bit at {at} was read"
                    ));
                }
                Err(StoreError::Checksum { object, offset, .. }) if object == id && offset == start => true,
                Err(e) => return Err(said("a rotten bit is blamed on something else", e)),
            };
            if hit {
                c.sim.count("bit_rot");
                let (mut next, mut bad) = (Some(Cursor::default()), Vec::new());
                while let Some(cursor) = next {
                    let s = objects.scrub(cursor, 1 << 20).await.map_err(|e| said("scrub", e))?;
                    bad.extend(s.bad.into_iter().map(|b| (b.object, b.offset)));
                    next = s.next;
                }
                if bad != [(id, start)] {
                    return Err(format!("OST {ost}: scrub finds {bad:?} instead of {id} at {start}"));
                }
            }
            disk.corrupt(&path, pos, mask).map_err(|e| format!("OST {ost}: '{path}': {e}"))?;
        }
    }
    Ok(())
}
