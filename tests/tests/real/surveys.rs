//! The surveys as sites have them in their notes: each line of `site-commands.md` for itself, in small.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tests::cluster::{Running, Scratch, TestFs, bin_dir, ok_within, run_within, sh, tool, wait_until};
use tests::hosts::Hosts;

const LIMIT: Duration = Duration::from_secs(120);

/// A search path on which our programs come first, by their links in a folder.
fn programs(dir: &Path) -> Result<String> {
    let links = dir.join("programs");
    std::fs::create_dir_all(&links)?;
    ok_within(tool("nacre").arg("install-links").arg(&links), LIMIT)?;
    let rest = std::env::var("PATH").unwrap_or_default();
    Ok(format!("{}:{}:{rest}", links.display(), bin_dir().display()))
}

/// A line of a shell in which our programs are found first.
fn shell(path: &str, line: &str) -> Result<Output> {
    run_within(Command::new("bash").args(["-uc", line]).env("PATH", path), LIMIT)
}

/// What a line that must do well prints.
fn prints(path: &str, line: &str) -> Result<String> {
    let o = shell(path, line)?;
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    ensure!(o.status.success(), "{line}\n{text}{}", String::from_utf8_lossy(&o.stderr));
    Ok(text)
}

/// Lines that begin so, as words.
fn rows<'a>(text: &'a str, first: &str) -> Vec<Vec<&'a str>> {
    text.lines().filter(|l| l.starts_with(first)).map(|l| l.split_whitespace().collect()).collect()
}

/// The figure behind a word.
fn figure(row: &[&str], word: &str) -> Result<f64> {
    let at = row.iter().position(|w| *w == word).with_context(|| format!("no {word} in {row:?}"))?;
    Ok(row.get(at + 1).context("a figure")?.parse()?)
}

#[test]
fn raw_storage_is_surveyed_by_regions_and_threads() -> Result<()> {
    let s = Scratch::new("sgpdd");
    let dir = s.path().display();
    let path = programs(s.path())?;
    let text = prints(
        &path,
        &format!(
            "size=\"8\" crglo=1 crghi=2 thrlo=1 thrhi=4 scsidevs=\"{dir}/sdk {dir}/sdw\" rslt={dir}/r sgpdd-survey --plot {dir}/heat.svg"
        ),
    )?;
    let found = rows(&text, "dev ");
    ensure!(found.len() == 5, "{text}");
    for row in &found {
        ensure!(row[..6] == ["dev", "2", "sz", "16384K", "rsz", "1024K"], "{row:?}");
        ensure!(figure(row, "write")? > 0.0 && figure(row, "read")? > 0.0, "{row:?}");
    }
    ensure!(std::fs::read_to_string(s.path().join("r.summary"))? == text, "the summary is what was printed");
    let detail: Value = serde_json::from_str(&std::fs::read_to_string(s.path().join("r.detail"))?)?;
    ensure!(detail["points"].as_array().is_some_and(|p| p.len() == 5), "{detail}");
    ensure!(detail["inventory"]["kernel"].is_string(), "{detail}");
    ensure!(std::fs::read_to_string(s.path().join("heat.svg"))?.ends_with("</svg>\n"), "a whole picture");
    ensure!(!s.path().join("sdk").exists(), "what was made is removed");
    // what is there is lost only after a word
    std::fs::write(s.path().join("kept"), "precious")?;
    let no = shell(&path, &format!("echo no | scsidevs={dir}/kept size=4 thrhi=1 crghi=1 sgpdd-survey"))?;
    ensure!(no.status.code() == Some(1), "{no:?}");
    ensure!(std::fs::read_to_string(s.path().join("kept"))? == "precious", "nothing was written");
    let yes = prints(
        &path,
        &format!("echo destroy | scsidevs={dir}/kept size=4 thrhi=1 crghi=1 sgpdd-survey --json"),
    )?;
    let yes: Value = serde_json::from_str(&yes)?;
    ensure!(yes["points"][0]["tests"][1]["rate"].as_f64().is_some_and(|r| r > 0.0), "{yes}");
    Ok(())
}

