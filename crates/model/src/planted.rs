//! Bugs that a test switches on, one at a time, to show that the simulator finds each.
//!
//! Off unless a test says otherwise: the check is one relaxed load of a byte that never changes.
//!
//! A bug that is always on shows that an oracle sees a massacre. One that happens once, the n-th time that
//! its place is passed ([`plant_once`]), shows that it sees a single event.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident = $num:literal,)*) => {
        /// What may be broken on purpose.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Bug { $($(#[$doc])* $name = $num,)* }

        impl Bug {
            pub const ALL: &'static [Bug] = &[$(Bug::$name,)*];
        }
    };
}

bugs! {
    /// The journal reports a block durable without the flush.
    SkippedFlush = 1,
    /// The reply slot is not stored with the operation.
    LostReplySlot = 2,
    /// A resent request is executed again instead of answered from its slot.
    AppliedTwice = 3,
    /// Replay of the journal takes blocks of the torn tail.
    TornTailAccepted = 4,
    /// Records of the journal are taken without a look at their salt and positions.
    ForgedJournalBytes = 150,
    /// Somebody reads holes where a component has got objects meanwhile: nobody asks whether it has.
    HolesUnconfirmed = 152,
    /// A component gets objects, and those who have the layout are not told.
    InstantiatedUnasked = 153,
    /// A rename does not write the new back-pointer.
    ForgottenBackPointer = 5,
    /// A create does not write the reverse index of its objects.
    ForgottenReverseIndex = 6,
    /// The metadata server answers before the operation is durable.
    ReplyBeforeDurable = 7,
    /// A read-only answer does not wait for what it shows to be durable.
    ReadUndurable = 8,
    /// The last close of an unlinked file leaves it.
    OrphanPurgeSkipped = 9,
    /// A hard link does not count.
    LinkCountForgotten = 10,
    /// The second stripe of a file is mapped one block off.
    WrongStripe = 11,
    /// Objects of a removed file are never destroyed.
    ForgottenDestroy = 12,
    /// A restarted metadata server serves before its clients said what they have open.
    NoRecoveryWindow = 13,
    /// A read or write over several objects takes no lock.
    NoExtentLock = 14,
    /// An answer does not wait for the commit of what it shows of other clients' changes.
    NoCommitOnSharing = 15,
    /// A client sends its uncommitted requests again in the wrong order.
    ReplayOutOfOrder = 16,
    /// A client does not send its uncommitted requests again.
    ReplaySkipped = 17,
    /// A request that is sent again though it survived is executed once more.
    ReplayedTwice = 18,
    /// A change does not ask other clients for their leases.
    RevokeNotSent = 40,
    /// A lease is granted on a file while others are asked for theirs, for a change that does not look again.
    GrantWhileRevoking = 41,
    /// A client answers a revocation before it drops what it keeps.
    CancelBeforeInvalidate = 42,
    /// A client keeps a file's attributes over a revocation.
    StaleAttrKept = 43,
    /// A client keeps what an answer showed although it was asked for it back meanwhile.
    RaceRuleIgnored = 44,
    /// A client keeps what a server granted before its restart.
    CacheKeptOverRestart = 45,
    /// A client gives a lease back without a word of what it has open under it.
    OpenNotTold = 46,
    /// A client keeps a small file's data over a revocation and uses it.
    ContentKeptAfterRevoke = 110,
    /// A client keeps a small file's data that came under a lease which was asked back meanwhile.
    ContentRaceIgnored = 111,
    /// A client's own write is not put into the small file's data that it keeps.
    ContentWithoutOwnWrite = 112,
    /// A client gives an exclusive lease back before it told what it executed under it.
    LeaseBeforePending = 47,
    /// One kind of request (readdir) does not wait for what was executed before it.
    BarrierForgotten = 48,
    /// A restarted server is not told of the exclusive leases under which there is something to be sent.
    PendingNotReclaimed = 49,
    /// A directory of which only some names are known is taken to be known.
    AbsenceAssumed = 50,
    /// A write of a part of a block leaves the block's checksum as it was.
    SumOfPartForgotten = 80,
    /// Blocks are read without a look at their checksums.
    SumUnverified = 81,
    /// An object server forgets to tell a holder that its extent lock is wanted.
    LostBlockingCallback = 30,
    /// An extent lock is granted wider than nobody else's.
    GrantTooWide = 31,
    /// A client gives an extent lock back before it wrote what it kept under it.
    CancelBeforeFlush = 32,
    /// A truncate forgets to cut what the client keeps.
    DirtyKeptBehindTruncate = 33,
    /// A client keeps what it read after it gave the lock back.
    CacheKeptWithoutLock = 34,
    /// A lock or lease is given back while the kernel has pages that were filled under it.
    PagesKeptWithoutLock = 35,
    /// Pages that can be stored into are filled under a lock for reading.
    PagesFilledToRead = 36,
    /// A group is committed before the data that its records rely on is flushed.
    DataFlushedLate = 100,
    /// A start takes records of large writes without a look at their data.
    DataNotLookedFor = 101,
    /// A start believes what the page cache has of a file, whether or not the disk has it.
    PhantomPages = 102,
    /// A growing file loses its data on the MDT before the objects have it durably.
    GrownBeforeDurable = 60,
    /// After a file grew the MDT still takes data by the old layout.
    OldLayoutAccepted = 61,
    /// A server goes on although its heartbeat is late.
    HeartbeatTooLate = 120,
    /// A server goes on although it knows that another one has its target.
    ZombieAccepted = 121,
    /// A server takes a target without looking whether another one is alive.
    TakenUnwatched = 122,
    /// An object server keeps the locks of a client that is gone.
    EvictionForgetsLock = 124,
    /// A server believes its lease although its host's clocks stood still.
    StoppedClockServer = 126,
    /// A client believes what it keeps although its host's clocks stood still.
    StoppedClockClient = 127,
    /// A recovery window closes before its clients had time to come.
    WindowClosedEarly = 125,
    /// An error of what was answered already is not remembered.
    ErrorToldToNobody = 140,
    /// A close takes the error that the file's next fsync is to report.
    ErrorTakenByClose = 141,
    /// A flush of the journal that fails passes for one that did not.
    SwallowedError = 142,
    /// What nobody waits for is not committed for a minute.
    StalledCommit = 103,
    /// A record lock is granted although another owner holds one that conflicts.
    RecordLockShared = 130,
    /// Who waits for a record lock or flock is not told when its holder unlocks.
    LockWaiterForgotten = 131,
    /// The metadata server keeps the locks of a client that is gone.
    EvictionForgetsRecordLock = 132,
    /// What a change of an inode does to its owner's usage is not counted.
    UsageForgotten = 201,
    /// OSTs are not told of a file's new owner.
    ChownUncounted = 202,
    /// What an object's blocks are is looked at when it is changed, and not later.
    BlocksUnsettled = 203,
    /// What an object had is not taken off its owner's usage when it is destroyed.
    DestroyUncounted = 204,
    /// New times of a file lose against a write that a clock ahead stamped.
    TimesByClocks = 205,
    /// What is left of a limit is given to one target, and divided among all as well.
    ShareGivenTwice = 206,
    /// An OST that is to have less of a limit keeps what it had.
    ShareNotGivenUp = 207,
    /// An OST does not know after a restart how much of a limit it has.
    ShareForgotten = 208,
    /// OSTs that were away when limits were changed are not told.
    LimitChangeUntold = 209,
    /// What moves to a directory with another quota is counted where it was.
    DirectoryLostAtRename = 230,
    /// A request that a server had no memory for is not sent again.
    PutOffForgotten = 134,
    /// A group lock is granted although another group holds the file.
    GroupsMixed = 133,
    /// A change of mode is not stored.
    LostMode = 160,
    /// Everybody may do everything.
    PermissionSkipped = 161,
    /// An OST takes requests by a layout from before a fence.
    OldGenerationAccepted = 170,
    /// A fence does not wait for the locks of clients: what they keep goes to the old objects later.
    FenceBesideLocks = 171,
    /// Neither a fence nor the end of an object takes locks back that are for reading: what a kernel has in
    /// pages of the old objects stays there.
    MappingOfOldObjects = 172,
    /// A client goes on with a layout that it was asked for.
    LayoutBeyondLease = 173,
    /// The old objects of a file go before it has its new layout.
    DestroyedBeforeSwitch = 174,
    /// A file that is moved gets the size that its old objects had before the fence.
    SizeOfOldObjects = 175,
    /// Who deletes a component by a layout that is not the file's any more deletes another one.
    DeletedByOldLayout = 180,
    /// What was written to a file in the last moments of its copy is not copied.
    LastMomentsNotCopied = 181,
    /// A file gets its new layout before the copy is durable.
    SwitchedBeforeDurable = 182,
    /// Objects are destroyed before it is durable that their file has them no more.
    DestroyedBeforeDurable = 183,
    /// An attempt that came to nothing, or was withdrawn, leaves the objects that it made.
    AttemptLeavesObjects = 184,
    /// An OST that is given no new objects gets some.
    ClosedOstChosen = 185,
    /// Objects go while clients have locks on them and without a trace: what clients keep is written later.
    GoneBesideLocks = 186,
    /// Flags of one component are given to another.
    OtherComponentMarked = 187,
    /// What lay with the inode stays there when the file moves to objects.
    SmallDataLeft = 188,
    /// A restarted metadata server does not remember that a file was being moved.
    AttemptForgotten = 189,
    /// The id of a component that was deleted is given to a new one.
    ComponentIdsReused = 190,
    /// A change is made without its record in the changelog.
    ChangelogRecordLost = 191,
    /// A change has two records in the changelog.
    ChangelogRecordDoubled = 192,
    /// A purge does not look at the file again inside its transaction.
    PurgeUnlooked = 210,
    /// Of changes that are made together, records of renames come behind all others.
    RenameRecordedLate = 211,
    /// What a file without a name was counted as is not taken off its owner's usage when it goes.
    OrphanUncounted = 212,
    /// What one consumer cleared is freed, whether or not others need it.
    ClearedForAll = 213,
    /// What a change does to usage comes into the table with the next one: a crash between them loses it.
    UsageWrittenLate = 214,
    /// Others are served beside a client that is back after a restart and has not ended its recovery.
    SlowServedBeside = 216,
    /// What jumped in a target's history is judged by the hours of the same answer only.
    HistoryJudgedByPage = 215,
    /// A mount says that it changes nothing any more while changes that it began are under way.
    MaintenanceQuietEarly = 217,
    /// A mount goes by what it was told it may keep for a second, however fast others use up the rest.
    KeepsByOldAnswer = 218,
    /// What somebody may have on the OSTs of a pool is looked at by nobody.
    PoolLimitForgotten = 231,
    /// A modification is executed although the metadata target is frozen.
    FrozenModified = 240,
    /// A check of objects mends by what an OST said before it was told all that waits for it.
    CheckedByOldWord = 241,
    /// A snapshot has what its files were when they were cloned first.
    SnapshotStale = 249,
    /// What is removed from a directory that has its trash kept goes for good.
    TrashForgotten = 250,
    /// A mount goes on changing files although it says that it holds a maintenance.
    MaintenanceUnheld = 251,
    /// Who waits for the end of a maintenance is not told of it.
    MaintenanceEndUntold = 252,
    /// A mount does not say that it knows of a maintenance: targets refuse what it still has to write, and
    /// what it is left alone for.
    MaintenanceUnsaid = 253,
    /// A file whose inode is lost is put together from its objects although one of them was destroyed.
    RebuiltFromRemains = 254,
    /// A session stays where its server says nothing, although it answers on another network.
    SilentAddressKept = 255,
}

