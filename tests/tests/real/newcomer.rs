//! README.md, typed from its first command to its last in the tree as it is: what it makes lies on top of the
//! tree and goes with the test. Where it goes on to, the tutorial, is a chapter of the manual (manual.rs).

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{Scratch, ok_within};
use tests::page::fenced;

const LIMIT: Duration = Duration::from_secs(900);
/// Ahead of what is printed behind `make up`.
const MARK: &str = "@@ it is up";

/// Its blocks of commands, without the test command, which runs this.
fn commands(readme: &str) -> Vec<String> {
    let typed = |all: Vec<&str>| {
        all.into_iter().filter(|l| !l.starts_with("make test ")).collect::<Vec<_>>().join("\n")
    };
    fenced(readme).into_iter().filter(|(kind, _)| *kind == "sh").map(|(_, all)| typed(all)).collect()
}

/// What its picture of `nacre status` shows of each process: the role, the state, what it serves.
fn pictured(readme: &str) -> Vec<(String, String, String)> {
    let right = readme.lines().filter_map(|l| l.split_once("│  "));
    let words = right.map(|(_, r)| r.split_whitespace().collect::<Vec<_>>());
    let of_process = words.filter(|w| w.len() >= 5 && w[1].parse::<u32>().is_ok());
    of_process.map(|w| (w[0].into(), w[2].into(), w[w.len() - 1].trim_start_matches('…').into())).collect()
}

/// Nothing a build was told of this one, but for where it lies and how it is done: as the gate does it, so
/// that nothing is built once more.
fn clean(c: &mut Command) {
    let keep = ["CARGO_HOME", "CARGO_TARGET_DIR"];
    for (name, _) in std::env::vars() {
        let kept = keep.contains(&name.as_str()) || name.starts_with("CARGO_PROFILE_");
        if name.starts_with("CARGO") && !kept || name.starts_with("RUST_TEST") {
            c.env_remove(name);
        }
    }
    let lto = std::env::var("CARGO_PROFILE_RELEASE_LTO");
    c.env("CARGO_PROFILE_RELEASE_LTO", lto.as_deref().unwrap_or("off"));
}

#[test]
fn the_readme_can_be_followed_to_its_end() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let readme = fs::read_to_string(root.join("README.md"))?;
    let s = Scratch::new("newcomer");
    for d in ["changes", "home"] {
        fs::create_dir(s.path().join(d))?;
    }
    let (at, tree, true_home) = (s.path().display(), root.display(), std::env::var("HOME")?);
    let mut script = format!(
        "set -euo pipefail\nexec 2>&1
cover() {{
  mkdir {at}/changes/upper {at}/changes/work
  mount -t overlay overlay -o lowerdir={tree},upperdir={at}/changes/upper,workdir={at}/changes/work {tree}
}}
# Not every file system can carry the changes of an overlay.
cover 2>/dev/null || {{ mount -t tmpfs tmpfs {at}/changes; cover; }}
cd {tree}
[ -e target ] || ln -s $CARGO_TARGET_DIR target
mkdir -p {at}/home/.cargo/registry && cp -r crates/model/src {at}/home/.cargo/registry/src
export CARGO_HOME=${{CARGO_HOME:-{true_home}/.cargo}} RUSTUP_HOME=${{RUSTUP_HOME:-{true_home}/.rustup}} HOME={at}/home
trap 'target/release/nacre down --force --dir .nacre >/dev/null 2>&1 || true' EXIT\n"
    );
    let blocks = commands(&readme);
    ensure!(blocks.len() == 2 && blocks[0].starts_with("make up "), "{blocks:?}");
    script += &format!("{}\necho '{MARK}'\n{}\n", blocks[0], blocks[1]);
    // What it promises of the rest.
    script += "cmp /bin/bash mnt/wide\ndiff -r ~/.cargo/registry/src mnt/src
make down\n[ ! -e mnt/wide ]\nmake up\ncmp /bin/bash mnt/wide
make wipe\n[ ! -e .nacre ]\n[ ! -e mnt/wide ]\nmake help\n";
    let typed = s.path().join("typed");
    fs::write(&typed, script)?;
    let mut c = Command::new("unshare");
    c.args(["--mount", "bash"]).arg(&typed);
    clean(&mut c);
    let said = ok_within(&mut c, LIMIT)?;
    let screen = said.split_once(MARK).context("it is up")?.1;
    let all = pictured(&readme);
    ensure!(all.len() == 6, "the picture has six processes: {all:?}");
    for (role, state, serves) in &all {
        let is = |l: &str| {
            let w: Vec<&str> = l.split_whitespace().collect();
            w.len() >= 4 && w[0] == role && w[2] == state && w[w.len() - 1].ends_with(serves)
        };
        ensure!(screen.lines().any(is), "{role} {state} {serves}: {screen}");
    }
    ensure!(screen.contains("lmm_stripe_count:  4"), "{screen}");
    Ok(())
}
