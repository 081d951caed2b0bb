//! Reading and writing one file, as IOR does it.

use super::{Meter, Wrong, barrier};
use crate::layout::Shuffle;
use crate::link::{DataOrder, Link, Report};
use crate::pattern;
use anyhow::{Context, Result, bail};
use world::sys::load::{Buffer, LoadFile, OpenHow, monotonic_ns};

pub fn run(o: &DataOrder, link: &mut dyn Link) -> Result<Option<Report>> {
    let len = usize::try_from(o.layout.transfer).context("transfer size")?;
    let mut buf = Buffer::new(len);
    pattern::fill(&mut buf, o.key, o.base + o.layout.offset(o.rank, 0));
    let all = o.layout.transfers();
    let shuffle = o.shuffle.map(|seed| Shuffle::new(all, seed));
    let place =
        |n: u64| o.base + o.layout.offset(o.rank, shuffle.map_or_else(|| o.walk.at(n, all), |s| s.at(n)));
    let name = o.path.display();
    if !barrier(link) {
        return Ok(None);
    }
    let start = monotonic_ns();
    let how = OpenHow { write: o.write, create: o.write, direct: o.direct };
    let file = LoadFile::open(&o.path, how).with_context(|| format!("open '{name}'{}", hint(o)))?;
    let opened = monotonic_ns();
    let mut meter = Meter::new();
    let mut wrong = Wrong::default();
    meter.phase(link, &o.pace, opened, &mut |n| {
        let at = place(n);
        if o.write && !o.walk.reads(n) {
            if o.verify {
                pattern::fill(&mut buf, o.key, at);
            }
            file.write_at(&buf, at).with_context(|| format!("write '{name}' at {at}{}", hint(o)))?;
            if o.fsync_each {
                file.fsync().with_context(|| format!("fsync '{name}'"))?;
            }
        } else {
            let got =
                file.read_at(&mut buf, at).with_context(|| format!("read '{name}' at {at}{}", hint(o)))?;
            if got < len {
                bail!("'{name}' ends at {}: it was written with fewer or smaller blocks", at + got as u64);
            }
            let bad = if o.verify { pattern::first_difference(&buf, o.key, at) } else { None };
            if let Some((pos, want, found)) = bad {
                wrong.add(|| format!("'{name}' at {pos}: {found:#04x} where {want:#04x} was written"));
            }
        }
        Ok(o.layout.transfer)
    })?;
    if o.write && o.fsync {
        file.fsync().with_context(|| format!("fsync '{name}'"))?;
    }
    let moved = monotonic_ns();
    file.close().with_context(|| format!("close '{name}'"))?;
    let end = monotonic_ns();
    let (wrong, first_wrong) = (wrong.count, wrong.first);
    Ok(Some(Report { start, opened, moved, end, wrong, first_wrong, ..meter.report() }))
}

fn hint(o: &DataOrder) -> &'static str {
    if o.direct { " (O_DIRECT wants transfers of whole blocks)" } else { "" }
}
