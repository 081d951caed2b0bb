//! Programs that people use, on a mount.

use anyhow::{Result, ensure};
use std::process::Command;
use std::time::Duration;
use tests::cluster::{Scratch, TestFs, kit, ok_within, sh};
use tests::programs;

const MINUTE: Duration = Duration::from_secs(60);

/// A tree with links, modes, times, sparse and empty files, long names.
fn sample_tree(s: &Scratch) -> Result<String> {
    let p = s.path().join("tree").display().to_string();
    sh(
        &format!(
            r#"mkdir -p {p}/a/b/c {p}/empty; cd {p}
            for i in $(seq 300); do head -c $((i * 137)) /dev/urandom > a/f$i; done
            for i in $(seq 40); do head -c $((i * 5000)) /dev/urandom > a/b/g$i; done
            ln a/f1 a/b/hard; ln -s ../f2 a/b/soft; ln -s /nowhere dangling; mkfifo a/pipe
            truncate -s 5M a/sparse; printf x | dd of=a/sparse bs=1 seek=3000000 conv=notrunc status=none
            chmod 4711 a/f3; chmod 600 a/f4; touch -d '2001-02-03 04:05:06.789' a/f5; chown 1234:4321 a/f6
            touch "a/$(printf 'n%.0s' $(seq 255))"; setfattr -n user.note -v hello a/f7; setfacl -m u:1234:rwx a/f8
            setfacl -d -m g:4321:rx a/b/c"#
        ),
        MINUTE,
    )?;
    Ok(p)
}

#[test]
fn tar_and_rsync_there_and_back() -> Result<()> {
    let fs = TestFs::up("rsync", 4, 1)?;
    let s = Scratch::new("src");
    let tree = sample_tree(&s)?;
    let (m, back) = (fs.mount(0).display(), s.path().join("back").display().to_string());
    // Only this file system knows layouts.
    let own = "--filter='-x lustre.*'";
    sh(
        &format!("rsync -aHAX --checksum {tree}/ {m}/r/ && rsync -aHAX {own} --checksum {m}/r/ {back}/"),
        3 * MINUTE,
    )?;
    let left = sh(&format!("rsync -aHAX --checksum -n -i --delete {tree}/ {back}/"), MINUTE)?;
    ensure!(left.is_empty(), "rsync would still change:\n{left}");
    let left = sh(&format!("rsync -aHAX {own} --checksum -n -i --delete {tree}/ {m}/r/"), MINUTE)?;
    ensure!(left.is_empty(), "rsync would still change on the mount:\n{left}");
    sh(
        &format!(
            "tar -C {tree} --acls --xattrs -cf - . | (mkdir {m}/t && tar -C {m}/t --acls --xattrs -xf -)"
        ),
        3 * MINUTE,
    )?;
    sh(
        &format!(
            "diff -r --no-dereference -x pipe {tree} {m}/t && tar -C {m}/t -cf - . | tar -tf - >/dev/null"
        ),
        MINUTE,
    )?;
    fs.fsck()
}

#[test]
fn git_clone_and_fsck() -> Result<()> {
    let fs = TestFs::up("git", 4, 1)?;
    programs::git(fs.mount(0), 3, 60, fs.mount(0), 3 * MINUTE)
}

#[test]
fn sqlite_in_both_journal_modes() -> Result<()> {
    let fs = TestFs::up("sqlite", 2, 1)?;
    for mode in ["wal", "delete"] {
        let db = fs.mount(0).join(format!("{mode}.db"));
        programs::sqlite(&db, mode, 60, &db, 3 * MINUTE)?;
    }
    Ok(())
}

