//! The trash as users meet it: ten thousand files come back to an ordinary user though the servers die in the
//! middle; what he types wrong; limits of age.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tests::cluster::{TestFs, kill_all, ok_within, run_within, tool, wait_until};
use tests::disks::OnDisks;
use tests::users::{USER, as_user};

const LIMIT: Duration = Duration::from_secs(120);
const DIRS: usize = 20;
const FILES: usize = 500;

fn trash(args: &[&str]) -> Command {
    let mut c = tool("nacre");
    c.arg("trash").args(args);
    c
}

fn text(o: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr))
}

fn json_of(c: &mut Command) -> Result<Value> {
    Ok(serde_json::from_str(&ok_within(c, LIMIT)?)?)
}

/// A directory of the user's, with its trash kept.
fn home(fs: &TestFs) -> Result<std::path::PathBuf> {
    let home = fs.mount(0).join("home");
    fs::create_dir(&home)?;
    std::os::unix::fs::chown(&home, Some(USER), Some(USER))?;
    let shown = home.display().to_string();
    as_user(|| ok_within(&mut trash(&["on", &shown]), LIMIT)).map(|_| home)
}

fn content(d: usize, f: usize) -> Vec<u8> {
    format!("{d} {f}").into_bytes()
}

fn make(home: &Path) -> Result<()> {
    for d in 0..DIRS {
        let dir = home.join(format!("d{d}"));
        fs::create_dir(&dir)?;
        for f in 0..FILES {
            fs::write(dir.join(format!("f{f}")), content(d, f))?;
        }
    }
    Ok(())
}

/// How many files are there with what was in them.
fn there(home: &Path) -> usize {
    let is = |d: usize, f: usize| fs::read(home.join(format!("d{d}/f{f}"))).is_ok_and(|b| b == content(d, f));
    (0..DIRS).flat_map(|d| (0..FILES).map(move |f| (d, f))).filter(|(d, f)| is(*d, *f)).count()
}

#[test]
fn ten_thousand_files_come_back_to_their_user_though_servers_die_in_the_middle() -> Result<()> {
    let fs = TestFs::up("trash", 2, 1)?;
    let home = home(&fs)?;
    let shown = home.display().to_string();
    as_user(|| make(&home))?;
    as_user(|| (0..DIRS).try_for_each(|d| fs::remove_dir_all(home.join(format!("d{d}")))))?;
    ensure!(fs::read_dir(&home)?.next().is_none());
    let listed = as_user(|| json_of(&mut trash(&["list", "--json", &shown])))?;
    let n = listed["files"].as_array().map_or(0, Vec::len);
    ensure!(n == DIRS * (FILES + 1), "{n} files lie in the trash");

    let victims = fs.servers()?;
    let (whole, killed) = std::thread::scope(|s| -> Result<_> {
        let restore = || as_user(|| run_within(&mut trash(&["restore", "-r", "-q", &shown]), LIMIT));
        let running = s.spawn(restore);
        // Some are there already, and others are not.
        wait_until("the first come back", LIMIT, || home.join("d0").is_dir())?;
        kill_all(&victims, LIMIT)?;
        fs.up_again()?;
        Ok((running.join().expect("it does not panic")?, Instant::now()))
    })?;
    ensure!(whole.status.success() || whole.status.code().is_some(), "{}", text(&whole));
    let again = as_user(|| run_within(&mut trash(&["restore", "-r", "-q", &shown]), LIMIT))?;
    ensure!(again.status.success(), "{} (first: {})", text(&again), text(&whole));
    ensure!(as_user(|| there(&home)) == DIRS * FILES, "{} are there", there(&home));
    eprintln!("all were there {:?} after the kill", killed.elapsed());
    let listed = json_of(&mut trash(&["list", "--json", &shown]))?;
    ensure!(listed["files"].as_array().is_some_and(Vec::is_empty), "{listed}");

    // Once more, without disturbance: how long it takes.
    as_user(|| (0..DIRS).try_for_each(|d| fs::remove_dir_all(home.join(format!("d{d}")))))?;
    let start = Instant::now();
    let said = as_user(|| ok_within(&mut trash(&["restore", "-r", "-q", &shown]), LIMIT))?;
    let took = start.elapsed();
    eprintln!("10,000 files in {took:?}: {said}");
    ensure!(took < Duration::from_secs(30), "it took {took:?}");
    ensure!(as_user(|| there(&home)) == DIRS * FILES);
    fs.fsck()
}

