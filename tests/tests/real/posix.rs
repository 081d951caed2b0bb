//! POSIX conformance: pjdfstest and fsx.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{TestFs, kit, run_within, stripe_64k};
use tests::programs::fsx;

const FSX_LIMIT: Duration = Duration::from_secs(400);
const CONFIG: &str = r#"[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [ ["nobody", "nogroup"], ["games", "games"] ]
"#;

/// The number before a word in pjdfstest's closing line.
fn count(text: &str, word: &str) -> Result<u32> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().rposition(|w| w.trim_matches(|c: char| !c.is_alphabetic()) == word);
    let at = at.with_context(|| format!("no '{word}' in what pjdfstest printed"))?;
    let digits: String = words[at - 1].chars().filter(char::is_ascii_digit).collect();
    digits.parse().with_context(|| format!("no number before '{word}'"))
}

fn without_colours(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            for d in chars.by_ref() {
                if d.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[test]
fn pjdfstest_as_root() -> Result<()> {
    let fs = TestFs::up("pjd", 4, 1)?;
    let config = fs.scratch().join("pjdfstest.toml");
    std::fs::write(&config, CONFIG)?;
    let dir = fs.mount(0).join("pjd");
    std::fs::create_dir(&dir)?;
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777))?;
    let out = run_within(
        Command::new(kit("pjdfstest")).arg("-c").arg(&config).arg("-p").arg(&dir),
        Duration::from_secs(600),
    )?;
    let text = without_colours(&String::from_utf8_lossy(&out.stdout));
    let (passed, failed, skipped) =
        (count(&text, "passed")?, count(&text, "failed")?, count(&text, "skipped")?);
    println!("pjdfstest: {passed} passed, {failed} failed, {skipped} skipped");
    let failures: Vec<&str> = text.lines().filter(|l| l.to_lowercase().contains("fail")).collect();
    ensure!(failed == 0, "{failed} failed:\n{}", failures.join("\n"));
    ensure!(passed >= 382 && skipped <= 16, "{passed} passed, {skipped} skipped");
    std::fs::remove_dir_all(&dir)?;
    fs.fsck()
}

#[test]
fn fsx_two_seeds() -> Result<()> {
    let fs = TestFs::up("fsx", 4, 1)?;
    for (seed, stripes) in [(1, 1), (2, 3)] {
        let dir = fs.mount(0).join(format!("s{seed}"));
        std::fs::create_dir(&dir)?;
        stripe_64k(&dir, stripes)?;
        fsx(&dir.join("f"), seed, 20_000, None, fs.scratch(), FSX_LIMIT)?;
    }
    fs.fsck()
}

/// Files whose data lies with their inode: sizes on both sides of what has room there.
#[test]
fn fsx_on_small_files() -> Result<()> {
    let fs = TestFs::up("fsxdom", 4, 1)?;
    // A file that is mapped by a program that could store into it gets objects.
    let config = |flen: u32, maps: u32| -> Result<std::path::PathBuf> {
        let path = fs.scratch().join(format!("fsx{flen}.toml"));
        let weights = format!("[weights]\nmapread = {maps}\nmapwrite = {maps}\n");
        std::fs::write(&path, format!("flen = {flen}\n[opsize]\nmax = 16384\n{weights}"))?;
        Ok(path)
    };
    let layout = |f: &Path| {
        let all = tests::cluster::tool("lfs").args(["getstripe", "-L"]).arg(f).output();
        all.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string())
    };
    let f = fs.mount(0).join("small");
    fsx(&f, 3, 10_000, Some(&config(65_536, 0)?), fs.scratch(), FSX_LIMIT)?;
    ensure!(layout(&f)? == "mdt", "{} stays with its inode", f.display());
    for seed in 10..20 {
        let f = fs.mount(0).join(format!("f{seed}"));
        fsx(&f, seed, 400, Some(&config(90_000, 10)?), fs.scratch(), FSX_LIMIT)?;
    }
    ensure!(layout(&fs.mount(0).join("f10"))? == "raid0", "it grew");
    fs.fsck()
}
