//! The widest file there may be: 2,000 stripes, over few OSTs.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use tests::cluster::{TestFs, run_within, tool};

/// Thousands of objects are asked, on a machine that others use as well.
const LIMIT: Duration = Duration::from_secs(180);
const MOST: usize = 2000;
const UNIT: u64 = 65536;

fn lfs(args: &[&str], dir: &Path) -> Result<String> {
    let o = run_within(tool("lfs").args(args).current_dir(dir), LIMIT)?;
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    ensure!(o.status.success(), "lfs {args:?}: {}\n{}{}", o.status, text(&o.stdout), text(&o.stderr));
    Ok(text(&o.stdout))
}

/// `lfs` fails with this errno, and says why.
fn refused(args: &[&str], dir: &Path, errno: i32, words: &str) -> Result<()> {
    let o = run_within(tool("lfs").args(args).current_dir(dir), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(o.status.code() == Some(errno) && said.contains(words), "lfs {args:?}: {} {said}", o.status);
    Ok(())
}

fn has_stripes(file: &str, dir: &Path, want: usize) -> Result<()> {
    let got = lfs(&["getstripe", "-c", file], dir)?;
    ensure!(got.trim() == want.to_string(), "{file} has {got} stripes, not {want}");
    Ok(())
}

/// What stripe `n` of the file has, and where.
fn part(n: u64) -> (u64, Vec<u8>) {
    (n * UNIT + n, vec![(n % 251) as u8 + 1; 100])
}

/// Both mounts have what both wrote.
fn is_as_written(a: &Path, b: &Path) -> Result<()> {
    for (dir, step) in [(a, 7), (b, 11)] {
        let f = File::open(dir.join("f"))?;
        ensure!(f.metadata()?.len() == MOST as u64 * UNIT, "{} bytes", f.metadata()?.len());
        for n in (0..MOST as u64).step_by(step) {
            let (at, want) = part(n);
            let mut got = vec![9; 102];
            // A byte before and one behind are holes, but before the first.
            let before = u64::from(n > 0);
            f.read_exact_at(&mut got, at - before)?;
            let zeros = got[..before as usize].iter().all(|b| *b == 0);
            let got = &got[before as usize..][..100];
            ensure!(zeros && got == want, "stripe {n} differs at {}", dir.display());
        }
    }
    Ok(())
}

/// All forms of output name all objects.
fn shown(dir: &Path) -> Result<()> {
    let plain = lfs(&["getstripe", "f"], dir)?;
    let rows =
        |text: &str| text.lines().filter(|l| l.trim().starts_with(|c: char| c.is_ascii_digit())).count();
    ensure!(rows(&plain) == MOST, "{} rows", rows(&plain));
    ensure!(rows(&lfs(&["getstripe", "-v", "f"], dir)?) == MOST, "-v has them all");
    ensure!(rows(&lfs(&["getstripe", "-q", "f"], dir)?) == MOST, "-q has them all");
    ensure!(rows(&lfs(&["getstripe", "-r", "f"], dir)?) == MOST, "-r has them all");
    let yaml = lfs(&["getstripe", "-y", "f"], dir)?;
    ensure!(yaml.matches("l_fid:").count() == MOST, "-y has them all");
    let json: Value = serde_json::from_str(&lfs(&["getstripe", "--json", "f"], dir)?)?;
    let objects = json[0]["components"][0]["objects"].as_array().context("--json names no objects")?;
    ensure!(objects.len() == MOST, "--json has {}", objects.len());
    fs::write(dir.join("f.yaml"), yaml)?;
    lfs(&["setstripe", "--yaml", "f.yaml", "by_yaml"], dir)?;
    lfs(&["setstripe", "--copy", "f", "by_copy"], dir)?;
    for f in ["by_yaml", "by_copy"] {
        has_stripes(f, dir, MOST)?;
    }
    for how in [&["-c", "+1999"][..], &["-c", "2000"], &["-O", "1"]] {
        let found = lfs(&[&["find", ".", "-size", "+1M"], how].concat(), dir)?;
        ensure!(found == "./f\n", "{how:?} finds {found}");
    }
    Ok(())
}

fn refusals(dir: &Path) -> Result<()> {
    refused(&["setstripe", "-C", "2001", "none"], dir, 34, "'2001'")?;
    refused(&["setstripe", "-c", "2001", "none"], dir, 34, "'2001'")?;
    refused(&["setstripe", "-C", "-33", "none"], dir, 34, "'-33'")?;
    refused(&["migrate", "-C", "2001", "f"], dir, 34, "'2001'")?;
    ensure!(!dir.join("none").exists(), "what was refused is not made");
    // So many OSTs there are not: without -C a file has one object on each.
    lfs(&["setstripe", "-c", "2000", "narrow"], dir)?;
    has_stripes("narrow", dir, 4)?;
    lfs(&["setstripe", "-C", "-32", "each"], dir)?;
    has_stripes("each", dir, 128)
}

#[test]
fn a_file_of_two_thousand_stripes_is_written_shown_moved_swapped_and_gone() -> Result<()> {
    let f = TestFs::up("wide", 4, 2)?;
    let (a, b) = (f.mount(0), f.mount(1));
    lfs(&["setstripe", "-C", "2000", "-S", "64k", "f"], a)?;
    let open = |dir: &Path| File::options().write(true).open(dir.join("f"));
    let writers = [open(a)?, open(b)?];
    for n in 0..MOST as u64 {
        let (at, bytes) = part(n);
        writers[n as usize % 2].write_all_at(&bytes, at)?;
    }
    writers[0].set_len(MOST as u64 * UNIT)?;
    is_as_written(a, b)?;
    shown(a)?;
    refusals(a)?;

    lfs(&["migrate", "-c", "1", "f"], a)?;
    has_stripes("f", b, 1)?;
    is_as_written(a, b)?;
    lfs(&["migrate", "-C", "2000", "-S", "64k", "f"], b)?;
    has_stripes("f", a, MOST)?;
    is_as_written(a, b)?;
    lfs(&["migrate", "-C", "1999", "-S", "128k", "f"], a)?;
    has_stripes("f", b, MOST - 1)?;
    is_as_written(a, b)?;
    lfs(&["swap_layouts", "f", "by_copy"], a)?;
    ensure!(fs::metadata(b.join("f"))?.len() == 0, "the other had nothing");
    fs::rename(a.join("by_copy"), a.join("f"))?;
    is_as_written(a, b)?;

    drop(writers);
    for name in ["f", "by_yaml", "f.yaml", "narrow", "each"] {
        fs::remove_file(b.join(name))?;
    }
    // An object that is left has no file: the check says so.
    f.fsck()
}
