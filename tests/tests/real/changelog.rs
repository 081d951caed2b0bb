//! A consumer of the changelog follows it while the metadata server is killed again and again: it is told of
//! each change once and in order.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use tests::cluster::{TestFs, fails, kill, lctl, ok_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

fn lfs(args: &[&str]) -> Result<String> {
    ok_within(tool("lfs").args(args), LIMIT)
}

/// Words of a line: index, type with its number, time, date, flags, and so on.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// (index, `01CREAT`, name) of lines that are about names.
fn names(text: &str) -> Vec<(u64, String, String)> {
    let one = |line: &str| {
        let w = words(line);
        let at = w.iter().position(|w| w.starts_with("p=["))?;
        Some((w.first()?.parse().ok()?, (*w.get(1)?).to_string(), (*w.get(at + 1)?).to_string()))
    };
    text.lines().filter_map(one).collect()
}

/// Ends with the test.
struct Follower(Child);

impl Follower {
    fn start(args: &[&str], to: &Path) -> Result<Follower> {
        let out = File::create(to)?;
        let child = tool("lfs").arg("changelog").args(args).stdout(out).stderr(Stdio::null()).spawn();
        Ok(Follower(child.context("lfs changelog")?))
    }

    fn interrupt(&mut self) -> Result<Option<i32>> {
        kill(i32::try_from(self.0.id())?, Signal::INT)?;
        Ok(self.0.wait()?.code())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_consumer_follows_over_restarts_of_the_metadata_server() -> Result<()> {
    let fs = TestFs::up("chlog", 1, 2)?;
    let mdt = format!("{}-MDT0000", fs.fsname());
    ensure!(
        lctl(&["--device", &mdt, "changelog_register"])?.trim()
            == format!("{mdt}: Registered changelog userid 'cl1'")
    );
    let quiet = lctl(&["--device", &mdt, "changelog_register", "-n", "-u", "robin", "-m", "CREAT,UNLNK"])?;
    ensure!(quiet.trim() == "cl2-robin", "{quiet}");
    let (out, mut want) = (fs.scratch().join("followed"), Vec::new());
    let mut follower = Follower::start(&["-f", "-u", "cl1", "-m", "CREAT,RENME,UNLNK", &mdt], &out)?;
    for round in 0..4 {
        for i in 0..60 {
            let m = fs.mount(i % 2);
            let (old, new) = (format!("t{round}-{i}"), format!("f{round}-{i}"));
            fs::write(m.join(&old), b"x")?;
            fs::rename(m.join(&old), m.join(&new))?;
            want.extend([("01CREAT".to_string(), old), ("08RENME".to_string(), new.clone())]);
            if i % 5 == 0 {
                fs::remove_file(m.join(&new))?;
                want.push(("06UNLNK".to_string(), new));
            }
            if i == 30 {
                kill(fs.mds()?, Signal::KILL)?;
                fs.up_again()?;
            }
        }
    }
    let followed = || names(&fs::read_to_string(&out).unwrap_or_default());
    wait_until("the consumer is told of everything", LIMIT, || followed().len() >= want.len())?;
    let code = follower.interrupt()?;
    ensure!(code == Some(130), "it ended with {code:?}");
    let got = followed();
    let told: Vec<_> = got.iter().map(|(_, kind, name)| (kind.clone(), name.clone())).collect();
    ensure!(told == want, "told {} of {}", told.len(), want.len());
    ensure!(got.windows(2).all(|w| w[0].0 < w[1].0), "in the order of their indexes");
    shapes(&mdt, &want)?;
    fs.fsck()
}

/// What is printed, cleared and refused.
fn shapes(mdt: &str, want: &[(String, String)]) -> Result<()> {
    let all = lfs(&["changelog", mdt])?;
    let first = words(all.lines().next().context("a record")?);
    ensure!(first[..2] == ["1", "00MARK"] && first[4] == "0x1", "{first:?}");
    let line = all.lines().find(|l| l.contains("01CREAT")).context("a create")?;
    let w = words(line);
    ensure!(w[2].len() == 18 && w[3].len() == 10 && w[4] == "0x0" && w[5].starts_with("t=["), "{line}");
    ensure!(line.contains(" ef=0xf u=0:0 nid=") && line.contains("@tcp p=[0x"), "{line}");
    let moved = all.lines().find(|l| l.contains("08RENME")).context("a rename")?;
    ensure!(
        moved.contains(" t=[0x0:0x0:0x0] ") && moved.contains(" s=[0x") && moved.contains(" sp=[0x"),
        "{moved}"
    );
    let last: u64 = all.lines().last().context("a record")?.split(' ').next().context("an index")?.parse()?;
    let part = lfs(&["changelog", mdt, "5", "7"])?;
    ensure!(part.lines().map(|l| words(l)[0].to_string()).collect::<Vec<_>>() == ["5", "6", "7"], "{part}");
    let json = lfs(&["changelog", "--json", "-m", "CREAT", mdt, "1", "10"])?;
    let v: serde_json::Value = serde_json::from_str(json.lines().next().context("a record")?)?;
    ensure!(v["type"] == "CREAT" && v["name"] == want[0].1.as_str(), "{json}");
    // Of its own mask only.
    ensure!(!lfs(&["changelog", "-u", "cl2", mdt])?.contains("RENME"));
    let users = lctl(&["get_param", "-n", &format!("mdd.{mdt}.changelog_users")])?;
    ensure!(users.starts_with(&format!("current_index: {last}\nID  ")), "{users}");
    ensure!(users.contains("cl2-robin") && users.contains(" mask=CREAT,UNLNK"), "{users}");
    lfs(&["changelog_clear", mdt, "cl1", "0"])?;
    ensure!(lfs(&["changelog", "-u", "cl1", mdt])?.is_empty(), "all of it is cleared");
    ensure!(!lfs(&["changelog", mdt])?.is_empty(), "the other one has not cleared it");
    lfs(&["changelog_clear", mdt, "cl2-robin", &last.to_string()])?;
    fails("lfs", &["changelog_clear", mdt, "cl1", &(last + 100).to_string()], 22, "Invalid argument")?;
    fails("lfs", &["changelog_clear", mdt, "cl9", "1"], 2, "No such file or directory")?;
    fails("lfs", &["changelog", "-u", "cl9", mdt], 2, "there is no consumer 'cl9'")?;
    fails("lfs", &["changelog", "nowhere-MDT0000"], 19, "not mounted")?;
    fails("lctl", &["--device", mdt, "changelog_register", "-m", "NOTHING"], 4, "is no mask")?;
    fails("lctl", &["--device", mdt, "changelog_deregister", "cl9"], 2, "there is no consumer")?;
    wait_until("what all cleared is freed", LIMIT, || {
        lctl(&["get_param", "-n", &format!("mdd.{mdt}.changelog_size")]).is_ok_and(|s| s.trim() == "0")
    })?;
    for (id, n) in [("cl1", 1), ("cl2-robin", 2)] {
        let said = lctl(&["--device", mdt, "changelog_deregister", id])?;
        ensure!(said.trim() == format!("{mdt}: Deregistered changelog user #{n}"), "{said}");
    }
    Ok(())
}
