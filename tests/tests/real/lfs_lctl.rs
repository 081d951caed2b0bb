//! Output shapes and exit codes of `lfs` and `lctl` that scripts of Lustre's users rely on.

use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tests::cluster::{TestFs, bin_dir, run_within, sh, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

fn run(program: &str, args: &[&str], dir: &Path) -> Result<Output> {
    run_within(tool(program).args(args).current_dir(dir), LIMIT)
}

fn text(b: &[u8]) -> String {
    String::from_utf8_lossy(b).into_owned()
}

/// Exit 0; what it printed.
fn ok(program: &str, args: &[&str], dir: &Path) -> Result<String> {
    let o = run(program, args, dir)?;
    ensure!(o.status.success(), "{program} {args:?}: {}\n{}{}", o.status, text(&o.stdout), text(&o.stderr));
    Ok(text(&o.stdout))
}

/// This exit status, these words on standard error.
fn fails(program: &str, args: &[&str], dir: &Path, code: i32, part: &str) -> Result<()> {
    let o = run(program, args, dir)?;
    let err = text(&o.stderr);
    ensure!(o.status.code() == Some(code), "{program} {args:?}: {} instead of {code}\n{err}", o.status);
    ensure!(err.contains(part), "{program} {args:?} does not say '{part}':\n{err}");
    ensure!(!err.contains("panicked"), "{err}");
    Ok(())
}

#[test]
fn layouts_are_set_shown_and_refused() -> Result<()> {
    let fs = TestFs::up("lfs", 4, 1)?;
    let m = fs.mount(0);
    ok("lfs", &["setstripe", "-c", "4", "-S", "1M", "-i", "2", "wide"], m)?;
    let shown = ok("lfs", &["getstripe", "wide"], m)?;
    let lines: Vec<&str> = shown.lines().collect();
    ensure!(
        lines[..6]
            == [
                "wide",
                "lmm_stripe_count:  4",
                "lmm_stripe_size:   1048576",
                "lmm_pattern:       raid0",
                "lmm_layout_gen:    0",
                "lmm_stripe_offset: 2"
            ],
        "{shown}"
    );
    ensure!(lines[6] == "\tobdidx\t\t objid\t\t objid\t\t group" && lines.len() == 12, "{shown}");
    let order: Vec<&str> = lines[7..11].iter().filter_map(|l| l.split_whitespace().next()).collect();
    ensure!(order == ["2", "3", "0", "1"], "OSTs in turn: {order:?}");
    for (option, value) in
        [("-c", "4"), ("-S", "1048576"), ("-i", "2"), ("-L", "raid0"), ("-m", "0"), ("-g", "0")]
    {
        ensure!(ok("lfs", &["getstripe", option, "wide"], m)?.trim() == value, "getstripe {option}");
    }
    ok("lfs", &["setstripe", "-o", "3,1", "listed"], m)?;
    ensure!(ok("lfs", &["getstripe", "-q", "listed"], m)?.lines().count() == 2, "two objects");
    // defaults of directories, inherited by new files and new directories
    std::fs::create_dir(m.join("d"))?;
    ok("lfs", &["setstripe", "-c", "2", "-S", "128k", "d"], m)?;
    let shown = ok("lfs", &["getstripe", "-d", "d"], m)?;
    ensure!(
        shown.contains("stripe_count:  2 stripe_size:   131072 pattern:       raid0 stripe_offset: -1"),
        "{shown}"
    );
    std::fs::create_dir(m.join("d/e"))?;
    std::fs::write(m.join("d/e/f"), b"x")?;
    ensure!(ok("lfs", &["getstripe", "-c", "d/e/f"], m)?.trim() == "2", "inherited over a directory");
    ok("lfs", &["setstripe", "-d", "d"], m)?;
    std::fs::write(m.join("d/g"), b"x")?;
    ensure!(ok("lfs", &["getstripe", "-L", "d/g"], m)?.trim() == "mdt", "back to the file system's default");
    ok("lfs", &["setstripe", "-c", "3", "."], m)?;
    std::fs::write(m.join("h"), b"x")?;
    ensure!(
        ok("lfs", &["getstripe", "-c", "h"], m)?.trim() == "3",
        "the root's default is the file system's"
    );
    refusals(m)
}

/// What a user of the default layout sees: data on the MDT, then an object.
#[test]
fn small_files_lie_on_the_mdt() -> Result<()> {
    let fs = TestFs::up("lfsdom", 4, 1)?;
    let m = fs.mount(0);
    std::fs::write(m.join("f"), vec![1; 65_536])?;
    let shown = ok("lfs", &["getstripe", "f"], m)?;
    let mdt = "    lcme_flags:          init\n    lcme_extent.e_start: 0\n    lcme_extent.e_end:   65536\n      \
               lmm_stripe_count:  0\n      lmm_stripe_size:   65536\n      lmm_pattern:       mdt\n";
    ensure!(shown.starts_with("f\n  lcm_layout_gen:    0\n") && shown.contains(mdt), "{shown}");
    let later = ok("lfs", &["getstripe", "--component-flags=^init", "-c", "-S", "-E", "f"], m)?;
    let values: Vec<&str> = later.split_whitespace().skip(2).step_by(2).collect();
    let grows_into = ["1", "4194304", "1073741824", "4", "4194304", "34359738368", "16", "4194304", "EOF"];
    ensure!(values == grows_into, "{later}");
    ensure!(ok("lfs", &["find", ".", "-L", "mdt"], m)?.trim() == "./f", "found by its layout");
    let mut f = std::fs::OpenOptions::new().append(true).open(m.join("f"))?;
    std::io::Write::write_all(&mut f, b"x")?;
    drop(f);
    for (option, value) in [("-c", "1"), ("-S", "4194304"), ("-L", "raid0"), ("-g", "1")] {
        ensure!(ok("lfs", &["getstripe", option, "f"], m)?.trim() == value, "getstripe {option}");
    }
    // asked for
    std::fs::create_dir(m.join("d"))?;
    ok("lfs", &["setstripe", "-E", "128k", "-L", "mdt", "-E", "-1", "-c", "2", "-S", "64k", "d"], m)?;
    let shown = ok("lfs", &["getstripe", "-d", "d"], m)?;
    ensure!(shown.contains("stripe_size:   131072 pattern:       mdt"), "{shown}");
    ensure!(shown.contains("stripe_count:  2 stripe_size:   65536 pattern:       raid0"), "{shown}");
    std::fs::write(m.join("d/f"), vec![1; 131_072])?;
    ensure!(ok("lfs", &["getstripe", "-L", "d/f"], m)?.trim() == "mdt", "128 KiB have room");
    std::fs::write(m.join("d/f"), vec![1; 131_073])?;
    ensure!(ok("lfs", &["getstripe", "-c", "d/f"], m)?.trim() == "2", "grown as the directory said");
    fails("lfs", &["setstripe", "-L", "mdt", "n"], m, 4, "-E SIZE -L mdt")?;
    // turned off
    ok("lctl", &["set_param", "mdt.*.dom_stripesize=0"], m)?;
    std::fs::write(m.join("g"), b"x")?;
    ensure!(ok("lfs", &["getstripe", "-c", "g"], m)?.trim() == "1", "an object at once");
    fs.fsck()
}

/// Files go to other objects while programs have them open, on this mount and another.
#[test]
fn files_in_use_are_migrated() -> Result<()> {
    let fs = TestFs::up("lfsmigrate", 4, 2)?;
    let (m, other) = (fs.mount(0), fs.mount(1));
    ok("lfs", &["setstripe", "-c", "1", "-S", "128k", "f"], m)?;
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(m.join("f"), &data)?;
    let before = std::fs::metadata(m.join("f"))?;
    let mut here = std::fs::OpenOptions::new().read(true).append(true).open(m.join("f"))?;
    let mut there = std::fs::File::open(other.join("f"))?;
    let mut got = Vec::new();
    std::io::Read::read_to_end(&mut there, &mut got)?;
    ensure!(got == data, "the other mount keeps all of it");
    ensure!(ok("lfs", &["migrate", "-v", "-c", "3", "f"], m)? == "f\n", "-v names the file");
    let after = std::fs::metadata(other.join("f"))?;
    use std::os::unix::fs::MetadataExt;
    let times = |m: &std::fs::Metadata| (m.ino(), m.len(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    ensure!(times(&before) == times(&after), "a move is no change: {before:?} {after:?}");
    for (option, value) in [("-c", "3"), ("-S", "131072"), ("-g", "1")] {
        ensure!(ok("lfs", &["getstripe", option, "f"], other)?.trim() == value, "getstripe {option}");
    }
    std::io::Write::write_all(&mut here, b"behind it")?;
    let want = [&data[..], b"behind it"].concat();
    ensure!(std::fs::read(other.join("f"))? == want, "what is appended goes to the new objects");
    // Without options: the same shape, on new objects; elsewhere if that is said.
    ok("lfs", &["migrate", "f"], other)?;
    ensure!(ok("lfs", &["getstripe", "-c", "f"], m)?.trim() == "3", "it keeps what is not said");
    ok("lfs", &["migrate", "-o", "2", "f"], other)?;
    ensure!(ok("lfs", &["getstripe", "-i", "f"], m)?.trim() == "2", "on the OST that was asked for");
    ensure!(std::fs::read(m.join("f"))? == want, "nothing was lost on the way");
    std::fs::write(m.join("small"), b"x")?;
    std::fs::create_dir(m.join("d"))?;
    small_files_are_migrated(m, other)?;
    fails("lfs", &["migrate", "-c", "2", "d"], m, 22, "only regular files have data to move")?;
    fails("lfs", &["migrate", "-c", "2", "nothing"], m, 2, "No such file or directory")?;
    fails("lfs", &["migrate", "-D", "f"], m, 95, "--non-direct")?;
    ok("lfs", &["migrate", "--non-block", "f"], m)?;
    fails("lfs", &["migrate", "-o", "77", "f"], m, 22, "Invalid argument")?;
    fails("lfs", &["migrate"], m, 4, "usage: lfs migrate")?;
    drop((here, there));
    fs.fsck()
}

/// Out of the inode, and back into it, as long as there is room; in use by another mount.
fn small_files_are_migrated(m: &Path, other: &Path) -> Result<()> {
    let shows = |option: &str, want: &str| -> Result<()> {
        let got = ok("lfs", &["getstripe", option, "small"], other)?;
        ensure!(got.split_whitespace().collect::<Vec<_>>() == [want], "getstripe {option}: {got}");
        Ok(())
    };
    let mut there = std::fs::OpenOptions::new().read(true).append(true).open(other.join("small"))?;
    ok("lfs", &["migrate", "-c", "2", "-S", "64k", "small"], m)?;
    shows("-L", "raid0")?;
    shows("-c", "2")?;
    there.write_all(b"y")?;
    ok("lfs", &["migrate", "-E", "64k", "-L", "mdt", "-E", "-1", "-c", "3", "-S", "128k", "small"], m)?;
    ensure!(ok("lfs", &["getstripe", "--component-count", "small"], other)?.trim() == "2", "with the inode");
    shows("-L", "mdt")?;
    there.write_all(b"z")?;
    ensure!(std::fs::read(m.join("small"))? == b"xyz", "what was written on the way is there");
    let whole = vec![7; 70_000];
    there.write_all(&whole)?;
    ensure!(std::fs::read(m.join("small"))?[3..] == whole[..], "it grew");
    shows("-c", "3")?;
    ok("lfs", &["migrate", "-E", "64k", "-L", "mdt", "-E", "-1", "-c", "1", "small"], m)?;
    shows("-L", "raid0")?;
    Ok(())
}

fn refusals(m: &Path) -> Result<()> {
    std::fs::write(m.join("full"), b"data")?;
    fails("lfs", &["setstripe", "-c", "2", "full"], m, 17, "stripe already set")?;
    fails("lfs", &["setstripe", "-S", "65537", "n"], m, 22, "bad stripe size")?;
    fails("lfs", &["setstripe", "-c", "2001", "n"], m, 34, "bad stripe count")?;
    fails("lfs", &["setstripe", "-i", "77", "n"], m, 22, "Invalid argument")?;
    fails("lfs", &["setstripe", "-o", "0,77", "n"], m, 22, "Invalid argument")?;
    fails("lfs", &["setstripe", "-p", "flash", "n"], m, 22, "no such pool")?;
    fails("lfs", &["setstripe", "-E", "1G", "-E", "1G", "n"], m, 22, "bad component end")?;
    fails("lfs", &["setstripe", "-E", "1G", "-i", "77", "n"], m, 22, "Invalid argument")?;
    fails("lfs", &["setstripe", "-N2", "-E", "-1", "n"], m, 95, "--mirror-count")?;
    fails("lfs", &["setstripe"], m, 4, "usage: lfs setstripe")?;
    fails("lfs", &["setstripe", "-c", "2", "/tmp"], m, 25, "Inappropriate ioctl for device")?;
    ensure!(!m.join("n").exists(), "a refused setstripe made a file");
    fails("lfs", &["getstripe", "nothing"], m, 2, "'nothing': No such file or directory (2)")?;
    fails("lfs", &["getstripe", "/proc/version"], m, 25, "Inappropriate ioctl for device")?;
    // over several paths: go on, return the first error
    let o = run("lfs", &["getstripe", "-c", "nothing", "full"], m)?;
    ensure!(
        o.status.code() == Some(2) && text(&o.stdout).trim() == "3",
        "{}{}",
        text(&o.stdout),
        text(&o.stderr)
    );
    fails("lfs", &["nonsense"], m, 4, "unknown command")?;
    fails("lfs", &["get"], m, 4, "getname, getstripe")?;
    ensure!(ok("lfs", &["getst", "-c", "full"], m)?.trim() == "3", "beginnings of names");
    ensure!(ok("lfs", &["--version"], m)?.starts_with("lfs "), "version");
    ensure!(ok("lfs", &["--list-commands"], m)?.lines().any(|l| l == "setstripe"), "list of commands");
    Ok(())
}

#[test]
fn targets_space_and_identities() -> Result<()> {
    let fs = TestFs::up("lfsq", 2, 1)?;
    let (m, name) = (fs.mount(0), fs.fsname());
    let here = m.display().to_string();
    let df = ok("lfs", &["df", "."], m)?;
    let lines: Vec<&str> = df.lines().collect();
    ensure!(lines[0] == "UUID                   1K-blocks        Used   Available Use% Mounted on", "{df}");
    ensure!(
        lines[1].starts_with(&format!("{name}-MDT0000_UUID "))
            && lines[1].ends_with(&format!(" {here}[MDT:0]")),
        "{df}"
    );
    ensure!(lines[3].ends_with(&format!(" {here}[OST:1]")) && lines[4].is_empty(), "{df}");
    ensure!(lines[5].starts_with("filesystem_summary:  "), "{df}");
    ensure!(ok("lfs", &["df", "-h", "."], m)?.contains("bytes"), "df -h");
    ensure!(ok("lfs", &["df", "-i", "."], m)?.contains("IFree"), "df -i");
    ensure!(
        ok("lfs", &["osts", "."], m)?
            == format!("OBDS:\n0: {name}-OST0000_UUID ACTIVE\n1: {name}-OST0001_UUID ACTIVE\n"),
        "osts"
    );
    ensure!(ok("lfs", &["mdts", "."], m)? == format!("MDTS:\n0: {name}-MDT0000_UUID ACTIVE\n"), "mdts");
    ensure!(ok("lfs", &["check", "osts", "."], m)?.matches(" active.").count() == 2, "check");
    let shown = ok("lfs", &["getname", "."], m)?;
    ensure!(shown.starts_with(&format!("{name}-")) && shown.trim_end().ends_with(&here), "{shown}");
    ensure!(ok("lfs", &["getname", "-n", "."], m)?.trim() == name, "getname -n");
    ensure!(ok("lfs", &["getname", "-i", "."], m)?.trim().len() == 16, "getname -i");
    std::fs::create_dir(m.join("d"))?;
    std::fs::write(m.join("d/one"), b"1")?;
    std::fs::hard_link(m.join("d/one"), m.join("two"))?;
    let fid = ok("lfs", &["path2fid", "d/one"], m)?.trim().to_string();
    ensure!(fid.starts_with("[0x") && ok("lfs", &["path2fid", "two"], m)?.trim() == fid, "{fid}");
    let mut paths: Vec<String> =
        ok("lfs", &["fid2path", &here, &fid], m)?.lines().map(str::to_string).collect();
    paths.sort();
    ensure!(paths == [format!("{here}/d/one"), format!("{here}/two")], "{paths:?}");
    let mut relative: Vec<String> =
        ok("lfs", &["fid2path", name, &fid], m)?.lines().map(str::to_string).collect();
    relative.sort();
    ensure!(relative == ["d/one", "two"], "{relative:?}");
    let root = ok("lfs", &["path2fid", "."], m)?;
    ensure!(root.trim() == "[0x200000007:0x1:0x0]", "{root}");
    fails(
        "lfs",
        &["fid2path", &here, "[0x1:0x2:0x3]"],
        m,
        2,
        "cannot find '[0x1:0x2:0x3]': No such file or directory",
    )?;
    fails("lfs", &["fid2path", &here, "nonsense"], m, 22, "invalid FID")?;
    std::os::unix::fs::symlink("nowhere", m.join("link"))?;
    ensure!(ok("lfs", &["path2fid", "link"], m)?.starts_with("[0x"), "a dangling link has a FID of its own");
    versions_and_advice(m)?;
    json_everywhere(m)
}

/// What tools ask of a file that they are going to copy, and what programs tell of one that they will use.
fn versions_and_advice(m: &Path) -> Result<()> {
    std::fs::write(m.join("v"), vec![1; 300_000])?;
    let version = |how: &[&str]| -> Result<u64> {
        let shown = ok("lfs", &[&["data_version"], how, &["v"]].concat(), m)?;
        shown.trim_end().parse().context("one number")
    };
    let first = version(&[])?;
    ensure!(
        version(&["-n"])? == first && version(&["--read"])? == first && version(&["-w"])? == first,
        "the same"
    );
    std::fs::OpenOptions::new().append(true).open(m.join("v"))?.write_all(b"more")?;
    ensure!(version(&[])? > first, "written");
    fails("lfs", &["data_version", "-n", "-w", "v"], m, 4, "only one of")?;
    fails("lfs", &["data_version"], m, 4, "no file")?;
    fails("lfs", &["data_version", "--set-hsm", "v"], m, 95, "archive")?;
    fails("lfs", &["data_version", "."], m, 22, "data version")?;
    for advice in ["willread", "dontneed", "noexpand", "locknoexpand"] {
        ok("lfs", &["ladvise", "-a", advice, "-s", "4k", "-l", "64k", "v"], m)?;
    }
    ok("lfs", &["ladvise", "-a", "lockahead", "-m", "WRITE", "-e", "1M", "v"], m)?;
    fails("lfs", &["ladvise", "v"], m, 4, "no advice")?;
    fails("lfs", &["ladvise", "-a", "nonsense", "v"], m, 4, "nonsense")?;
    fails("lfs", &["ladvise", "-a", "lockahead", "v"], m, 4, "-m READ")?;
    fails("lfs", &["ladvise", "-a", "willread", "-s", "5", "-e", "5", "v"], m, 22, "behind the start")?;
    fails("lfs", &["ladvise", "-a", "willread", "missing"], m, 2, "missing")
}

fn json_everywhere(m: &Path) -> Result<()> {
    for args in [
        &["df", "--json", "."][..],
        &["osts", "--json", "."],
        &["mdts", "--json", "."],
        &["check", "all", "--json", "."],
        &["getname", "--json", "."],
        &["getstripe", "--json", "d"],
        &["path2fid", "--json", "d"],
    ] {
        let out = ok("lfs", args, m)?;
        let v: serde_json::Value = serde_json::from_str(&out).with_context(|| format!("{args:?}: {out}"))?;
        ensure!(v.as_array().is_some_and(|a| !a.is_empty()), "{args:?}: {out}");
    }
    for args in [&["dl", "--json"][..], &["get_param", "--json", "version"], &["list_nids", "--json"]] {
        let out = ok("lctl", args, m)?;
        serde_json::from_str::<serde_json::Value>(&out).with_context(|| format!("{args:?}: {out}"))?;
    }
    Ok(())
}

#[test]
fn find_selects_by_name_size_age_and_layout() -> Result<()> {
    let fs = TestFs::up("lfsfind", 3, 1)?;
    let m = fs.mount(0);
    std::fs::create_dir_all(m.join("a/b"))?;
    std::fs::write(m.join("a/small.txt"), b"x")?;
    std::fs::write(m.join("a/b/big.bin"), vec![0; 3 << 20])?;
    ok("lfs", &["setstripe", "-c", "3", "a/wide"], m)?;
    ok("lfs", &["setstripe", "-i", "1", "a/b/on1"], m)?;
    Command::new("touch").args(["-d", "3 days ago"]).arg(m.join("a/small.txt")).status()?;
    let find = |args: &[&str]| -> Result<Vec<String>> {
        let all: Vec<&str> = ["find", "a"].iter().chain(args).copied().collect();
        let mut v: Vec<String> = ok("lfs", &all, m)?.lines().map(str::to_string).collect();
        v.sort();
        Ok(v)
    };
    ensure!(find(&[])?.len() == 6, "everything");
    ensure!(find(&["-name", "*.bin"])? == ["a/b/big.bin"], "name");
    ensure!(find(&["--type", "d"])? == ["a", "a/b"], "type");
    ensure!(find(&["-size", "+2M"])? == ["a/b/big.bin"], "size");
    ensure!(find(&["-type", "f", "-mtime", "+2"])? == ["a/small.txt"], "mtime");
    ensure!(find(&["-L", "mdt"])? == ["a/small.txt"], "data on the MDT");
    ensure!(find(&["--stripe-count", "3"])? == ["a/wide"], "stripe count");
    ensure!(find(&["-stripe-count", "+1", "-type", "f"])? == ["a/wide"], "stripe count");
    ensure!(find(&["--ost", "1", "!", "-name", "wide"])?.contains(&"a/b/on1".to_string()), "ost");
    ensure!(find(&["-maxdepth", "1", "-type", "f"])?.len() == 2, "maxdepth");
    ensure!(find(&["-printf", "%s %Lc %p\\n", "-name", "wide"])? == ["0 3 a/wide"], "printf");
    fails("lfs", &["find", "a", "-frob"], m, 4, "-frob")?;
    fails("lfs", &["find", "/tmp"], m, 25, "Inappropriate ioctl for device")
}

/// An ordinary user may ask, and lay out files of their own.
#[test]
fn ordinary_users_use_lfs_too() -> Result<()> {
    let fs = TestFs::up("lfsuser", 2, 1)?;
    let m = fs.mount(0);
    std::fs::set_permissions(fs.scratch(), std::fs::Permissions::from_mode(0o755))?;
    std::fs::create_dir(m.join("theirs"))?;
    std::os::unix::fs::chown(m.join("theirs"), Some(65534), Some(65534))?;
    std::fs::write(m.join("roots"), b"")?;
    // the programs may lie where only root can look
    let copy = fs.scratch().join("nacre");
    std::fs::copy(bin_dir().join("nacre"), &copy)?;
    let as_user = |args: &[&str]| -> Result<Output> {
        let mut c = Command::new("setpriv");
        c.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&copy).arg("lfs");
        run_within(c.args(args).current_dir(m), LIMIT)
    };
    let o = as_user(&["setstripe", "-c", "2", "theirs/f"])?;
    ensure!(o.status.success(), "{}", text(&o.stderr));
    let o = as_user(&["getstripe", "-c", "theirs/f"])?;
    ensure!(text(&o.stdout).trim() == "2", "{}", text(&o.stderr));
    ensure!(
        as_user(&["df", "."])?.status.success() && as_user(&["path2fid", "roots"])?.status.success(),
        "queries"
    );
    let o = as_user(&["setstripe", "-c", "2", "not-allowed"])?;
    ensure!(o.status.code() == Some(13), "{} {}", o.status, text(&o.stderr));
    Ok(())
}

#[test]
fn lctl_reads_and_sets_parameters() -> Result<()> {
    let fs = TestFs::up("lctl", 2, 1)?;
    let (m, name) = (fs.mount(0), fs.fsname());
    let dl = ok("lctl", &["dl"], m)?;
    for part in [
        format!(" UP mdt {name}-MDT0000 "),
        format!(" UP obdfilter {name}-OST0001 "),
        format!(" UP osc {name}-OST0000-osc-"),
    ] {
        ensure!(dl.contains(&part), "{part} is missing:\n{dl}");
    }
    ensure!(
        ok("lctl", &["get_param", "-n", "version"], m)?.starts_with(|c: char| c.is_ascii_digit()),
        "version"
    );
    let param = format!("lod.{name}-MDT0000-mdtlov.qos_threshold_rr");
    ensure!(ok("lctl", &["get_param", &param], m)? == format!("{param}=17\n"), "get_param");
    ensure!(ok("lctl", &["set_param", &format!("{param}=50")], m)? == format!("{param}=50\n"), "set_param");
    ensure!(ok("lctl", &["get_param", "-n", &param], m)?.trim() == "50", "get_param -n");
    ensure!(
        ok("lctl", &["list_param", &format!("lod/{name}-MDT0000-mdtlov/*")], m)?.contains(&param),
        "list_param"
    );
    fails(
        "lctl",
        &["get_param", "no.such.thing"],
        m,
        2,
        "param_path 'no/such/thing': No such file or directory",
    )?;
    fails("lctl", &["set_param", &format!("{param}=1000")], m, 34, "Numerical result out of range")?;
    fails("lctl", &["set_param", &format!("mdt.{name}-MDT0000.uuid=x")], m, 13, "Permission denied")?;
    fails(
        "lctl",
        &["ping", "127.255.255.1@tcp"],
        m,
        5,
        "failed to ping 127.255.255.1@tcp: Input/output error",
    )?;
    fails("lctl", &["nonsense"], m, 4, "unknown command")?;
    let status = fs.status()?;
    let nid = status["processes"][0]["nid"].as_str().context("nid")?.to_string();
    ensure!(ok("lctl", &["ping", &nid], m)? == format!("12345-{nid}\n"), "ping");
    ensure!(ok("lctl", &["list_nids"], m)?.lines().any(|l| l == nid), "list_nids");
    let import = ok("lctl", &["get_param", "-n", &format!("mdc.{name}-MDT0000-mdc-*.import")], m)?;
    for part in ["state: FULL", "service_estimates:", "network: ", &format!("failover_nids: [ {nid} ]")] {
        ensure!(import.contains(part), "{part} is missing:\n{import}");
    }
    let timeouts = ok("lctl", &["get_param", "-n", &format!("osc.{name}-OST0000-osc-*.timeouts")], m)?;
    ensure!(timeouts.starts_with("last reply : ") && timeouts.contains("portal 6   : cur "), "{timeouts}");
    // what parameters mean, which can be set, and what the servers count for this host
    let help = ok("lctl", &["help_param", &param], m)?;
    ensure!(help.starts_with(&format!("{param}: ")) && help.contains("0 to 100, default 17"), "{help}");
    ensure!(ok("lctl", &["list_param", "-F", &param], m)?.trim_end() == format!("{param}="), "list_param -F");
    let all = ok("lctl", &["help_param", "-R", "*"], m)?;
    for part in ["osc.", "mdc.", "llite.", "obdfilter.", "mdt.", "mgs.MGS.live", "health_check: "] {
        ensure!(all.lines().any(|l| l.starts_with(part) && l.contains(": ")), "nothing of {part} in\n{all}");
    }
    ok("lctl", &["set_param", "llite.*.extents_stats=1"], m)?;
    std::fs::write(m.join("counted"), vec![7; 70_000])?;
    std::fs::File::open(m.join("counted"))?.sync_all()?; // a mount keeps what is written for a second
    ensure!(std::fs::read(m.join("counted"))?.len() == 70_000, "read back");
    let extents = ok("lctl", &["get_param", "llite.*.extents_stats"], m)?;
    ensure!(extents.contains("calls"), "{extents}");
    for (p, word) in [
        ("obdfilter.*.exports.*.stats", "write_bytes"),
        ("obdfilter.*.brw_stats", "disk I/O size"),
        ("mdt.*.exports.*.stats", "create"),
        ("mdt.*.stats", "create"),
        ("osc.*.rpc_stats", "pages per rpc"),
        ("osc.*.import", "state: FULL"),
    ] {
        let text = ok("lctl", &["get_param", p], m)?;
        ensure!(text.contains(word), "no {word} in {p}:\n{text}");
    }
    ok("lctl", &["set_param", "obdfilter.*.exports.*.stats=clear"], m)?;
    // for good: reaches the servers, and is there after a restart
    let global = format!("lod.{name}-*.qos_prio_free");
    ok("lctl", &["set_param", "-P", &format!("{global}=70")], m)?;
    let is_70 = || ok("lctl", &["get_param", "-n", &global], m).is_ok_and(|v| v.trim() == "70");
    wait_until("the permanent parameter arrives", Duration::from_secs(15), is_70)?;
    fs.down()?;
    fs.up_again()?;
    wait_until("and is there after a restart", Duration::from_secs(15), is_70)
}

/// Bytes of an OST's object files that are in the host's page cache.
fn in_memory(fs: &TestFs, ost: &str) -> Result<u64> {
    let files = format!("{}/{ost}/objects/own", fs.dir().display());
    let line = format!("find {files} -type f -exec fincore --bytes --noheadings -o RES {{}} +");
    let out = sh(&line, LIMIT)?;
    Ok(out.split_whitespace().filter_map(|n| n.parse::<u64>().ok()).sum())
}

/// Data in bulk goes past the page cache of an OST's host, or through it, as is set.
#[test]
fn what_osts_keep_in_memory_can_be_set() -> Result<()> {
    const BYTES: u64 = 8 << 20;
    let fs = TestFs::up("cacheuse", 1, 1)?;
    let (m, name) = (fs.mount(0), fs.fsname());
    let param = |p: &str| format!("osd-nacre.{name}-OST0000.{p}");
    let get = |p: &str| ok("lctl", &["get_param", "-n", &param(p)], m);
    let set = |p: &str, on: &str| ok("lctl", &["set_param", &format!("{}={on}", param(p))], m);
    // A file system that has no other way than its cache keeps all of it whatever is set.
    let probe = format!("dd if=/dev/zero of={}/probe bs=4M count=1 oflag=direct", fs.dir().display());
    let past = sh(&probe, LIMIT).is_ok();
    let default = "0";
    ensure!(["0", "1"].contains(&get("nonrotational")?.trim()), "{}", get("nonrotational")?);
    for p in ["read_cache_enable", "writethrough_cache_enable"] {
        ensure!(get(p)?.trim() == default, "{p}: {}", get(p)?);
    }
    let write = |file: &str| -> Result<u64> {
        let before = in_memory(&fs, "ost0000")?;
        ok("lfs", &["setstripe", "-c", "1", "-S", "4M", file], m)?;
        std::fs::write(m.join(file), vec![5; BYTES as usize])?;
        std::fs::File::open(m.join(file))?.sync_all()?;
        Ok(in_memory(&fs, "ost0000")?.saturating_sub(before))
    };
    set("writethrough_cache_enable", "0")?;
    let kept = write("past")?;
    ensure!(!past || kept < BYTES / 2, "{kept} bytes of what went past the cache are in it");
    set("writethrough_cache_enable", "1")?;
    let kept = write("through")?;
    ensure!(kept >= BYTES, "{kept} bytes of what went through the cache are in it");
    fails("lctl", &["set_param", &format!("{}=2", param("read_cache_enable"))], m, 34, "out of range")?;
    fails("lctl", &["set_param", &format!("{}=0", param("nonrotational"))], m, 13, "Permission denied")?;
    fails("lctl", &["get_param", &format!("osd-nacre.{name}-MDT0000.read_cache_enable")], m, 2, "No such")?;
    // for good
    ok("lctl", &["set_param", "-P", "osd-nacre.*.read_cache_enable=1"], m)?;
    wait_until("it is set", Duration::from_secs(20), || {
        get("read_cache_enable").is_ok_and(|v| v.trim() == "1")
    })?;
    fs.down()?;
    fs.up_again()?;
    ensure!(get("read_cache_enable")?.trim() == "1", "after a restart");
    ensure!(get("writethrough_cache_enable")?.trim() == default, "was not set for good");
    Ok(())
}

/// Also where the host has no such device: it says so then.
#[test]
fn processors_stay_awake_while_a_mount_is_busy_only() -> Result<()> {
    let fs = TestFs::up("awake", 1, 1)?;
    let m = fs.mount(0);
    let stat = |name: &str| -> Result<String> {
        let all = ok("lctl", &["get_param", "-n", "llite.*.pmqos_stats"], m)?;
        let line = all.lines().find_map(|l| l.strip_prefix(&format!("{name}: ")));
        Ok(line.unwrap_or_default().to_string())
    };
    let work = |until: &dyn Fn() -> bool| {
        wait_until("it is noticed", LIMIT, || {
            for n in 0..500 {
                let _ = std::fs::metadata(m.join(format!("no{n}"))).is_err();
                let d = m.join("d");
                let _ = std::fs::create_dir(&d).is_ok() && std::fs::remove_dir(&d).is_ok();
            }
            until()
        })
    };
    let device = std::fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency").is_ok();
    ensure!(ok("lctl", &["get_param", "-n", "llite.*.enable_pmqos"], m)?.trim() == "1");
    if !device {
        work(&|| stat("unavailable").is_ok_and(|v| v.contains("cpu_dma_latency")))?;
        ensure!(stat("times")? == "0");
        return Ok(());
    }
    work(&|| stat("held").is_ok_and(|v| v == "1"))?;
    wait_until("the mount has nothing to do", LIMIT, || stat("held").is_ok_and(|v| v == "0"))?;
    ok("lctl", &["set_param", "llite.*.enable_pmqos=0"], m)?;
    let (times, rounds) = (stat("times")?, std::cell::Cell::new(0));
    work(&|| rounds.replace(rounds.get() + 1) == 4)?;
    ensure!(stat("times")? == times, "it was switched off");
    ok("lctl", &["set_param", "llite.*.enable_pmqos=1", "llite.*.pmqos_latency_max_usec=5"], m)?;
    work(&|| stat("held").is_ok_and(|v| v == "1"))?;
    ensure!(stat("latency_usec")? == "5" && stat("times")? != times);
    fails("lctl", &["set_param", "llite.*.pmqos_latency_max_usec=soon"], m, 22, "Invalid")?;
    fails("lctl", &["set_param", "llite.*.pmqos_default_duration_usec=1"], m, 34, "out of range")?;
    Ok(())
}
