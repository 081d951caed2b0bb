//! Every limit of the file system, the unit last in the name.

pub const NAME_MAX_BYTES: usize = 255;
pub const PATH_MAX_BYTES: usize = 4096;
/// Longest symbolic link target.
pub const SYMLINK_MAX_BYTES: usize = 4095;
pub const XATTR_NAME_MAX_BYTES: usize = 255;
pub const XATTR_VALUE_MAX_BYTES: usize = 65536;
/// All names of a file's extended attributes together, as listxattr(2) bounds them.
pub const XATTR_LIST_MAX_BYTES: usize = 65536;
pub const LINK_MAX_LINKS: u32 = 65000;
pub const GROUPS_MAX: usize = 65536;
pub const ACL_ENTRIES_MAX: usize = 1024;

pub const FSNAME_MAX_BYTES: usize = 8;
pub const POOL_NAME_MAX_BYTES: usize = 15;
/// Pools of one file system.
pub const POOLS_MAX: usize = 1000;
/// Members of all of them together: they travel in one message.
pub const POOL_MEMBERS_MAX: usize = 65_536;
pub const JOBID_MAX_BYTES: usize = 31;
/// Jobs that one target counts at a time: what it shows of them fits into one message.
pub const JOBS_MAX: usize = 1000;

/// Directories with a quota: which of them lies in which travels in one message.
pub const DIRECTORY_QUOTAS_MAX: usize = 65_536;
/// Those around each other.
pub const DIRECTORY_DEPTH_MAX: usize = 64;

pub const STRIPE_COUNT_MAX: u32 = 2000;
pub const STRIPE_SIZE_MIN_BYTES: u64 = 65536;
pub const STRIPE_SIZE_MAX_BYTES: u64 = (1 << 32) - STRIPE_SIZE_MIN_BYTES;
pub const STRIPE_SIZE_DEFAULT_BYTES: u64 = 4 << 20;
pub const STRIPE_COUNT_DEFAULT: i32 = 1;
/// Largest share of a file that may lie with its inode.
pub const MDT_DATA_MAX_BYTES: u64 = 1 << 20;
/// Components of one layout.
pub const COMPONENTS_MAX: usize = 64;
/// Objects of one component on one OST.
pub const OVERSTRIPED_PER_OST_MAX: i32 = 32;
pub const OST_INDEX_MAX: u32 = 0xffde;

/// Largest file offset + 1: 2^63 − 1, as POSIX's off_t.
pub const FILE_SIZE_MAX_BYTES: u64 = i64::MAX as u64;

/// Body of one message.
pub const RPC_BODY_MAX_BYTES: usize = 4 << 20;
/// Bulk of one message.
pub const RPC_BULK_MAX_BYTES: usize = 16 << 20;
/// Bulk a client sends in one message by default.
pub const RPC_BULK_DEFAULT_BYTES: usize = 4 << 20;
/// What one checksum covers, at rest and on the wire.
pub const SUM_BLOCK_BYTES: usize = 4096;
/// Requests a client may have in flight with one target: its reply slots.
pub const SLOTS_PER_SESSION: u16 = 320;
/// `max_rpcs_in_flight` at most: others have slots left to give back what these wait for.
pub const RPCS_IN_FLIGHT_MAX: u64 = 256;
/// Operations of one batch message.
pub const BATCH_OPS_MAX: usize = 1000;
/// Files of one fetch message.
pub const FETCH_FILES_MAX: usize = 256;
/// Data of one fetch message, besides that of its first file.
pub const FETCH_MAX_BYTES: usize = 1 << 20;
/// Operations and their data, encoded, that a client may have executed under exclusive leases of one metadata
/// target and not sent: so much space is set aside for it.
pub const OWNER_PENDING_MAX_BYTES: u64 = 16 << 20;
/// How many these may be, those that are on their way included.
pub const OWNER_PENDING_MAX_OPS: usize = 16_384;
/// Objects named in one glimpse or destroy.
pub const OBJECTS_PER_RPC_MAX: usize = 16_384;
/// Clients one target knows at a time.
pub const CLIENTS_MAX: usize = 131_072;
/// Starts of a target: the numbers of its transactions and leases have the epoch above 40 bits.
pub const EPOCHS_MAX: u32 = 1 << 24;
/// How often a request whose data arrived damaged is sent again.
pub const DAMAGED_RESENDS_MAX: u32 = 5;
/// A connection's first frame, a hello: body, and no bulk.
pub const HELLO_MAX_BYTES: usize = 4096;
/// Connections of one server that did not say hello yet, in all and from one address.
pub const HELLOS_MAX: usize = 2048;
pub const HELLOS_PER_ADDRESS_MAX: usize = 512;
/// Connections of one server from one address.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 8192;
/// Clients that a server did not know, from one address: so many at once, and each second.
pub const NEW_CLIENTS_AT_ONCE: u32 = 1024;
pub const NEW_CLIENTS_PER_SECOND: u32 = 32;
/// Memory of requests that a server received and has not done: this part of the host's memory, …
pub const INBOUND_PART_OF_MEMORY: usize = 8;
/// … at least and at most so much.
pub const INBOUND_MIN_BYTES: usize = 64 << 20;
pub const INBOUND_MAX_BYTES: usize = 8 << 30;
/// Open files of one client.
pub const OPENS_PER_CLIENT_MAX: usize = 1 << 20;
/// Locks (flock, POSIX ranges) of one client.
pub const LOCKS_PER_CLIENT_MAX: usize = 1 << 20;
/// Files on which one client has a lease at a time.
pub const LEASES_PER_CLIENT_MAX_FILES: usize = 1 << 20;
/// The well-known port of a server node.
pub const PORT: u16 = 988;
/// relatime stores an access time that is older than this.
pub const RELATIME_SECS: i64 = 24 * 3600;