#[test]
fn cargo_builds_inside_the_mount() -> Result<()> {
    let fs = TestFs::up("cargo", 2, 1)?;
    let m = fs.mount(0).display();
    sh(
        &format!(
            r#"cd {m}; cargo -q init --name hello hello --vcs none; cd hello
            mkdir src/bin; for i in 1 2 3; do echo "fn main() {{ println!(\"{{}}\", hello::f($i)); }}" > src/bin/b$i.rs; done
            echo 'pub fn f(x: u64) -> u64 {{ (0..x).map(|v| v * v).sum() }}' > src/lib.rs
            rm -f src/main.rs; unset CARGO_TARGET_DIR RUSTFLAGS; cargo build -q --offline; test "$(target/debug/b3)" = 5; cargo test -q --offline"#
        ),
        5 * MINUTE,
    )?;
    Ok(())
}

#[test]
fn dbench_four_clients() -> Result<()> {
    let fs = TestFs::up("dbench", 4, 1)?;
    let dir = fs.mount(0).join("d");
    std::fs::create_dir(&dir)?;
    let out = ok_within(Command::new(kit("dbench")).args(["-t", "30", "-D"]).arg(&dir).arg("4"), 3 * MINUTE)?;
    ensure!(out.contains("Throughput"), "dbench printed no result:\n{out}");
    Ok(())
}

#[test]
fn stress_ng_file_and_directory_stressors() -> Result<()> {
    let fs = TestFs::up("stress", 3, 1)?;
    let dir = fs.mount(0).join("s");
    std::fs::create_dir(&dir)?;
    let tests = "access,chmod,chown,copy-file,dentry,dir,dirdeep,dup,fallocate,fcntl,file-ioctl,filename,flock,fpunch,getdent,hdd,iomix,link,lockf,locka,mknod,open,readahead,rename,seek,symlink,touch,utime,xattr";
    for t in tests.split(',') {
        ok_within(
            Command::new(kit("stress-ng"))
                .args([
                    &format!("--{t}"),
                    "2",
                    "--timeout",
                    "2s",
                    "--verify",
                    "--hdd-bytes",
                    "16M",
                    "--temp-path",
                ])
                .arg(&dir)
                .args([
                    "--iomix-bytes",
                    "16M",
                    "--fallocate-bytes",
                    "16M",
                    "--seek-size",
                    "8M",
                    "--copy-file-bytes",
                    "128M",
                ]),
            MINUTE,
        )
        .map_err(|e| e.context(format!("stressor {t}")))?;
    }
    fs.fsck()
}

/// A real tree survives `nacre down` and `nacre up`: the first files of the crates this build used, some
/// thousands of them (2,000 at least); the whole registry (20,000 and more) with `NACRE_BIG_TREE=1`.
#[test]
fn a_real_tree_is_there_after_down_and_up() -> Result<()> {
    let home =
        std::env::var("CARGO_HOME").unwrap_or_else(|_| std::env::var("HOME").unwrap_or_default() + "/.cargo");
    let src = format!("{home}/registry/src");
    let fs = TestFs::up("tree", 4, 1)?;
    let m = fs.mount(0).display();
    let some = if std::env::var_os("NACRE_BIG_TREE").is_some() { usize::MAX } else { 5000 };
    let list = fs.scratch().join("list").display().to_string();
    // Whole names only: a list cut by bytes ends inside a name, and what it cuts depends on the machine's
    // registry.
    sh(&format!("cd {src} && find . -type f | sort | awk 'NR <= {some}' > {list}"), MINUTE)?;
    let files = sh(&format!("wc -l < {list}"), MINUTE)?.trim().parse::<u32>()?;
    ensure!(files >= 2000, "only {files} files under {src}");
    sh(&format!("mkdir {m}/src && tar -C {src} -cf - -T {list} | tar -C {m}/src -xf -"), 15 * MINUTE)?;
    fs.down()?;
    fs.up_again()?;
    sh(
        &format!(
            "mkdir {0}/want && tar -C {src} -cf - -T {list} | tar -C {0}/want -xf -",
            fs.scratch().display()
        ),
        3 * MINUTE,
    )?;
    sh(&format!("diff -r {}/want {m}/src", fs.scratch().display()), 10 * MINUTE)?;
    println!("{files} files");
    fs.fsck()
}
