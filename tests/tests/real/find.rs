//! `lfs find` and `nacre report` on a real mount: what they print of a small tree.

use anyhow::{Context, Result, ensure};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tests::cluster::{TestFs, bin_dir, run_within, sh, stripe_64k, tool};

const LIMIT: Duration = Duration::from_secs(30);

fn run(program: &str, args: &[&str], dir: &Path) -> Result<Output> {
    run_within(tool(program).args(args).current_dir(dir), LIMIT)
}

fn text(b: &[u8]) -> String {
    String::from_utf8_lossy(b).into_owned()
}

/// Lines of `lfs find`, sorted; exit status 0.
fn find(dir: &Path, args: &[&str]) -> Result<Vec<String>> {
    let all: Vec<&str> = ["find"].iter().chain(args).copied().collect();
    let o = run("lfs", &all, dir)?;
    ensure!(o.status.success(), "{all:?}: {}\n{}", o.status, text(&o.stderr));
    let mut lines: Vec<String> = text(&o.stdout).lines().map(str::to_string).collect();
    lines.sort();
    Ok(lines)
}

/// `a/b` with files of all kinds: small, large, wide, owned by others, old, with an attribute.
fn make_tree(m: &Path) -> Result<()> {
    std::fs::create_dir_all(m.join("a/b"))?;
    std::fs::write(m.join("a/small.txt"), b"x")?;
    std::fs::write(m.join("a/b/big.bin"), vec![0; 3 << 20])?;
    std::fs::hard_link(m.join("a/b/big.bin"), m.join("a/again"))?;
    symlink("small.txt", m.join("a/link"))?;
    let lines = "lfs setstripe -c 3 -S 1M -i 2 a/wide; lfs setstripe -o 1 a/b/on1; mkfifo a/pipe
        lfs setstripe -c 2 -S 128k a/b; touch -d '3 days ago' a/small.txt; chown 7:8 a/pipe; chmod 4751 a/wide
        setfattr -n user.color -v 'dark red' a/small.txt; chattr +d a/wide; chattr -p 9 a/b/on1";
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", bin_dir().display());
    let line = format!("export PATH={path}; cd {}; {lines}", m.display());
    sh(&line, LIMIT).map(drop)
}

#[test]
fn every_predicate_prints_the_lines_that_it_should() -> Result<()> {
    let fs = TestFs::up("findall", 3, 1)?;
    let (m, name) = (fs.mount(0), fs.fsname());
    make_tree(m)?;
    let on1 = format!("{name}-OST0001_UUID");
    let all = ["a", "a/again", "a/b", "a/b/big.bin", "a/b/on1", "a/link", "a/pipe", "a/small.txt", "a/wide"];
    for (args, want) in [
        (&["a"][..], &all[..]),
        (&["a", "-threads", "1", "-print"], &all),
        (&["a/", "-maxdepth", "0"], &["a/"]),
        (&["a/small.txt", "a/b", "-type", "f", "!", "-name", "*.bin"], &["a/b/on1", "a/small.txt"]),
        (&["a/link", "-type", "l"], &["a/link"]),
        (&["a", "-type", "p,l"], &["a/link", "a/pipe"]),
        (&["a", "-size", "+2M"], &["a/again", "a/b/big.bin"]),
        (&["a", "-size", "1c", "-type", "f"], &["a/small.txt"]),
        (&["a", "-blocks", "+2M"], &["a/again", "a/b/big.bin"]),
        (&["a", "-mtime", "3"], &["a/small.txt"]),
        (&["a", "-M", "+2d", "-ctime", "-1h", "-btime", "-1h"], &["a/small.txt"]),
        (&["a", "-type", "f", "!", "-newer", "a/small.txt"], &["a/small.txt"]),
        (&["a", "-newermt", "2100-01-01"], &[]),
        (&["a", "-user", "7"], &["a/pipe"]),
        (&["a", "!", "-user", "root", "-gid", "+7"], &["a/pipe"]),
        (&["a", "-perm", "-u+s"], &["a/wide"]),
        (&["a", "-perm", "4751"], &["a/wide"]),
        (&["a", "-links", "2", "-type", "f"], &["a/again", "a/b/big.bin"]),
        (&["a", "-projid", "9"], &["a/b/on1"]),
        (&["a", "-attrs", "No_Dump"], &["a/wide"]),
        (&["a", "--xattr", "user.color=dark.*"], &["a/small.txt"]),
        (&["a", "-mindepth", "2"], &["a/b/big.bin", "a/b/on1"]),
        (&["a", "-c", "3"], &["a/wide"]),
        (&["a", "-c", "2"], &["a/b"]),
        (&["a", "-S", "1M"], &["a/wide"]),
        (&["a", "-i", "2", "-name", "w*"], &["a/wide"]),
        (&["a/b", "--obd", &on1, "-name", "on*"], &["a/b/on1"]),
        (&["a", "-type", "f", "!", "-ost", "0-2"], &["a/small.txt"]),
        (&["a", "-L", "mdt"], &["a/small.txt"]),
        (&["a", "-component-count", "1", "-E", "eof", "-name", "wide"], &["a/wide"]),
        (&["a", "-N", "1", "-component-flags", "init", "-name", "wide"], &["a/wide"]),
        (&["a", "-T", "1", "-H", "none", "-m", "0"], &["a", "a/b"]),
        (&["a", "-foreign"], &[]),
        (
            &["a", "-printf", "%f %s %Lc %LS %Li %Lo %m\\n", "-name", "wide"],
            &["wide 0 3 1048576 2 2,0,1 4751"],
        ),
        (&["a", "-printf", "%p %LP %La\\n", "-projid", "9"], &["a/b/on1 9 ---"]),
    ] {
        for how in [&[][..], &["-index"], &["-no-index"]] {
            let found = find(m, &[args, how].concat())?;
            ensure!(found == want, "{args:?} {how:?}: {found:?}");
        }
    }
    let ls = find(m, &["a/small.txt", "-ls"])?;
    ensure!(ls[0].contains(" -rw-r--r-- 1 root root 1 ") && ls[0].ends_with(" a/small.txt"), "{ls:?}");
    let json: serde_json::Value = serde_json::from_str(&find(m, &["a/wide", "--json"])?[0])?;
    ensure!(json["layout"]["stripe_count"] == 3 && json["mode"] == 0o4751, "{json}");
    let zeros = run("lfs", &["find", "a", "-print0", "-type", "d"], m)?;
    ensure!(zeros.stdout == b"a\0a/b\0", "{}", text(&zeros.stdout));
    fs.fsck()
}

