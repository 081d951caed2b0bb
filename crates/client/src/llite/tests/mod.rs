//! The operations against fake servers, in virtual time. Below are the real layers: what an operation
//! promises is made of what they do. The seam is the network, as for all layers (`crate::testing`), so each
//! test says what servers were asked, what they have afterwards, and what a caller was told.

mod attributes;
mod errors;
mod interrupted;
mod layouts;
mod locks;
mod names;
mod privileges;
mod small;
mod space;

use super::{Fs, Locks};
use crate::testing::{self, Cluster, Fake, FakeMdt, FakeOst};
use crate::{Call, MountOptions, OpenHandle, R};
use bytes::Bytes;
use model::layout::{ComponentSpec, EOF};
use model::mutex::Mutex;
use model::{Cred, Errno, Fid, FileType, Layout, SetAttr};
use rpc::ClientId;
use rpc::testing::Lab;
use std::future::Future;
use std::sync::Arc;
use world::World;

const UNIT: u64 = 64 << 10;
const OSTS: u16 = 3;
const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;

/// A mount, and the servers below it.
struct Rig {
    c: Cluster,
    world: World,
    fs: Arc<Fs>,
}

/// What something that goes on beside the test came to.
type Ended<T> = Arc<Mutex<Option<R<T>>>>;

impl Rig {
    fn mdt(&self) -> &Fake<FakeMdt> {
        &self.c.mdts[0].fake
    }

    fn ost(&self, index: usize) -> &Fake<FakeOst> {
        &self.c.osts[index].fake
    }

    fn client(&self) -> ClientId {
        ClientId(self.fs.cx.uuid)
    }

    /// A file whose data lies with its inode; what it grows into has an object on each of two OSTs.
    fn small(&self, number: u32, data: &[u8]) -> Fid {
        let fid = Fid::new(9, number, 0);
        let mut s = self.mdt().script();
        let i = s.add(fid, FileType::Regular, Some(Layout::on_mdt(UNIT as u32)));
        i.data = data.to_vec();
        i.attr.size = data.len() as u64;
        i.grows_into = Some(Layout::striped((fid, 2), 1, UNIT as u32, "", &[0, 1]));
        fid
    }

    fn with_layout(&self, number: u32, layout: impl FnOnce(Fid) -> Layout) -> Fid {
        let fid = Fid::new(9, number, 0);
        self.mdt().script().add(fid, FileType::Regular, Some(layout(fid)));
        fid
    }

    /// A file with an object on each OST.
    fn striped(&self, number: u32) -> Fid {
        let osts: Vec<u16> = (0..OSTS).collect();
        self.with_layout(number, |fid| Layout::striped((fid, 1), 1, UNIT as u32, "", &osts))
    }

    /// A file of two components: the first has its object on OST 0, the other, behind [`UNIT`], has none yet.
    fn composite(&self, number: u32) -> Fid {
        let part =
            |end| ComponentSpec { end, stripe_count: 1, stripe_size: UNIT, ..ComponentSpec::default() };
        self.with_layout(number, |fid| {
            let mut l = Layout::composite(1, 1, &[part(UNIT), part(EOF)]);
            l.instantiate(0, fid, ("", &[0]));
            l
        })
    }

    fn layout(&self, fid: Fid) -> Layout {
        self.mdt().script().inode(fid).unwrap().layout.clone().expect("it has one")
    }

    /// What OSTs have of a file, object by object.
    fn stored(&self, fid: Fid) -> Vec<Vec<u8>> {
        let l = self.layout(fid);
        l.objects().map(|o| self.ost(usize::from(o.ost)).script().bytes(o.id).clone()).collect()
    }

    /// OSTs get data of a file.
    fn store(&self, fid: Fid, off: u64, data: &[u8]) {
        for e in self.layout(fid).extents(off, data.len() as u64) {
            let from = (e.file_offset - off) as usize;
            let mut ost = self.ost(usize::from(e.object.ost)).script();
            ost.put(e.object.id, e.object_offset, &data[from..from + e.len as usize]);
        }
    }