#[test]
fn what_users_see_and_are_refused() -> Result<()> {
    let fs = TestFs::up("trashwords", 1, 1)?;
    let home = home(&fs)?;
    let at = |name: &str| home.join(name).display().to_string();
    let said = ok_within(&mut trash(&["status", &at("")]), LIMIT)?;
    ensure!(said.ends_with(": on\n"), "{said}");
    as_user(|| -> Result<()> {
        fs::create_dir(home.join("d"))?;
        fs::write(home.join("d/f"), b"first")?;
        fs::remove_file(home.join("d/f"))?;
        fs::write(home.join("d/f"), b"second")?;
        fs::remove_file(home.join("d/f"))?;
        std::os::unix::fs::symlink("nowhere", home.join("l"))?;
        fs::remove_file(home.join("l"))?;
        Ok(())
    })?;
    let list = || as_user(|| json_of(&mut trash(&["list", "--json", &at("")])));
    let all = list()?;
    let rows = all["files"].as_array().context("a list")?;
    ensure!(rows.len() == 3 && rows[0]["bytes"] == 5 && rows[1]["bytes"] == 6, "{all}");
    ensure!(rows[2]["type"] == "symlink" && rows[0]["path"] == at("d/f") && rows[0]["uid"] == USER, "{all}");
    let shown = as_user(|| ok_within(&mut trash(&["list", &at("")]), LIMIT))?;
    ensure!(shown.starts_with("Removed ") && shown.contains(&at("d/f")), "{shown}");
    let first = rows[0]["fid"].as_str().context("a FID")?.to_string();

    let refused = |args: &[&str], code: i32, words: &str| -> Result<()> {
        let o = as_user(|| run_within(&mut trash(args), LIMIT))?;
        ensure!(o.status.code() == Some(code) && text(&o).contains(words), "{args:?}: {}", text(&o));
        Ok(())
    };
    refused(&[], 4, "say what")?;
    refused(&["keep"], 4, "'keep' is none")?;
    refused(&["on"], 4, "of what?")?;
    refused(&["empty", &at("")], 4, "--older AGE, or --all?")?;
    refused(&["empty", "--older", "soon", &at("")], 4, "'soon' is no age")?;
    refused(&["list", "--all", &at("")], 4, "'--all' says nothing to")?;
    refused(&["on", &at("none")], 2, "none")?;
    refused(&["on", &fs.mount(0).display().to_string()], 1, "only its owner and root")?;
    refused(&["restore", &at("d/g")], 2, "nothing of that name")?;
    refused(&["restore", &at("d")], 17, "-r restores what was removed below it")?;
    refused(&["restore", "--as", "a/b", &at("d/f")], 4, "--as is a name")?;
    refused(&["list", "/proc"], 25, "not on a Nacre file system")?;

    // The youngest; the other by its FID, under another name.
    let take = |args: &[&str]| as_user(|| ok_within(&mut trash(args), LIMIT));
    let told = take(&["restore", "-n", &at("d/f")])?;
    ensure!(told.contains(&at("d/f")) && !home.join("d/f").exists(), "{told}");
    ensure!(take(&["restore", &at("d/f")])? == "1 of 1 restored\n");
    ensure!(fs::read(home.join("d/f"))? == b"second");
    let shown = at("d");
    refused(&["restore", "--to", &shown, &first], 17, "the name is taken")?;
    take(&["restore", "--to", &shown, "--as", "old", &first])?;
    ensure!(fs::read(home.join("d/old"))? == b"first");
    // Not there while it is open, by the number of its links.
    let open = fs::File::open(home.join("d/old"))?;
    fs::remove_file(home.join("d/old"))?;
    ensure!(open.metadata()?.nlink() == 0);
    drop(open);
    ensure!(take(&["empty", "--older", "1d", &at("")])? == "0 of 0 removed for good\n");
    let said = take(&["status", "--json", &at("")])?;
    let said: Value = serde_json::from_str(&said)?;
    let removed = &said["directories"][0]["removed"];
    ensure!(removed["files"] == 2 && removed["users"].as_array().is_some_and(|u| u.len() == 1), "{said}");
    let names: Vec<&str> =
        removed["directories"].as_array().into_iter().flatten().filter_map(|d| d["name"].as_str()).collect();
    ensure!(names == [".", "d"], "{said}");
    ensure!(take(&["status", &at("")])?.contains("2 removed, "));
    let o = take(&["empty", "--all", "--json", &at("")])?;
    let o: Value = serde_json::from_str(&o)?;
    ensure!(o["done"] == 2, "the link and the old file: {o}");

    // chattr(1) leaves it alone, and the flag is shown.
    take(&["off", &at("")])?;
    ensure!(ok_within(&mut trash(&["status", &shown]), LIMIT)? == format!("{shown}: off\n"));
    fs::set_permissions(home.join("d"), fs::Permissions::from_mode(0o700))?;
    fs::remove_file(home.join("d/f"))?;
    ensure!(list()?["files"].as_array().is_some_and(Vec::is_empty));
    fs.fsck()
}