#[test]
fn what_cannot_be_searched_is_said_and_the_rest_is_found() -> Result<()> {
    let fs = TestFs::up("findbad", 1, 1)?;
    let m = fs.mount(0);
    std::fs::create_dir_all(m.join("a/locked"))?;
    std::fs::write(m.join("a/f"), b"x")?;
    std::fs::set_permissions(m.join("a/locked"), std::fs::Permissions::from_mode(0o700))?;
    let both = |args: &[&str], code: i32, out: &str, err: &str| -> Result<()> {
        let o = run("lfs", args, m)?;
        let said = text(&o.stderr);
        ensure!(o.status.code() == Some(code) && text(&o.stdout) == out, "{args:?}: {} {said}", o.status);
        ensure!(said.contains(err), "{args:?}: {said}");
        Ok(())
    };
    both(&["find", "nothing", "a/f"], 2, "a/f\n", "'nothing': No such file or directory (2)")?;
    both(&["find", "/tmp", "nothing", "a/f"], 25, "a/f\n", "Inappropriate ioctl for device (25)")?;
    both(&["find", "a", "-size", "many"], 4, "", "bad number 'many'")?;
    both(&["find", "a", "-o", "-type", "d"], 4, "", "'-o' cannot be used")?;
    both(&["find", "a", "-printf", "%Q"], 4, "", "unknown directive '%Q'")?;
    // An ordinary user; the programs may lie where only root can look.
    std::fs::set_permissions(fs.scratch(), std::fs::Permissions::from_mode(0o755))?;
    let copy = fs.scratch().join("nacre");
    std::fs::copy(bin_dir().join("nacre"), &copy)?;
    let mut c = Command::new("setpriv");
    c.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&copy);
    let o = run_within(c.args(["lfs", "find", "a", "-uid", "0"]).current_dir(m), LIMIT)?;
    let mut lines: Vec<String> = text(&o.stdout).lines().map(str::to_string).collect();
    lines.sort();
    ensure!(lines == ["a", "a/f", "a/locked"] && o.status.code() == Some(13), "{lines:?} {}", o.status);
    ensure!(
        text(&o.stderr).contains("cannot list 'a/locked': Permission denied (13)"),
        "{}",
        text(&o.stderr)
    );
    Ok(())
}