    /// Writes that OSTs were sent.
    fn ost_writes(&self) -> usize {
        self.c.osts.iter().map(|s| s.fake.script().writes.len()).sum()
    }

    fn on_osts(&self, op: wire::Op) -> usize {
        self.c.osts.iter().map(|s| s.fake.count(op)).sum()
    }

    async fn open(&self, fid: Fid, flags: u32) -> Arc<OpenHandle> {
        Arc::new(self.fs.clone().open(Call::default(), fid, flags).await.unwrap())
    }

    async fn write(&self, fid: Fid, off: u64, data: impl Into<Vec<u8>>) -> R<u64> {
        write(&self.fs, fid, Some(off), data).await
    }

    async fn append(&self, fid: Fid, data: impl Into<Vec<u8>>) -> R<u64> {
        write(&self.fs, fid, None, data).await
    }

    async fn read(&self, fid: Fid, off: u64, len: u64) -> R<Vec<u8>> {
        let file = self.open(fid, O_RDONLY).await;
        Ok(self.fs.clone().read(Call::default(), file, off, len as u32).await?.to_vec())
    }

    async fn size(&self, fid: Fid) -> R<u64> {
        Ok(self.fs.clone().getattr(Call::default(), fid).await?.size)
    }

    async fn truncate(&self, fid: Fid, size: u64) -> R<u64> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        Ok(self.fs.clone().setattr(Call::default(), fid, set).await?.size)
    }

    async fn fsync(&self, open: &OpenHandle) -> R<()> {
        self.fs.clone().fsync_open(Call::default(), &open.errors).await
    }

    async fn until(&self, what: &str, f: impl Fn() -> bool) {
        testing::until(&self.world, what, f).await;
    }

    /// Something that goes on beside the test.
    fn beside<T: Send + 'static>(&self, f: impl Future<Output = R<T>> + Send + 'static) -> Ended<T> {
        let ended: Ended<T> = Arc::default();
        let of_it = ended.clone();
        self.world.spawn("beside", async move { *of_it.lock() = Some(f.await) });
        ended
    }

    /// A call that is given up once servers hold what it sent.
    async fn interrupted<T>(
        &self,
        call: impl Future<Output = T> + Send,
        arrived: impl Fn() -> bool + Send + Sync,
    ) {
        let arrival = self.until("what was asked for arrived", arrived);
        let first = world::select(Box::pin(call), Box::pin(arrival)).await;
        assert!(matches!(first, world::Either::Right(())), "it is under way");
    }
}

async fn write(fs: &Arc<Fs>, fid: Fid, off: Option<u64>, data: impl Into<Vec<u8>>) -> R<u64> {
    let data = Bytes::from(data.into());
    fs.clone().write(Call::default(), fid, off.unwrap_or(0), off.is_none(), false, data).await
}

/// A call of an ordinary user.
fn user() -> Call {
    Call { cred: Cred::new(5, 5), ..Call::default() }
}

/// A different byte at each place, or nearly; never zero.
fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 + 1).collect()
}

fn run<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Rig) -> F) {
    run_with(seed, |_| {}, test);
}

/// A mount that is asked for as `how` says.
fn run_with<F: Future<Output = ()>>(
    seed: u64,
    how: impl FnOnce(&mut MountOptions),
    test: impl FnOnce(Rig) -> F,
) {
    let lab = Lab::new(seed);
    lab.run(async {
        let c = Cluster::new(&lab, 1, OSTS).await;
        let mut options = MountOptions {
            mgs_nids: c.mgs_nids(),
            fsname: "fs".into(),
            subdir: String::new(),
            port: 988,
            bind: None,
            networks: Default::default(),
            client_name: "client".into(),
            soft_timeout_ms: None,
            read_only: false,
        };
        how(&mut options);
        let fs = match Fs::mount(c.world.clone(), options).await {
            Ok(fs) => fs,
            Err(e) => panic!("the mount failed: {e}"),
        };
        test(Rig { world: c.world.clone(), c, fs }).await;
    });
}
