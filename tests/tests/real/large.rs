//! Files larger than any host's.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;
use tests::cluster::sh;
use tests::disks::OnDisks;

const LIMIT: Duration = Duration::from_secs(120);
const TIB: u64 = 1 << 40;
const MIB: u64 = 1 << 20;
/// Size of each disk.
const DISK: &str = "400m";
/// The last byte that a file may have lies before.
const MAX: u64 = i64::MAX as u64;

/// What is written at `at`: everywhere something else.
fn mark(at: u64) -> Vec<u8> {
    format!("{at:016x}").into_bytes().repeat(256)
}

fn has_marks(path: &Path, marks: &[u64]) -> Result<()> {
    let f = File::open(path)?;
    for &at in marks {
        let mut got = mark(0);
        f.read_exact_at(&mut got, at).with_context(|| format!("at {at:#x} of {}", path.display()))?;
        ensure!(got == mark(at), "{} differs at {at:#x}", path.display());
    }
    Ok(())
}

/// Where data begins, as lseek(2) finds it.
fn data_at(path: &Path) -> Result<Vec<u64>> {
    let f = File::open(path)?;
    let (mut at, mut out) = (0, Vec::new());
    while let Ok(data) = rustix::fs::seek(&f, rustix::fs::SeekFrom::Data(at)) {
        at = rustix::fs::seek(&f, rustix::fs::SeekFrom::Hole(data))?;
        ensure!(at > data, "no data at {data:#x}");
        out.push(data);
    }
    Ok(out)
}

#[test]
fn a_file_is_as_large_as_an_offset_can_say_and_only_its_data_takes_room_and_time() -> Result<()> {
    let d = OnDisks::up("large", 4, DISK)?;
    let (a, b) = (d.mount(0), d.mount(1));
    let last = MAX - mark(0).len() as u64;
    let marks = [0, 5 * TIB + 4096, 16 * TIB - 8192, 16 * TIB, 17 * TIB, 100 * TIB + 4096, 1 << 60, last];
    for (n, layout) in
        ["-c 4 -S 64k", "-c 1", "-C 16 -S 4194240k", "-E 1G -c 1 -E 16T -c 2 -E -1 -C 8"].iter().enumerate()
    {
        let (name, shown) = (format!("f{n}"), a.display());
        let (f, g) = (a.join(&name), b.join(&name));
        sh(&format!("PATH={}:$PATH; lfs setstripe {layout} {shown}/{name}", tools()), LIMIT)?;
        let file = File::options().write(true).open(&f)?;
        marks.iter().try_for_each(|&at| file.write_all_at(&mark(at), at))?;
        let beyond = file.write_all_at(b"beyond", MAX - 3).unwrap_err();
        ensure!(beyond.raw_os_error() == Some(22), "Linux itself refuses it: {beyond}");
        has_marks(&g, &marks).context(*layout)?;
        let m = fs::metadata(&g)?;
        ensure!(m.len() == MAX && m.blocks() * 512 < MIB, "{} bytes, {} blocks", m.len(), m.blocks());
        // Pages are what a host keeps: data may begin a little before what was written.
        let data = data_at(&g)?;
        ensure!(data.len() == marks.len(), "{layout}: data at {data:x?}");
        ensure!(sh(&format!("du --apparent-size -B1 {}", g.display()), LIMIT)?.starts_with(&MAX.to_string()));
        // A cut, and what grows behind it.
        file.set_len(17 * TIB + 100)?;
        ensure!(fs::metadata(&g)?.len() == 17 * TIB + 100, "{} bytes", fs::metadata(&g)?.len());
        file.set_len(17 * TIB)?;
        file.set_len(18 * TIB)?;
        let mut hole = [1; 100];
        File::open(&g)?.read_exact_at(&mut hole, 17 * TIB)?;
        ensure!(hole == [0; 100], "what was cut came back");
        file.write_all_at(&mark(17 * TIB), 17 * TIB)?;
        let here = shown.to_string();
        let sizes = sh(
            &format!(
                "PATH={}:$PATH; cd {here}; lfs find . -size +17T -name {name}; lfs find . -size -17T -name {name}",
                tools()
            ),
            LIMIT,
        )?;
        ensure!(sizes == format!("./{name}\n"), "{sizes}");
        // Copies read data only: otherwise this takes days.
        let copied =
            format!("cp {0} {0}.cp && nacre copy -q {0} {0}.nacre && lfs migrate -c 2 -S 1M {0}", name);
        sh(&format!("PATH={}:$PATH; cd {here}; {copied}", tools()), LIMIT).context(*layout)?;
        for copy in ["", ".cp", ".nacre"] {
            let copy = b.join(format!("{name}{copy}"));
            ensure!(fs::metadata(&copy)?.len() == 18 * TIB, "{}", copy.display());
            has_marks(&copy, &marks[..5])?;
        }
        drop(file);
        sh(&format!("rm {here}/{name}*"), LIMIT)?;
    }
    d.down()
}

/// Folder of the programs under test.
fn tools() -> String {
    tests::cluster::bin_dir().display().to_string()
}
