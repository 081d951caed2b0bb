//! Files and trees that come back from a snapshot with all that they had, in one go and in pieces, for root
//! and for whoever may read them in it.

use super::snapshot::OnXfs;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::cluster::{fails, kill, lctl, nacre, nacre_json, ok_within, run_within, sh, tool, wait_until};
use tests::users::{USER, as_user};

const LIMIT: Duration = Duration::from_secs(120);

/// What there is to know of all below a directory: attributes, contents, layouts, projects.
fn known(top: &Path) -> Result<String> {
    let t = top.display();
    let lfs = tool("lfs").get_program().to_string_lossy().into_owned();
    let all = format!(
        "cd {t}; find . -printf '%p %y %m %u %g %n %s %T@ %l\\n' | sort; \
         find . -type f -print0 | sort -z | xargs -0 -r md5sum; getfacl -R -P -p . ; \
         getfattr -R -P -d -m '^user\\.' . | sort; \
         find . -type f -o -type d | sort | xargs -d '\\n' -r {lfs} getstripe -d -c -S -p 2>&1; \
         find . -type f -o -type d | sort | xargs -d '\\n' -r {lfs} project -d; \
         find . -type f -printf '%i %p\\n' | sort | awk '{{ if (!($1 in n)) n[$1] = $2; print $2, n[$1] }}' | sort"
    );
    sh(&all, LIMIT)
}

fn same(a: &str, b: &str) -> Result<()> {
    let lines = a.lines().zip(b.lines()).filter(|(a, b)| a != b);
    let differ: Vec<String> = lines.take(8).map(|(a, b)| format!("{a}\n   now {b}")).collect();
    ensure!(a == b, "{} lines, now {}:\n{}", a.lines().count(), b.lines().count(), differ.join("\n"));
    Ok(())
}

/// Files of all kinds, with owners, layouts in a pool, a project that is inherited, links.
fn make(fs: &tests::cluster::TestFs, dir: &Path) -> Result<()> {
    let pool = format!("{}.fast", fs.fsname());
    lctl(&["pool_new", &pool])?;
    lctl(&["pool_add", &pool, &format!("{}-OST0001", fs.fsname())])?;
    let lfs = tool("lfs").get_program().to_string_lossy().into_owned();
    let d = dir.display();
    sh(
        &format!(
            "mkdir {d} {d}/sub {d}/sub/deep; cd {d}; echo small >small; ln small sub/link; \
             {lfs} project -p 77 -s sub; {lfs} setstripe -c 2 -S 1M sub/deep; \
             {lfs} setstripe -p fast fast; {lfs} setstripe -c 2 -S 256K wide; echo fast >fast; \
             head -c 5000000 /dev/urandom >wide; head -c 70000000 /dev/urandom >sub/large; \
             echo p >sub/of-project; echo x >sub/deep/striped; \
             truncate -s 200M sub/sparse; echo end >>sub/sparse; \
             ln small sub/deep/link; ln -s ../small sub/symbolic; mkfifo sub/fifo; \
             setfattr -n user.color -v blue small; setfacl -m u:1000:r small; setfacl -d -m u:1000:rwx sub; \
             chown 1000:1000 wide sub/deep; chmod 4750 wide; chmod 0400 fast; chmod 1770 sub; \
             {lfs} project -p 78 small; touch -d '2001-02-03 04:05:06.789' small sub/large sub/deep sub ."
        ),
        LIMIT,
    )?;
    fs::File::open(dir.join("sub/large"))?.sync_all()?;
    fs::File::open(dir.join("wide"))?.sync_all()?;
    Ok(())
}

fn restore(args: &[&str]) -> Command {
    let mut c = tool("nacre");
    c.args(["snapshot", "restore"]).args(args);
    c
}

/// What it did, and its exit status.
fn did(args: &[&str]) -> Result<(Value, i32)> {
    let o = run_within(restore(args).arg("--json"), LIMIT)?;
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    let doc = serde_json::from_str(&text)
        .with_context(|| format!("{args:?}: {}: {text}{}", o.status, String::from_utf8_lossy(&o.stderr)))?;
    Ok((doc, o.status.code().context("it ended by a signal")?))
}

/// Processes that were started for a restore, and mounts.
fn of_restores() -> Result<Vec<String>> {
    let is_its = |text: &str| text.contains("/run/nacre/restore-");
    let mut all: Vec<String> =
        fs::read_to_string("/proc/self/mounts")?.lines().filter(|l| is_its(l)).map(str::to_string).collect();
    // Those of another host, as `apart.sh` makes them, are none of this test's.
    let host = fs::read_link("/proc/self/ns/mnt")?;
    for e in fs::read_dir("/proc")?.flatten() {
        if fs::read_link(e.path().join("ns/mnt")).ok().as_ref() != Some(&host) {
            continue;
        }
        let line = fs::read(e.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if is_its(&line) {
            all.push(format!("process {}: {line}", e.file_name().to_string_lossy()));
        }
    }
    Ok(all)
}

/// Nothing of a restore is left: its mount, its servers, its processes.
fn nothing_left(name: &str) -> Result<()> {
    let all = nacre_json(&["snapshot", "list", name, "--json"])?;
    ensure!(all[0]["status"] == "not mount", "{all}");
    let left: Vec<PathBuf> = fs::read_dir("/run/nacre")?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("restore-")))
        .collect();
    ensure!(left.is_empty(), "{left:?}");
    // A mount's daemon ends a moment after the mount.
    let all = || of_restores().unwrap_or_default();
    wait_until("all that was started for restores has ended", LIMIT, || all().is_empty())
        .with_context(|| all().join("\n"))
}