/// Output and messages of a command, each sorted, and how it ended, as root or as somebody else.
fn said(
    program: &Path,
    uid: Option<u32>,
    args: &[&str],
    dir: &Path,
) -> Result<(Vec<String>, Vec<String>, i32)> {
    let mut c = match uid {
        None => Command::new(program),
        Some(uid) => {
            let mut c = Command::new("setpriv");
            let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
            c.args(ids).args(["--clear-groups", "--"]).arg(program);
            c
        }
    };
    let o = run_within(c.args(args).current_dir(dir), LIMIT)?;
    let sorted = |b: &[u8]| {
        let mut lines: Vec<String> = text(b).lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    Ok((sorted(&o.stdout), sorted(&o.stderr), o.status.code().unwrap_or(-1)))
}

#[test]
fn a_scan_tells_everybody_what_a_walk_tells_and_not_more() -> Result<()> {
    let fs = TestFs::up("findscan", 3, 2)?;
    let (m, other) = (fs.mount(0), fs.mount(1));
    make_tree(m)?;
    let lines = "mkdir -p a/private/below a/names/below a/pass/below a/mine/below; touch a/private/below/f
        touch a/names/f a/names/below/f a/pass/f a/pass/below/f a/mine/below/f; chown -R 65534 a/mine
        ln a/private/below/f a/mine/seen; ln a/mine/below/f a/private/hidden; mkdir a/mine/shut
        touch a/mine/shut/f; chmod 0 a/mine/shut; chmod 700 a/private; chmod 744 a/names; chmod 711 a/pass
        chmod 755 a/b; mv a/b a/mine/b";
    // Space that is not taken yet is known to the mount alone that keeps the data.
    sh(&format!("cd {}; {lines}; find a -type f -exec sync {{}} +", m.display()), LIMIT)?;
    std::fs::set_permissions(fs.scratch(), std::fs::Permissions::from_mode(0o755))?;
    let nacre = fs.scratch().join("nacre");
    std::fs::copy(bin_dir().join("nacre"), &nacre)?;
    let mut seen = 0;
    for question in [
        &["lfs", "find", "a"][..],
        &["lfs", "find", "a", "-uid", "0"],
        &["lfs", "find", "a", "!", "-user", "0", "-type", "f"],
        &["lfs", "find", "a", "-size", "+0", "-printf", "%p %s %t %u\\n"],
        &["lfs", "find", "a", "-mtime", "-1", "-maxdepth", "2"],
        &["lfs", "find", "a/mine", "a/pass", "a/private", "a/names", "-name", "f", "-mindepth", "1"],
        &["lfs", "find", "a", "-links", "2", "-json"],
        &["lfs", "find", ".", "-ost", "0-1"],
        &["nacre", "report", "sizes", "a", "--json"],
        &["nacre", "report", "striping", "a/mine"],
        &["nacre", "report", "owners", "a"],
    ] {
        for uid in [None, Some(65534), Some(65533)] {
            let args = if question[0] == "nacre" { &question[1..] } else { question };
            let with = |how, dir| said(&nacre, uid, &[args, &[how]].concat(), dir);
            let (walked, scanned) = (with("--no-index", m)?, with("--index", m)?);
            ensure!(walked == scanned, "{question:?} of {uid:?}: {walked:?} but {scanned:?}");
            let elsewhere = with("--index", other)?;
            ensure!(walked == elsewhere, "{question:?} of {uid:?}: {walked:?} but {elsewhere:?} elsewhere");
            seen += walked.0.len() + walked.1.len();
        }
    }
    ensure!(seen > 100, "there was something to see: {seen}");
    // What lies below another file system is seen by nobody.
    sh(&format!("mount -t tmpfs none {}/a/mine", m.display()), LIMIT)?;
    let refused = said(&nacre, None, &["lfs", "find", "a", "-uid", "0", "-index"], m);
    let walked = said(&nacre, None, &["lfs", "find", "a", "-uid", "0"], m);
    sh(&format!("umount {}/a/mine", m.display()), LIMIT)?;
    let (refused, walked) = (refused?, walked?);
    ensure!(refused.2 == 18 && refused.1[0].contains("another file system is mounted at"), "{refused:?}");
    ensure!(walked.2 == 0 && !walked.0.iter().any(|l| l.starts_with("a/mine/")), "{walked:?}");
    fs.fsck()
}

#[test]
fn a_scan_knows_the_size_of_what_another_mount_has_not_written_back() -> Result<()> {
    let fs = TestFs::up("findsize", 2, 2)?;
    let (m, other) = (fs.mount(0), fs.mount(1));
    stripe_64k(&m.join("."), 2)?;
    sh(&format!("cd {}; touch -d '9 days ago' stamp", m.display()), LIMIT)?;
    let open = |name: &str| std::fs::File::create(m.join(name));
    let mut files = Vec::new();
    for i in 0..40 {
        files.push(open(&format!("f{i}"))?);
    }
    for i in 0..2 {
        let data = vec![7; 100_000 + i];
        for f in &mut files {
            f.write_all_at(&data, 100_000)?;
        }
        // The files are open: what was written is in the other mount's cache, for a second.
        let size = format!("{}c", 200_000 + i);
        for how in ["-index", "-no-index"] {
            for question in [&["-size", &size][..], &["-type", "f", "-newer", "stamp"], &["-size", "+150k"]] {
                let found = find(other, &[&["."], question, &[how]].concat())?;
                ensure!(found.len() == 40, "{question:?} {how}: {found:?}");
            }
            let older = find(other, &[".", "-mtime", "+1", "-type", "f", how])?;
            ensure!(older == ["./stamp"], "{how}: {older:?}");
        }
        let sum = |how| -> Result<serde_json::Value> {
            let o = run("nacre", &["report", "sizes", ".", "--json", how], other)?;
            Ok(serde_json::from_slice(&o.stdout)?)
        };
        let (scanned, walked) = (sum("--index")?, sum("--no-index")?);
        let bytes = scanned["total"]["bytes"].as_u64();
        ensure!(bytes == Some(40 * (200_000 + i as u64)), "{scanned}");
        for part in ["files", "bytes", "directories"] {
            ensure!(scanned["total"][part] == walked["total"][part], "{part}: {scanned} {walked}");
        }
    }
    Ok(())
}

#[test]
fn deep_and_wide_directories_are_found_whole() -> Result<()> {
    let fs = TestFs::up("finddeep", 1, 1)?;
    let m = fs.mount(0);
    // 60 levels of 100 letters are more than a path may have.
    let name = "d".repeat(100);
    let make = format!(
        "cd {}; mkdir wide; for i in $(seq 60); do mkdir {name}; cd {name}; done; touch end",
        m.display()
    );
    sh(&make, LIMIT)?;
    for i in 0..3000 {
        std::fs::write(m.join(format!("wide/f{i}")), b"")?;
    }
    for how in ["-index", "-no-index"] {
        let ends = find(m, &[".", "-name", "end", "-user", "0", how])?;
        ensure!(ends.len() == 1 && ends[0].len() > 60 * 100, "{how}: {ends:?}");
    }
    for threads in ["1", "4"] {
        ensure!(
            find(m, &["wide", "-type", "f", "-uid", "0", "-threads", threads])?.len() == 3000,
            "{threads}"
        );
    }
    ensure!(find(m, &["wide", "-name", "f299?", "-size", "0"])?.len() == 10, "few of many");
    Ok(())
}

#[test]
fn reports_count_what_is_there() -> Result<()> {
    let fs = TestFs::up("report", 3, 1)?;
    let m = fs.mount(0);
    make_tree(m)?;
    let report = |args: &[&str]| -> Result<String> {
        let o = run("nacre", &[&["report"], args].concat(), m)?;
        ensure!(o.status.success(), "{args:?}: {}\n{}", o.status, text(&o.stderr));
        Ok(text(&o.stdout))
    };
    let total = "total: 4 files of 3.0M in 3.0M, 2 directories, 2 others";
    for subject in ["striping", "owners", "sizes", "ages"] {
        let shown = report(&[subject, "a"])?;
        ensure!(shown.trim_end().ends_with(total), "{subject}: {shown}");
    }
    let json = |subject| -> Result<serde_json::Value> {
        let shown = report(&[subject, "a", "--json"])?;
        serde_json::from_str(&shown).with_context(|| shown.clone())
    };
    let striping = json("striping")?;
    let wide = striping["rows"].as_array().and_then(|a| a.iter().find(|r| r["layout"]["stripe_count"] == 3));
    let wide = wide.context("the wide file's layout")?;
    ensure!(wide["by_hand"] == 1 && wide["owners"][0]["uid"] == 0, "{wide}");
    ensure!(striping["complete"] == true && striping["total"]["files"] == 4, "{striping}");
    let users = json("owners")?["rows"]["users"].clone();
    ensure!(users.as_array().is_some_and(|u| u.iter().any(|r| r["id"] == 7)), "{users}");
    let o = run("nacre", &["report", "sizes", "/tmp"], m)?;
    ensure!(o.status.code() == Some(25), "{}", o.status);
    ensure!(run("nacre", &["report", "colours", "a"], m)?.status.code() == Some(4), "wrong usage");
    Ok(())
}