impl Bug {
    /// Programs that check themselves end in a panic for this one, before anybody is told anything wrong.
    pub fn ends_in_panic(self) -> bool {
        false
    }
}

static PLANTED: AtomicU8 = AtomicU8::new(0);
/// How often the place of the bug was passed.
static PASSED: AtomicU64 = AtomicU64::new(0);
/// It happens this time only; 0: each time.
static ONLY: AtomicU64 = AtomicU64::new(0);

/// Whether this bug is switched on, and happens now.
#[inline]
pub fn on(bug: Bug) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as u8 && happens()
}

#[cold]
fn happens() -> bool {
    let passed = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
    let only = ONLY.load(Ordering::Relaxed);
    only == 0 || only == passed
}

/// Switches one bug on for the whole process, or all off.
pub fn plant(bug: Option<Bug>) {
    set(bug, 0);
}

/// Switches one bug on that happens once: the `nth` time (from 1 on) that its place is passed; 0: each time.
pub fn plant_once(bug: Bug, nth: u64) {
    set(Some(bug), nth);
}

fn set(bug: Option<Bug>, only: u64) {
    ONLY.store(only, Ordering::Relaxed);
    PASSED.store(0, Ordering::Relaxed);
    PLANTED.store(bug.map_or(0, |b| b as u8), Ordering::Relaxed);
}

/// How often the place of the planted bug was passed since it was planted.
pub fn passed() -> u64 {
    PASSED.load(Ordering::Relaxed)
}