#[test]
fn what_was_removed_comes_back_from_a_snapshot_with_all_that_it_had() -> Result<()> {
    let Some(on) = OnXfs::up("restored")? else { return Ok(()) };
    let (fs, dir) = (&on.fs, on.fs.mount(0).join("home"));
    make(fs, &dir)?;
    let before = known(&dir)?;
    nacre(&["snapshot", "create", "then"])?;
    let shown = dir.display().to_string();
    fs::remove_dir_all(&dir)?;
    let (doc, code) = did(&["then", &shown])?;
    ensure!(code == 0 && doc["same"] == true && doc["hard_links_made"] == 2, "{code}: {doc}");
    same(&before, &known(&dir)?)?;
    nothing_left("then")?;
    let (doc, code) = did(&["then", &shown])?;
    ensure!(code == 0 && doc["files_copied"] == 0 && doc["attributes_set"] == 0, "{code}: {doc}");

    // What is there and is otherwise stays, unless it is said to go.
    let (changed, large) = (dir.join("sub/of-project"), dir.join("sub/large"));
    fs::write(&changed, "of now")?;
    fs::remove_file(&large)?;
    fs::set_permissions(dir.join("wide"), fs::Permissions::from_mode(0o600))?;
    let o = run_within(&mut restore(&["then", &shown]), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(o.status.code() == Some(1), "{}: {said}", o.status);
    ensure!(said.contains("of-project': File exists") && said.contains("mode is 600, not 4750"), "{said}");
    ensure!(fs::read(&changed)? == b"of now" && large.is_file());
    ensure!(fs::metadata(dir.join("wide"))?.permissions().mode() & 0o7777 == 0o600);
    let (doc, code) = did(&["then", &shown, "--overwrite"])?;
    ensure!(code == 0 && doc["files_copied"] == 1, "{code}: {doc}");
    same(&before, &known(&dir)?)?;

    // In a directory whose files are to be of another project there can be no such hard link.
    let lfs = tool("lfs").get_program().to_string_lossy().into_owned();
    let linked = fs.mount(0).join("linked");
    sh(
        &format!(
            "mkdir -p {0}/a {0}/b; cd {0}; echo twice >a/x; ln a/x b/x; {lfs} project -p 78 a/x; \
             {lfs} project -p 77 -s a; {lfs} project -p 77 -s b",
            linked.display()
        ),
        LIMIT,
    )?;
    nacre(&["snapshot", "create", "links"])?;
    let (a, b) = (linked.join("a/x"), linked.join("b/x"));
    for is_there in [false, true, true] {
        if !is_there {
            fs::remove_file(&a)?;
            fs::remove_file(&b)?;
        }
        let (doc, code) = did(&["links", &linked.display().to_string(), "--overwrite"])?;
        let why = doc["differences"][0]["what"].as_str().unwrap_or_default().to_string();
        ensure!(code == 1 && doc["error_count"] == 0 && doc["difference_count"] == 1, "{code}: {doc}");
        ensure!(
            why.contains("a file of its own now, and no hard link to") && why.contains("project"),
            "{why}"
        );
        ensure!(doc["files_copied"] == if is_there { 0 } else { 2 }, "{doc}");
        for x in [&a, &b] {
            ensure!(fs::read_to_string(x)? == "twice\n" && fs::metadata(x)?.nlink() == 1);
            let project = sh(&format!("{lfs} project -d {}", x.display()), LIMIT)?;
            ensure!(project.trim_start().starts_with("78 "), "{project}");
        }
    }
    fs::remove_dir_all(&linked)?;
    nothing_left("links")?;

    // One file, under another name; and to a file system that has no layouts.
    let one = dir.join("small").display().to_string();
    let other = fs.mount(0).join("other").display().to_string();
    let (_, code) = did(&["then", &one, "--to", &other])?;
    ensure!(code == 0 && fs::read_to_string(&other)? == "small\n");
    let (outside, to) =
        (fs.scratch().join("outside"), fs.mount(0).join("gone/with/it").display().to_string());
    let o = run_within(restore(&["then", &shown, "--to"]).arg(&outside), LIMIT)?;
    ensure!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    ensure!(String::from_utf8_lossy(&o.stderr).contains("layouts and projects stay behind"));
    ensure!(fs::read(outside.join("wide"))? == fs::read(dir.join("wide"))?);
    fails("nacre", &["snapshot", "restore", "then", &to], 2, "the directory that held it is gone as well")?;
    fails("nacre", &["snapshot", "restore", "then", &other], 2, "has nothing of this name")?;
    fails("nacre", &["snapshot", "restore", "now", &other], 2, "has no snapshot of this name")?;
    fails("nacre", &["snapshot", "restore", "then", "/etc/hosts"], 25, "no Nacre file system")?;
    fails("nacre", &["snapshot", "restore", "then"], 4, "name a snapshot, and the path")?;
    fails("nacre", &["snapshot", "restore", "then", &other, "--from", &shown], 22, "no snapshot is mounted")?;
    nothing_left("then")?;

    // All of it, as it is mounted.
    fs::remove_dir_all(&dir)?;
    let (doc, code) = did(&["then", &fs.mount(0).display().to_string()])?;
    ensure!(code == 0, "{doc}");
    same(&before, &known(&dir)?)
}

#[test]
fn a_restore_that_was_killed_or_interrupted_goes_on_and_replaces_nothing_of_others() -> Result<()> {
    const FILES: usize = 3000;
    let Some(on) = OnXfs::up("restkill")? else { return Ok(()) };
    let dir = on.fs.mount(0).join("many");
    for n in 0..FILES {
        let sub = dir.join(format!("d{}", n % 10));
        fs::create_dir_all(&sub)?;
        fs::write(sub.join(format!("f{n}")), format!("{n}").repeat(n % 50 + 1))?;
    }
    sh(&format!("chmod 0550 {0}/d3; chown -R 1000:1000 {0}/d4; chmod 0751 {0}", dir.display()), LIMIT)?;
    let before = known(&dir)?;
    nacre(&["snapshot", "create", "then"])?;
    fs::remove_dir_all(&dir)?;
    let shown = dir.display().to_string();
    let (mut killed, mut seen) = (0, 0);
    for signal in [Signal::KILL, Signal::INT, Signal::KILL] {
        let mut c = restore(&["then", &shown, "--threads", "2", "-q"]).spawn()?;
        wait_until("some are there", LIMIT, || {
            let all = (0..10).map(|n| fs::read_dir(dir.join(format!("d{n}"))).map_or(0, Iterator::count));
            all.sum::<usize>() > seen + 150 || c.try_wait().is_ok_and(|s| s.is_some())
        })?;
        let _ = kill(c.id() as i32, signal);
        let ended = c.wait()?;
        killed += u32::from(!ended.success());
        ensure!(signal == Signal::KILL || ended.success() || ended.code() == Some(130), "{ended}");
        seen = (0..10).map(|n| fs::read_dir(dir.join(format!("d{n}"))).map_or(0, Iterator::count)).sum();
    }
    ensure!(killed > 1 && seen > 0, "{killed} were in time");
    let (doc, code) = did(&["then", &shown])?;
    ensure!(code == 0 && doc["same"] == true, "{code}: {doc}");
    ensure!(doc["skipped"].as_u64().is_some_and(|n| n > 100), "what was there was made anew: {doc}");
    same(&before, &known(&dir)?)?;
    ensure!(!known(&dir)?.contains("user.nacre.restore"));
    nothing_left("then")
}

#[test]
fn an_ordinary_user_gets_back_what_he_may_read_from_a_snapshot_that_is_mounted() -> Result<()> {
    let Some(on) = OnXfs::up("restuser")? else { return Ok(()) };
    let home = on.fs.mount(0).join("home");
    fs::create_dir(&home)?;
    fs::write(home.join("mine"), "of mine")?;
    fs::write(home.join("roots"), "of root")?;
    fs::write(home.join("secret"), "of root alone")?;
    fs::set_permissions(home.join("secret"), fs::Permissions::from_mode(0o600))?;
    chown(&home, Some(USER), Some(USER))?;
    chown(home.join("mine"), Some(USER), Some(USER))?;
    nacre(&["snapshot", "create", "then"])?;
    ["mine", "roots", "secret"].iter().try_for_each(|n| fs::remove_file(home.join(n)))?;
    let shown = home.display().to_string();
    let as_him = |more: &[&str]| -> Result<(i32, String)> {
        let o = as_user(|| run_within(restore(&["then", &shown]).args(more), LIMIT))?;
        Ok((
            o.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&[o.stdout, o.stderr].concat()).into_owned(),
        ))
    };
    let (code, said) = as_him(&[])?;
    ensure!(code == 13 && said.contains("root has to serve it"), "{code}: {said}");
    on.within("then", "ro", |at| {
        let (code, said) = as_him(&[])?;
        ensure!(
            code == 1 && said.contains("secret") && said.contains("only root can give files away"),
            "{code}: {said}"
        );
        ensure!(fs::read_to_string(home.join("mine"))? == "of mine");
        ensure!(fs::read_to_string(home.join("roots"))? == "of root");
        ensure!(!home.join("secret").exists(), "{said}");
        fs::remove_file(home.join("mine"))?;
        let (_, said) = as_him(&["--from", &at.display().to_string()])?;
        ensure!(home.join("mine").is_file(), "{said}");
        // Root finds the same mount, and leaves it.
        ok_within(&mut restore(&["then", &format!("{shown}/secret")]), LIMIT)?;
        ensure!(at.join("home").is_dir());
        Ok(())
    })
}
