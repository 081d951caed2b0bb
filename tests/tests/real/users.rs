//! What ordinary users meet: what their writes cost, what they take away from programs, and the work of other
//! tests done as one of them.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{TestFs, ok_within, sh, stripe_64k, tool};
use tests::exerciser::{Exerciser, appenders};
use tests::programs;
use tests::users::{USER, as_user};

const MINUTE: Duration = Duration::from_secs(60);

/// A file on so many stripes (0: its data lies with its inode at first), by each mount.
fn striped(fs: &TestFs, name: &str, stripes: u32, mode: u32) -> Result<Vec<PathBuf>> {
    let path = fs.mount(0).join(name);
    if stripes == 0 {
        File::create_new(&path)?;
    } else {
        stripe_64k(&path, stripes)?;
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(fs.mounts().iter().map(|m| m.join(name)).collect())
}

/// Samples of one kind in the metadata server's statistics.
fn count(kind: &str) -> Result<u64> {
    let text = ok_within(tool("lctl").args(["get_param", "-n", "mdt.*.md_stats"]), MINUTE)?;
    let line = text.lines().find(|l| l.split_whitespace().next() == Some(kind));
    line.map_or(Ok(0), |l| l.split_whitespace().nth(1).context("a number")?.parse().context("a number"))
}

#[test]
fn writes_of_a_user_tell_the_metadata_server_nothing() -> Result<()> {
    let fs = TestFs::up("cheap", 2, 1)?;
    let paths = striped(&fs, "f", 1, 0o666)?;
    let f = as_user(|| OpenOptions::new().write(true).open(&paths[0]))?;
    as_user(|| f.write_all_at(b"first", 0))?;
    let before = count("setattr")?;
    as_user(|| (0..1000).try_for_each(|i| f.write_all_at(b"abcd", i * 4096)))?;
    let after = count("setattr")?;
    drop(f);
    ensure!(before == after, "1,000 writes changed attributes {} times", after - before);
    fs.fsck()
}

#[test]
fn every_change_of_a_program_takes_its_privileges_away() -> Result<()> {
    let fs = TestFs::up("privileges", 2, 2)?;
    let script = fs.scratch().join("privileges.py");
    fs::write(&script, include_str!("privileges.py"))?;
    let source = striped(&fs, "source", 1, 0o644)?;
    fs::write(&source[0], [7; 4096])?;
    for stripes in [0, 1] {
        let paths = striped(&fs, &format!("f{stripes}"), stripes, 0o777)?;
        ok_within(Command::new("python3").arg(&script).args(paths).arg(&source[1]), MINUTE)
            .with_context(|| format!("{stripes} stripes"))?;
    }
    // A program that was rewritten runs without them.
    let m = fs.mount(0).display();
    let line = format!("cp /bin/cat {m}/p && chmod 777 {m}/p && setcap cap_setuid+ep {m}/p");
    sh(&line, MINUTE)?;
    let status = as_user(|| {
        sh(&format!("dd if=/bin/cat of={m}/p conv=notrunc status=none; {m}/p /proc/self/status"), MINUTE)
    })?;
    ensure!(status.contains("CapEff:\t0000000000000000"), "{status}");
    fs.fsck()
}

#[test]
fn two_mounts_agree_for_a_user() -> Result<()> {
    let fs = TestFs::up("user2", 3, 2)?;
    for (stripes, mmap) in [(0, false), (1, false), (3, true)] {
        let paths = striped(&fs, &format!("f{stripes}"), stripes, 0o600)?;
        chown(&paths[0], Some(USER), Some(USER))?;
        as_user(|| Exerciser::new(paths, 4711 + u64::from(stripes), mmap)?.run(200))
            .with_context(|| format!("{stripes} stripes"))?;
    }
    let paths = striped(&fs, "log", 1, 0o622)?;
    fs::set_permissions(&paths[0], fs::Permissions::from_mode(0o666))?;
    as_user(|| appenders(&paths, 4, 500))?;
    fs.fsck()
}

#[test]
fn programs_work_for_a_user() -> Result<()> {
    let fs = TestFs::up("userwork", 2, 1)?;
    let dir = fs.mount(0).join("home");
    fs::create_dir(&dir)?;
    chown(&dir, Some(USER), Some(USER))?;
    as_user(|| -> Result<()> {
        programs::git(&dir, 2, 20, &dir, MINUTE)?;
        let db = dir.join("wal.db");
        programs::sqlite(&db, "wal", 20, &db, MINUTE)
    })?;
    fs.fsck()
}

/// The daemon is in a pid namespace of its own and sees no process of the user's: only the kernel tells the
/// group.
#[test]
fn a_directory_of_a_group_works_for_members_that_the_daemon_cannot_look_at() -> Result<()> {
    const TEAM: u32 = 4711;
    let fs = TestFs::up("team", 1, 1)?;
    let dir = fs.mount(0).join("team");
    fs::create_dir(&dir)?;
    chown(&dir, Some(0), Some(TEAM))?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2770))?;
    let blind = fs.scratch().join("blind");
    fs::create_dir(&blind)?;
    let source = fs.status()?["source"].as_str().context("source")?.to_string();
    let helper = tool("mount.nacre");
    let words = std::iter::once(helper.get_program()).chain(helper.get_args()).map(|w| w.to_string_lossy());
    // The first process of a pid namespace ends all others with it: it stays until its input ends.
    let script = format!(
        "{} '{source}' '{}' && echo up && read end",
        words.collect::<Vec<_>>().join(" "),
        blind.display()
    );
    let mut first = Command::new("unshare")
        .args(["--pid", "--fork", "sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut out = first.stdout.take().context("piped")?;
    let mut work = || -> Result<()> {
        std::io::Read::read_exact(&mut out, &mut [0; 3])?;
        let line =
            "cd team; umask 007; python3 -c 'import os; os.umask(0); os.open(\"file\", os.O_CREAT, 0o2770)'; mkdir sub; ln -s file link; mkfifo fifo;
            stat -c '%n %g %A' *";
        let user = format!("--reuid={USER}");
        let setpriv =
            ["setpriv", &user, &format!("--regid={USER}"), &format!("--groups={TEAM}"), "sh", "-ec", line];
        let shown = ok_within(Command::new(setpriv[0]).args(&setpriv[1..]).current_dir(&blind), MINUTE)?;
        let want = "fifo 4711 prw-rw----\nfile 4711 -rwxrws---\nlink 4711 lrwxrwxrwx\nsub 4711 drwxrws---\n";
        ensure!(shown == want, "{shown}");
        let stranger = ["--groups=4712", "sh", "-c", "! echo x >team/other"];
        ok_within(Command::new("setpriv").args(&setpriv[1..3]).args(stranger).current_dir(&blind), MINUTE)?;
        Ok(())
    };
    let r = work();
    let unmounted = ok_within(Command::new("umount").arg(&blind), MINUTE);
    drop(first.stdin.take());
    first.wait()?;
    r?;
    unmounted?;
    fs.fsck()
}

/// Calls of one kind by the mounts' users, among them what the kernel asks for itself.
fn asked(kind: &str) -> Result<u64> {
    let text = ok_within(tool("lctl").args(["get_param", "-n", "llite.*.stats"]), MINUTE)?;
    let of_kind = text.lines().filter(|l| l.split_whitespace().next() == Some(kind));
    of_kind.map(|l| l.split_whitespace().nth(1).context("a number")?.parse::<u64>().context("a number")).sum()
}

#[test]
fn the_paths_of_a_user_cost_no_request() -> Result<()> {
    let fs = TestFs::up("paths", 1, 1)?;
    fs::create_dir(fs.mount(0).join("d"))?;
    let file = fs.mount(0).join("d/f");
    fs::write(&file, b"x")?;
    as_user(|| fs::metadata(&file))?;
    let before = asked("getxattr")?;
    ensure!(before > 0, "the kernel looks for the root's access list once");
    as_user(|| (0..1000).try_for_each(|_| fs::metadata(&file).map(drop)))?;
    let more = asked("getxattr")? - before;
    // A lease may have ended.
    ensure!(more <= 10, "1,000 looks at a file asked for {more} access lists");
    fs.fsck()
}

#[test]
fn an_access_list_of_the_root_counts_on_every_mount_at_once() -> Result<()> {
    let fs = TestFs::up("rootacl", 1, 2)?;
    let (first, second) = (fs.mount(0).display(), fs.mount(1));
    let file = second.join("f");
    fs::write(&file, b"x")?;
    for _ in 0..3 {
        as_user(|| fs::metadata(&file)).context("without an access list")?;
        sh(&format!("setfacl -m u:{USER}:--- {first}"), MINUTE)?;
        let e = as_user(|| fs::metadata(&file)).err().context("the access list shuts the user out")?;
        ensure!(e.kind() == std::io::ErrorKind::PermissionDenied, "{e}");
        sh(&format!("setfacl -b {first}"), MINUTE)?;
    }
    fs.fsck()
}

#[test]
fn groups_count_from_the_moment_they_change() -> Result<()> {
    let fs = TestFs::up("groups", 1, 1)?;
    let script = fs.scratch().join("groups.py");
    fs::write(&script, include_str!("groups.py"))?;
    ok_within(Command::new("python3").arg(&script).arg(fs.mount(0)), MINUTE)?;
    fs.fsck()
}

/// Every kind of user, under modes and access lists in which each entry decides once: reading, writing, names
/// of extended attributes and their values, lists and times. A list that decided over the right to set an
/// attribute by another rule than the kernel's would show here.
#[test]
fn rights_by_modes_and_access_lists_are_those_of_the_host_s_file_system() -> Result<()> {
    let fs = TestFs::up("acls", 2, 1)?;
    let script = fs.scratch().join("acl.py");
    fs::write(&script, include_str!("acl.py"))?;
    let (host, ours) = (fs.scratch().join("host"), fs.mount(0).join("ours"));
    let mut said = Vec::new();
    for dir in [&host, &ours] {
        fs::create_dir(dir)?;
        let limit = Duration::from_secs(300);
        said.push(ok_within(Command::new("python3").arg(&script).arg(dir), limit)?);
    }
    let (host, ours): (Vec<&str>, Vec<&str>) = (said[0].lines().collect(), said[1].lines().collect());
    ensure!(host.len() > 300 && host.len() == ours.len(), "{} and {} lines", host.len(), ours.len());
    let differs: Vec<String> = host
        .iter()
        .zip(&ours)
        .filter(|(h, o)| h != o)
        .map(|(h, o)| format!("the host: {h}\n    here: {o}"))
        .collect();
    ensure!(differs.is_empty(), "{} of {} differ:\n{}", differs.len(), host.len(), differs.join("\n"));
    fs.fsck()
}

/// The kernel sees no mode in the answer to a new access list, and was told to forget the old one a moment
/// after it: who came in that moment was judged by the new list and the old mode (1 of 50 under load).
#[test]
fn an_access_list_counts_with_its_mode_for_whoever_comes_next() -> Result<()> {
    use model::acl::{Acl, Entry, Who, XATTR_ACCESS};
    let fs = TestFs::up("aclmode", 1, 1)?;
    let entries =
        [(Who::UserObj, 6), (Who::User(USER), 6), (Who::GroupObj, 6), (Who::Mask, 0), (Who::Other, 6)];
    let list = Acl::new(entries.map(|(who, perm)| Entry { who, perm }).to_vec()).context("a list")?;
    for i in 0..200 {
        let path = fs.mount(0).join(format!("f{i}"));
        File::create_new(&path)?;
        let name = std::str::from_utf8(XATTR_ACCESS)?;
        rustix::fs::setxattr(&path, name, &list.to_xattr(), rustix::fs::XattrFlags::empty())?;
        // With a mask that takes everything the kernel looks at no list, and others may read.
        as_user(|| File::open(&path)).with_context(|| format!("open of file {i}"))?;
    }
    fs.fsck()
}
