//! `nacre deploy erase`: removes a target of a file system from its folder, on its host. Of another one's it
//! touches nothing.

use super::facts::{self, Folder};
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::say;
use model::target::fsname_is_valid;
use model::{Errno, TargetKind};
use store::format::Superblock;
use store::{Db, DbOptions};
use world::World;
use world::sys::files;

fn refused(dir: &str, why: &str) -> Failure {
    Failure::explained("cannot erase", dir, Errno::EPERM, why)
}

/// Other file systems that an MGT serves. Opens it, as a server would.
fn others(world: &World, dir: &str, sb: &mut Superblock, fsname: &str) -> Result<Vec<String>, Failure> {
    let fail =
        |e: store::StoreError| Failure::Op { text: format!("cannot read '{dir}': {e}"), errno: e.errno() };
    sb.epoch = sb.epoch.checked_add(1).ok_or_else(|| refused(dir, "it used up its epochs"))?;
    sb.write(world, dir).map_err(fail)?;
    let db = Db::open(world, dir, sb.epoch, DbOptions::default()).map_err(fail)?;
    let state = mgs::read_configuration(&*db).map_err(fail);
    world::block_on(db.close()).map_err(fail)?;
    let names = state?.file_systems.into_keys();
    Ok(names.filter(|n| n != fsname).collect())
}

fn erase(world: &World, dir: &str, fsname: &str) -> Result<&'static str, Failure> {
    let fail =
        |e: store::StoreError| Failure::Op { text: format!("cannot erase '{dir}': {e}"), errno: e.errno() };
    match facts::folder(world, dir) {
        Folder::Missing | Folder::Empty => return Ok("nothing is there"),
        Folder::Foreign(name) => {
            return Err(refused(dir, &format!("it holds '{name}', which is no target's")));
        }
        Folder::Unreadable(why) => return Err(refused(dir, &why)),
        Folder::HalfMade => {}
        Folder::Target(l) if l.label != "MGS" && l.fsname != fsname => {
            return Err(refused(dir, &format!("it holds {}, which is not of '{fsname}'", l.label)));
        }
        Folder::Target(_) => {}
    }
    let _lock = crate::folder::hold(world, dir).map_err(fail)?;
    // Read again under the lock: its server may just have ended.
    if let Ok(mut sb) = Superblock::read(world, dir)
        && sb.target.kind == TargetKind::Mgt
        && let [first, ..] = others(world, dir, &mut sb, fsname)?.as_slice()
    {
        return Err(refused(dir, &format!("the MGS in it serves the file system '{first}' as well")));
    }
    super::super::mkfs::remove_own(dir)?;
    // A mount point, or with something of others in it: it stays.
    let _ = files::remove_dir(dir);
    Ok("erased")
}

/// The verb.
pub fn run(p: &Parsed) -> Result<i32, Failure> {
    let fsname =
        p.value("fsname").ok_or_else(|| Failure::usage("--fsname is missing: whose target is it?"))?;
    if !fsname_is_valid(fsname) {
        return Err(Failure::usage(format!("--fsname '{fsname}': 1 to 8 of A-Z a-z 0-9 _ -")));
    }
    let dir = super::super::mkfs::folder(p)?;
    let dir = dir.to_str().ok_or_else(|| Failure::usage("the path must be UTF-8"))?;
    let (world, _runtime) = world::real::start(1).map_err(|e| Failure::io("cannot start", "runtime", e))?;
    say!("{dir}: {}", erase(&world, dir, fsname)?);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::mkfs;
    use model::TargetId;

    #[test]
    fn a_target_of_another_file_system_and_an_mgs_of_others_are_kept() {
        let (world, _runtime) = world::real::start(1).unwrap();
        let base = std::env::temp_dir().join(format!("nacre-erase-{}", std::process::id()));
        let made = |name: &str, id: TargetId, fsname: &str| {
            let dir = base.join(name).to_str().unwrap().to_string();
            let sb = Superblock {
                key: Some(world.random_key()),
                ..Superblock::fresh(id, fsname.into(), world.random_uuid())
            };
            mkfs::format(&world, &dir, &sb).unwrap();
            dir
        };
        let ost = made("ost", TargetId::ost(3), "demo");
        let e = erase(&world, &ost, "other").unwrap_err().to_string();
        assert!(e.contains("demo-OST0003") && e.contains("not of 'other'"), "{e}");
        assert!(files::stat(std::path::Path::new(&ost), true).is_ok());
        assert_eq!(erase(&world, &ost, "demo").unwrap(), "erased");
        assert_eq!(erase(&world, &ost, "demo").unwrap(), "nothing is there");
        let mgt = made("mgt", TargetId::MGT, "");
        assert_eq!(erase(&world, &mgt, "demo").unwrap(), "erased");
        let _ = files::remove_tree(&base);
    }
}
