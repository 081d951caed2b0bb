//! Objects in the folder of an OST that does not run.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::time::Duration;
use tests::cluster::{TestFs, ok_within, run_within, stripe_on, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
const STRIPE: usize = 65536;

#[test]
fn an_object_of_a_stopped_ost_says_whose_it_is_and_gives_its_bytes() -> Result<()> {
    let fs = TestFs::up("object", 2, 1)?;
    let f = fs.mount(0).join("f");
    stripe_on(&f, "0,1")?;
    let bytes: Vec<u8> = (0..5 * STRIPE).map(|i| (i / 251) as u8 | 1).collect();
    fs::write(&f, &bytes)?;
    File::open(&f)?.sync_all()?;
    let fid = ok_within(tool("lfs").arg("path2fid").arg(&f), LIMIT)?.trim().to_string();
    let ost = fs.dir().join("ost0001");
    let show =
        |what: &str| run_within(tool("nacre").args(["object", "show", "--json"]).arg(&ost).arg(what), LIMIT);
    let o = show(&fid)?;
    ensure!(o.status.code() == Some(8), "its server runs: {:?}", o.status);

    fs.down()?;
    let mut all = Value::Null;
    let mut shown = || -> Result<()> {
        let o = show(&fid)?;
        ensure!(o.status.success(), "{:?} {}", o.status, String::from_utf8_lossy(&o.stderr));
        all = serde_json::from_slice(&o.stdout)?;
        Ok(())
    };
    // A process that ends lets go of its locks a moment later.
    wait_until("nobody has the target any more", LIMIT, || shown().is_ok())?;
    let one = &all[0];
    ensure!(all.as_array().is_some_and(|a| a.len() == 1) && one["fid"] == fid.as_str(), "{all}");
    ensure!(
        one["size"] == 2 * STRIPE && one["stripe"] == 1 && one["bad_blocks"] == serde_json::json!([]),
        "{one}"
    );
    let object = one["object"].as_str().context("no object")?;
    let o = run_within(tool("nacre").args(["object", "dump"]).arg(&ost).arg(object), LIMIT)?;
    let want = [&bytes[STRIPE..2 * STRIPE], &bytes[3 * STRIPE..4 * STRIPE]].concat();
    ensure!(o.status.success() && o.stdout == want, "{:?}, {} bytes", o.status, o.stdout.len());

    let path = one["location"]["path"].as_str().context("no file")?;
    let at = one["location"]["offset"].as_u64().context("no offset")?;
    let damage = File::options().write(true).open(path)?;
    std::os::unix::fs::FileExt::write_all_at(&damage, &[0xee; 10], at + 5000)?;
    let text = run_within(tool("nacre").args(["object", "show"]).arg(&ost).arg(object), LIMIT)?;
    let said = String::from_utf8_lossy(&text.stdout).into_owned();
    ensure!(
        text.status.code() == Some(4) && said.contains("the first at byte 4096"),
        "{:?} {said}",
        text.status
    );
    let o = show("[0x200000401:0xffff:0x0].1.0")?;
    ensure!(
        o.status.code() == Some(8) && String::from_utf8_lossy(&o.stderr).contains("never written"),
        "none"
    );
    Ok(())
}
