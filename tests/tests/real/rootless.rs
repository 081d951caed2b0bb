//! `nacre up` of an ordinary user, in namespaces of its own.

use anyhow::Result;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{Scratch, bin_dir, ok_within};

const LIMIT: Duration = Duration::from_secs(180);
/// Has no account.
const USER: &str = "54321";

#[test]
fn a_user_without_rights_has_a_file_system_and_leaves_nothing() -> Result<()> {
    let s = Scratch::new("rootless");
    std::fs::set_permissions(s.path(), std::fs::Permissions::from_mode(0o755))?;
    let script = s.path().join("script");
    std::fs::write(&script, include_str!("rootless.sh"))?;
    let mut c = Command::new("unshare");
    c.args(["--mount", "bash"]).arg(&script).arg(s.path()).arg(USER).arg(bin_dir());
    ok_within(&mut c, LIMIT).map(drop)
}