#[test]
fn the_chain_of_surveys_names_the_layer_that_holds_the_others_up() -> Result<()> {
    let fs = TestFs::up("chain", 2, 1)?;
    let mnt = fs.mount(0).display().to_string();
    let path = programs(fs.scratch())?;
    let (plot, rslt) = (fs.scratch().join("layers.svg"), fs.scratch().join("chain"));
    let text = prints(
        &path,
        &format!(
            "nacre survey all {mnt} size=8 thrhi=2 file_count=400 clients=3 memory=2G rslt={} --plot {}",
            rslt.display(),
            plot.display()
        ),
    )?;
    ensure!(text.contains(": 2 OSTs at 2 addresses, 2 of them on this host"), "{text}");
    ensure!(text.contains("share a file system"), "{text}");
    ensure!(text.contains("memory of servers here: 2147483648 bytes"), "{text}");
    for layer in ["storage", "objects", "client"] {
        let found = rows(&text, &format!("{layer} "));
        let row = found.first().with_context(|| format!("no {layer} in\n{text}"))?;
        ensure!(row[1].parse::<f64>()? > 0.0 && row[2].parse::<f64>()? > 0.0, "{row:?}");
    }
    ensure!(text.contains("not measured: nodes="), "{text}");
    for test in ["write", "read"] {
        ensure!(
            text.lines().any(|l| l.starts_with(&format!("{test}: ")) && l.contains("Bottleneck: ")),
            "{text}"
        );
        ensure!(text.contains(&format!("{test}: 3 clients like this one: ")), "{text}");
    }
    let detail: Value = serde_json::from_str(&std::fs::read_to_string(rslt.with_extension("detail"))?)?;
    ensure!(detail["layers"].as_array().is_some_and(|l| l.len() == 4), "{detail}");
    ensure!(detail["verdicts"][1]["estimate"].as_f64() > Some(0.0), "{detail}");
    ensure!(detail["names"][0]["rate"].as_f64() > Some(0.0), "{detail}");
    ensure!(std::fs::read_to_string(&plot)?.ends_with("</svg>\n"), "a whole picture");
    // Nothing is left: no files of the surveys, no objects, no bound on the servers.
    ensure!(std::fs::read_dir(fs.mount(0))?.next().is_none(), "the mount is empty");
    let left = sh(&format!("find {} -name 'survey.*'", fs.dir().display()), LIMIT)?;
    ensure!(left.is_empty(), "folders of OSTs have what they had: {left}");
    for n in 0..2 {
        let group = std::fs::read_to_string(format!("/proc/{}/cgroup", fs.oss(n)?))?;
        ensure!(!group.contains("nacre-memory"), "{group}");
    }
    Ok(())
}

#[test]
fn every_ost_and_the_names_of_a_mount_are_surveyed() -> Result<()> {
    let fs = TestFs::up("survey", 2, 1)?;
    let mnt = fs.mount(0).display().to_string();
    let path = programs(fs.scratch())?;
    let text = prints(&path, &format!("ost-survey -s 4 {mnt}"))?;
    ensure!(text.contains("Number of Active OST devices : 2"), "{text}");
    let table = text.lines().skip_while(|l| !l.starts_with("Ost#")).skip(2);
    let osts: Vec<Vec<&str>> = table.map(|l| l.split_whitespace().collect()).collect();
    ensure!(osts.len() == 2 && osts[1][0] == "1", "{text}");
    for o in &osts {
        ensure!(o[1].parse::<f64>()? > 0.0 && o[2].parse::<f64>()? > 0.0, "{o:?}");
    }
    let fsname = fs.fsname();
    let osts = format!("{fsname}-OST0000 {fsname}-OST0001");
    for (case, lines) in [("", 3), ("case=netdisk", 3)] {
        let text = prints(
            &path,
            &format!(
                "{case} nobjlo=\"2\" nobjhi=\"4\" thrlo=\"2\" thrhi=\"4\" size=\"8\" targets=\"{osts}\" obdfilter-survey"
            ),
        )?;
        let found = rows(&text, "ost ");
        ensure!(found.len() == lines, "{text}");
        for row in &found {
            ensure!(row[..6] == ["ost", "2", "sz", "16384K", "rsz", "1024K"], "{row:?}");
            for test in ["write", "rewrite", "read"] {
                ensure!(figure(row, test)? > 0.0, "{row:?}");
            }
        }
    }
    let text = prints(
        &path,
        &format!(
            "file_count=80 dir_count=2 thrlo=2 thrhi=4 targets={fsname}-MDT0000 tests_str='create lookup destroy' mds-survey"
        ),
    )?;
    let found = rows(&text, "mdt 1 file");
    ensure!(found.len() == 2, "{text}");
    for row in &found {
        ensure!(row[3] == "80" && row[5] == "2", "{row:?}");
        for test in ["create", "lookup", "destroy"] {
            ensure!(figure(row, test)? > 0.0, "{row:?}");
        }
    }
    ensure!(std::fs::read_dir(fs.mount(0))?.next().is_none(), "everything was removed");
    fs.fsck()
}