#[test]
fn several_names_come_back_at_once_with_the_directory_that_they_lay_in() -> Result<()> {
    let fs = TestFs::up("trashnames", 1, 1)?;
    let home = home(&fs)?;
    let at = |name: &str| home.join(name).display().to_string();
    as_user(|| -> Result<()> {
        fs::create_dir(home.join("d"))?;
        fs::write(home.join("d/a"), b"a")?;
        fs::write(home.join("d/b"), b"b")?;
        Ok(fs::remove_dir_all(home.join("d"))?)
    })?;
    let said = as_user(|| ok_within(&mut trash(&["restore", &at("d/a"), &at("d/b"), &at("d/a")]), LIMIT))?;
    ensure!(said == "3 of 3 restored\n", "{said}");
    ensure!(fs::read(home.join("d/a"))? == b"a" && fs::read(home.join("d/b"))? == b"b");
    // By its FID, when nobody knows where its directory was.
    as_user(|| fs::remove_dir_all(home.join("d")))?;
    let listed = as_user(|| json_of(&mut trash(&["list", "--json", &at("")])))?;
    let rows = listed["files"].as_array().context("a list")?;
    let fid = rows.iter().find(|r| r["name"] == "b").context("it is listed")?["fid"].as_str();
    let mut restore = trash(&["restore", fid.context("a FID")?]);
    let said = as_user(|| ok_within(restore.current_dir(&home), LIMIT))?;
    ensure!(said == "2 of 2 restored\n" && fs::read(home.join("d/b"))? == b"b", "{said}");
    fs.fsck()
}

#[test]
fn what_is_old_goes_by_itself() -> Result<()> {
    let fs = TestFs::up("trashage", 1, 1)?;
    let home = home(&fs)?;
    let shown = home.display().to_string();
    as_user(|| -> Result<()> {
        fs::write(home.join("f"), vec![1; 200_000])?;
        Ok(fs::remove_file(home.join("f"))?)
    })?;
    let n = || {
        let listed = json_of(&mut trash(&["list", "--json", &shown])).ok();
        listed.and_then(|l| l["files"].as_array().map(Vec::len))
    };
    ensure!(n() == Some(1));
    ok_within(tool("lctl").args(["set_param", "mdt.*.trash_max_age=1"]), LIMIT)?;
    wait_until("it is gone", LIMIT, || n() == Some(0))?;
    fs.fsck()
}

/// Writes 16 MiB to a file, and has it on its servers' disks.
fn written(path: &Path, value: u8) -> Result<()> {
    let mut f = fs::File::create(path)?;
    for _ in 0..16 {
        std::io::Write::write_all(&mut f, &vec![value; 1 << 20])?;
    }
    f.sync_all()?;
    Ok(())
}

/// Faster than anybody looks whether the trash takes too much.
#[test]
fn nobody_is_told_that_there_is_no_room_as_long_as_something_lies_in_the_trash() -> Result<()> {
    let fs = OnDisks::up("troom", 1, "400m")?;
    let keep = fs.mount(1).join("keep");
    written(&keep, 7)?;
    let dir = fs.mount(0).join("d");
    fs::create_dir(&dir)?;
    ok_within(&mut trash(&["on", &dir.display().to_string()]), LIMIT)?;
    for n in 0..80u8 {
        let path = fs.mount(usize::from(n % 2)).join(format!("d/f{n}"));
        written(&path, n).with_context(|| format!("file {n}; {}", fs.last_warnings()))?;
        ensure!(fs::read(&path)? == vec![n; 16 << 20], "file {n} has other bytes");
        fs::remove_file(&path)?;
    }
    ensure!(fs::read(&keep)? == vec![7; 16 << 20], "what nobody removed is there");
    // What is full for good is said to be.
    let full = (0..80).find_map(|n| written(&fs.mount(0).join(format!("full{n}")), 1).err());
    let e = full.context("400 MiB hold more than they can")?;
    let errno = e.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    ensure!(errno == Some(28), "{e:#}");
    let left = json_of(&mut trash(&["list", "--json", &dir.display().to_string()]))?;
    ensure!(left["files"].as_array().is_some_and(Vec::is_empty), "all of the trash gave way first: {left}");
    fs.down()
}
