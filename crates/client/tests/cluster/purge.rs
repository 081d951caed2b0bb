//! Names that go only if their files are what they were, whatever other mounts keep of them.

use crate::data::{read, striped, write};
use crate::harness::{Cluster, at, call};
use client::control::{ControlError, Reply, Request, Seen};
use client::{Fs, admin};
use model::{Attr, Errno, SetAttr, SetTime};
use std::sync::Arc;
use wire::msg::scan::{Condition, Number, Test};

async fn look(fs: &Arc<Fs>, name: &str) -> Attr {
    let fid = fs.clone().lookup(call(), fs.root(), name.into()).await.unwrap().fid;
    fs.clone().getattr(call(), fid).await.unwrap()
}

async fn purge(fs: &Arc<Fs>, name: &str, a: &Attr, tests: Vec<Test>) -> Result<Reply, Errno> {
    let Attr { fid, uid, gid, projid, size, atime, mtime, ctime, .. } = *a;
    let seen = Seen { fid, uid, gid, projid, size, atime, mtime, ctime };
    let request = Request::Purge { name: name.into(), seen, tests, unless: Vec::new() };
    let answer = admin::answer(fs, call(), fs.root(), request).await;
    answer.map_err(|e: ControlError| Errno(e.errno))
}

/// In a layout of so many stripes; 0: its data lies with its inode.
fn one_file(stripes: i32) {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&b, "f", stripes).await;
        write(&b, &f, 0, vec![1; 100]).await;
        let seen = look(&a, "f").await;
        assert_eq!(seen.size, 100);
        assert_eq!(purge(&a, "f", &seen, Vec::new()).await, Err(Errno::EBUSY), "the other mount has it open");
        b.clone().close(f).await.unwrap();

        // Written behind the back of who looked, and not yet sent by who wrote.
        let fid = look(&b, "f").await.fid;
        let f = Arc::new(b.clone().open(call(), fid, 2).await.unwrap());
        write(&b, &f, 100, vec![2; 100]).await;
        b.clone().close(f).await.unwrap();
        assert_eq!(purge(&a, "f", &seen, Vec::new()).await, Err(Errno::ECANCELED), "it was written");

        // Read, so that its time of access is new: a rule about that time does not hold any more.
        let old = Some(SetTime::At(at(1_000_000)));
        let set = SetAttr { atime: old, mtime: old, ..SetAttr::default() };
        a.clone().setattr(call(), fid, set).await.unwrap();
        let seen = look(&a, "f").await;
        let f = Arc::new(b.clone().open(call(), fid, 0).await.unwrap());
        assert_eq!(read(&b, &f, 0, 300).await.len(), 200);
        b.clone().close(f).await.unwrap();
        c.until("the time is told", || async { look(&a, "f").await.atime > at(1_000_000) }).await;
        let unread = Condition::Within(Number::Atime, i64::MIN, 1_000_000);
        let unread = vec![Test { negated: false, condition: unread }];
        assert_eq!(purge(&a, "f", &seen, unread.clone()).await, Err(Errno::ECANCELED), "it was read");
        let seen = look(&a, "f").await;

        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        b.clone().setattr(call(), fid, set).await.unwrap();
        assert_eq!(purge(&a, "f", &seen, Vec::new()).await, Err(Errno::ECANCELED), "it was changed");
        let seen = look(&a, "f").await;
        assert_eq!(purge(&a, "g", &seen, Vec::new()).await, Err(Errno::ENOENT));
        assert_eq!(purge(&a, "f", &seen, Vec::new()).await, Ok(Reply::Done));
        for fs in [&a, &b] {
            let gone = fs.clone().lookup(call(), fs.root(), b"f".to_vec()).await;
            assert_eq!(gone.err(), Some(Errno::ENOENT));
        }
    });
}

#[test]
fn a_file_with_objects_goes_only_if_nobody_uses_or_changed_it() {
    one_file(1);
}

#[test]
fn a_file_whose_data_lies_with_its_inode_goes_only_if_nobody_uses_or_changed_it() {
    one_file(0);
}