/// Figures of the last line that begins with `letter` below a title, by their names.
fn rates(text: &str, title: &str, letter: &str) -> Result<Vec<f64>> {
    let below = text.lines().skip_while(|l| !l.starts_with(title)).skip(1);
    let line = below.take(2).find(|l| l.starts_with(letter)).with_context(|| format!("{title} in {text}"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    ["Avg:", "Min:", "Max:"].iter().map(|w| figure(&words, w)).collect()
}

#[test]
fn the_transport_is_tested_between_hosts_by_the_lines_of_notes() -> Result<()> {
    let s = Scratch::new("lst");
    let path = programs(s.path())?;
    let hosts = Hosts::new(3, &[])?;
    let mut nodes = Vec::new();
    for h in [1, 2] {
        let mut c = hosts.on(h, "nacre");
        c.args(["lst", "serve", "--nid", &Hosts::nid(h)]);
        nodes.push(Running(c.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?));
    }
    let on_console = |line: &str| -> Result<Output> {
        let mut c = Command::new("nsenter");
        c.arg(format!("--net={}", hosts.network(3))).args(["bash", "-uc", line]);
        run_within(c.env("PATH", &path).env("NACRE_RUN_DIR", s.path()), LIMIT)
    };
    let (client, server) = (Hosts::nid(1), Hosts::nid(2));
    let ready = format!(
        "export LST_SESSION=up; lst new_session up && lst add_group a {client} {server}; e=$?; lst end_session; exit $e"
    );
    wait_until("both nodes answer", LIMIT, || on_console(&ready).is_ok_and(|o| o.status.success()))?;
    // as it is written, with our addresses and less patience
    let line = format!(
        "export LST_SESSION=$$; lst new_session rw; lst add_group clients {client}; lst add_group servers {server}; lst add_batch bulk_rw; lst add_test --batch bulk_rw --distribute 4:1 --concurrency 8 --from clients --to servers brw read size=1M; lst run bulk_rw; lst stat clients servers & sleep 6; lst stop bulk_rw; lst end_session; wait"
    );
    let o = on_console(&line)?;
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    ensure!(o.status.success(), "{text}{}", String::from_utf8_lossy(&o.stderr));
    for said in [
        "SESSION: rw FEATURES: 1 TIMEOUT: 300 FORCE: No",
        &format!("{client} are added to session"),
        "Test was added successfully",
        "bulk_rw is running now",
        "Batch is stopped",
        "session is ended",
    ] {
        ensure!(text.contains(said), "'{said}' in {text}");
    }
    // what clients receive is what servers send
    let (got, sent) = (
        rates(&text, "[LNet Bandwidth of clients]", "[R]")?,
        rates(&text, "[LNet Bandwidth of servers]", "[W]")?,
    );
    ensure!(got[0] > 1.0 && (got[0] / sent[0] - 1.0).abs() < 0.2, "{text}");
    ensure!(rates(&text, "[LNet Rates of servers]", "[R]")?[1] > 1.0, "{text}");
    // writes that are checked, a bound of requests, and a second session
    let line = format!(
        "export LST_SESSION=w; set -e; lst new_session w; lst add_group c {client}; lst add_group s {server}; lst add_batch b
         lst add_test --batch b --loop 50 --from c --to s brw write check=full size=64K
         lst add_test --batch b --loop 50 --from s --to c ping
         lst list_group; lst list_group --all c; lst list_batch; lst run b
         until lst query b | grep -q 'State: 0'; do :; done
         lst ping --group s; lst show_error c s
         if LST_SESSION=x lst new_session x && LST_SESSION=x lst add_group g {client}; then exit 3; fi
         LST_SESSION=x lst end_session; lst end_session"
    );
    let o = on_console(&line)?;
    let (text, errors) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    ensure!(o.status.success(), "{text}{errors}");
    for said in [
        "1) c",
        "Total 2 groups",
        &format!("{client}: Active"),
        "Total 1 batches",
        "Total 0 error nodes in c",
    ] {
        ensure!(text.contains(said), "'{said}' in {text}");
    }
    ensure!(errors.contains("busy with session 'w'"), "{errors}");
    // the survey of objects, without objects
    let o = on_console(&format!(
        "case=network thrlo=2 thrhi=4 size=16 targets=\"{client} {server}\" tests_str=\"write read\" obdfilter-survey"
    ))?;
    let (text, errors) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    let found = rows(&text, "ost ");
    ensure!(o.status.success() && found.len() == 2, "{text}{errors}");
    for row in &found {
        ensure!(row[..4] == ["ost", "2", "sz", "32768K"], "{row:?}");
        ensure!(figure(row, "write")? > 0.0 && figure(row, "read")? > 0.0, "{row:?}");
    }
    drop(nodes);
    Ok(())
}

#[test]
fn lines_for_ior_iozone_and_mdtest_run_on_a_mount() -> Result<()> {
    let fs = TestFs::up("surveylines", 2, 1)?;
    let path = programs(fs.scratch())?;
    let mnt = fs.mount(0).display();
    let text = prints(
        &path,
        &format!(
            "nacre bench IOR -a POSIX -N 3 -b 8m -d 1 -t 1024k -o {mnt}/FILE -e -g -w -r -s 1 -i 2 -vv -F -C"
        ),
    )?;
    ensure!(rows(&text, "write ").len() == 2 && text.contains("Max Read: "), "{text}");
    prints(&path, &format!("nacre bench -np 4 IOR -a POSIX -b 4m -w -t 4m -o {mnt}/FILE -F -k -B"))?;
    prints(&path, &format!("nacre bench -np 4 IOR -a POSIX -b 4m -t 4m -o {mnt}/FILE -F -r"))?;
    let text =
        prints(&path, &format!("cd {mnt}; nacre bench iozone -e -+u -t 3 -r 1024k -s 4m -i0 -i1 -i 5 -i 8"))?;
    for workers in
        ["initial writers", "rewriters", "readers", "re-readers", "stride readers", "mixed workload"]
    {
        ensure!(text.contains(&format!("Children see throughput for  3 {workers}")), "{workers} in {text}");
    }
    for line in ["-u -d DIR -i 3 -b 3 -z 1 -L -I 5 -y -u -t -r", "-u -d DIR -i 3 -b 3 -z 1 -L -I 5 -u -t -r"]
    {
        let line = line.replace("DIR", &format!("{mnt}/md"));
        let text = prints(&path, &format!("nacre bench -np 2 mdtest {line}"))?;
        ensure!(text.contains("File creation") && text.contains("(of 3 iterations)"), "{text}");
    }
    for size in ["128", "4096", "128k"] {
        prints(&path, &format!("nacre bench -np 3 mdtest -i 2 -F -w {size} -L -n 32 -d {mnt}/md -v"))?;
    }
    ensure!(std::fs::read_dir(fs.mount(0))?.next().is_none(), "everything was removed");
    fs.fsck()
}
