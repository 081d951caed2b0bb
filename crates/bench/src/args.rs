//! Options. Where IOR and mdtest have one, it has their letter and meaning.

use clap::{Args, Parser};
use serde::Serialize;
use std::path::PathBuf;

/// Largest number of processes.
pub const PROCS_MAX: usize = 4096;

fn size(s: &str) -> Result<u64, String> {
    admin::size::parse_bytes(s, 1).ok_or_else(|| format!("'{s}' is no size such as 4k, 1m or 47008"))
}

fn procs(s: &str) -> Result<usize, String> {
    let n: usize = s.parse().map_err(|_| format!("'{s}' is no number"))?;
    if (1..=PROCS_MAX).contains(&n) { Ok(n) } else { Err(format!("1 to {PROCS_MAX} processes, not {n}")) }
}

/// What all load generators share.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct Common {
    /// Processes; each works by itself, as separate programs would
    #[arg(long, default_value = "1", value_parser = procs)]
    pub procs: usize,
    /// Directories, separated by commas, of which process N uses number N modulo their count: several mounts
    /// of one file system
    #[arg(long, value_delimiter = ',')]
    pub dirs: Vec<PathBuf>,
    /// Threads of one process instead of processes
    #[arg(long)]
    pub threads: bool,
    /// Flush, and empty the kernel's caches, before each phase that reads (needs root)
    #[arg(long)]
    pub drop_caches: bool,
    /// Flush, and run this shell line, before each phase that reads: to empty a client's own caches
    #[arg(long, value_name = "COMMAND")]
    pub hook: Option<String>,
    /// One JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Draws throughput against what --sweep varies, or against time, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Runs several times: procs=1,2,4 or transfer=4k,64k,1m (ior), procs=... or items=... (mdtest)
    #[arg(long, value_name = "WHAT=LIST")]
    pub sweep: Option<String>,
    /// No live progress
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Leave files behind also when interrupted
    #[arg(long)]
    pub keep: bool,
    /// Program to run the processes with; this one unless a test says otherwise
    #[arg(skip)]
    #[serde(skip)]
    pub program: Option<PathBuf>,
}

/// Writes and reads large files, as IOR does: one for each process or one for all
#[derive(Parser, Clone, Debug, Serialize)]
#[command(name = "nacre bench ior", bin_name = "nacre bench ior", disable_version_flag = true)]
#[command(args_override_self = true)]
pub struct IorArgs {
    /// Directories to work in, like --dirs
    pub directories: Vec<PathBuf>,
    #[command(flatten)]
    pub common: Common,
    /// Only POSIX: plain system calls
    #[arg(short = 'a', long = "api", value_name = "API", default_value = "POSIX")]
    pub api: String,
    /// File to work on, relative to each directory if those are given [default: nacre-bench.ior]
    #[arg(short = 'o', value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Processes, like --procs
    #[arg(short = 'N', value_name = "N", value_parser = procs)]
    pub tasks: Option<usize>,
    /// A file for each process
    #[arg(short = 'F')]
    pub file_per_process: bool,
    /// Bytes of one read or write
    #[arg(short = 't', value_parser = size, default_value = "256k", value_name = "SIZE")]
    pub transfer: u64,
    /// Bytes that a process has in one piece in a segment; a multiple of the transfer size
    #[arg(short = 'b', value_parser = size, default_value = "1m", value_name = "SIZE")]
    pub block: u64,
    /// Segments: block after block of each process, so many times
    #[arg(short = 's', default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub segments: u64,
    /// Write (neither -w nor -r: both)
    #[arg(short = 'w')]
    pub write: bool,
    /// Read
    #[arg(short = 'r')]
    pub read: bool,
    /// In random order
    #[arg(short = 'z')]
    pub random: bool,
    /// O_DIRECT
    #[arg(short = 'B', long = "direct", visible_alias = "posix.odirect")]
    pub direct: bool,
    /// fsync before a written file is closed
    #[arg(short = 'e')]
    pub fsync: bool,
    /// fsync after every write
    #[arg(short = 'Y')]
    pub fsync_each: bool,
    /// Each process reads what its neighbour wrote
    #[arg(short = 'C')]
    pub reorder: bool,
    /// With -C: how far away the neighbour is
    #[arg(short = 'Q', default_value_t = 1, value_name = "N")]
    pub offset: usize,
    /// Stop writing or reading after so many seconds
    #[arg(short = 'D', default_value_t = 0.0, value_name = "SECONDS")]
    pub deadline: f64,
    /// After -D, go on until all processes have done what the fastest has
    #[arg(long)]
    pub wear_out: bool,
    /// Write how far -D let it come, or read no further than is written there
    #[arg(long, value_name = "FILE")]
    pub status_file: Option<PathBuf>,
    /// IOR's stoneWallingWearOut=1 and stoneWallingStatusFile=FILE; useO_DIRECT=1
    #[arg(short = 'O', value_name = "KEY=VALUE", value_delimiter = ',')]
    pub directives: Vec<String>,
    /// Write a pattern that tells each byte's place, and verify it when reading; for reads of an earlier
    /// run's file, give it there as well
    #[arg(short = 'R')]
    pub verify: bool,
    /// Keep the files
    #[arg(short = 'k')]
    pub keep_files: bool,
    /// Do not remove existing files before writing
    #[arg(short = 'E')]
    pub existing: bool,
    /// Do all of it so many times
    #[arg(short = 'i', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub iterations: u32,
    /// Wait so many seconds between them
    #[arg(short = 'd', default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=86_400), value_name = "SECONDS")]
    pub delay: u64,
    /// Taken for IOR's sake: all begin each phase at once here
    #[arg(short = 'g')]
    pub barriers: bool,
    /// Taken for IOR's sake: everything is printed
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Creates, stats, reads and removes many small files and directories, as mdtest does
#[derive(Parser, Clone, Debug, Serialize)]
#[command(name = "nacre bench mdtest", bin_name = "nacre bench mdtest", disable_version_flag = true)]
#[command(args_override_self = true)]
pub struct MdtestArgs {
    /// Directories to work in, like --dirs
    pub directories: Vec<PathBuf>,
    #[command(flatten)]
    pub common: Common,
    /// Directory to work in, made if missing; relative to each directory if those are given
    #[arg(short = 'd', value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Files (and directories) of each process
    #[arg(short = 'n', default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub items: u64,
    /// Items in each directory of the tree instead of -n
    #[arg(short = 'I', value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub items_per_directory: Option<u64>,
    /// A tree for each process
    #[arg(short = 'u')]
    pub unique: bool,
    /// Levels of directories
    #[arg(short = 'z', default_value_t = 0, value_name = "DEPTH")]
    pub depth: u32,
    /// Directories in each directory of the levels above the last
    #[arg(short = 'b', default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub branch: u64,
    /// Items only in directories of the last level
    #[arg(short = 'L')]
    pub leaves_only: bool,
    /// Files only
    #[arg(short = 'F')]
    pub files_only: bool,
    /// Directories only
    #[arg(short = 'D')]
    pub directories_only: bool,
    /// Only these phases (none given: all): create
    #[arg(short = 'C')]
    pub create: bool,
    /// ... stat
    #[arg(short = 'T')]
    pub stat: bool,
    /// ... read
    #[arg(short = 'E')]
    pub read: bool,
    /// ... remove
    #[arg(short = 'r')]
    pub remove: bool,
    /// Bytes written into each new file
    #[arg(short = 'w', value_parser = size, default_value = "0", value_name = "SIZE")]
    pub write_bytes: u64,
    /// Bytes read from each file
    #[arg(short = 'e', value_parser = size, default_value = "0", value_name = "SIZE")]
    pub read_bytes: u64,
    /// fsync after writing
    #[arg(short = 'y')]
    pub fsync: bool,
    /// Stat what the neighbour at this distance made, read what the one at twice it did, and so on
    #[arg(short = 'N', default_value_t = 0, value_name = "SHIFT")]
    pub shift: usize,
    /// Stat in random order
    #[arg(short = 'R')]
    pub random: bool,
    /// Verify sizes and contents
    #[arg(short = 'X')]
    pub verify: bool,
    /// Stop creating after so many seconds, then go on until all have what the fastest has
    #[arg(short = 'W', default_value_t = 0.0, value_name = "SECONDS")]
    pub deadline: f64,
    /// Write how far -W let it come, or go no further than is written there
    #[arg(short = 'x', value_name = "FILE")]
    pub status_file: Option<PathBuf>,
    /// Taken for mdtest's sake: rates and times are always printed
    #[arg(short = 'P')]
    pub print: bool,
    /// Taken for mdtest's sake: making and removing trees are always phases of their own
    #[arg(short = 't')]
    pub time_trees: bool,
    /// Taken for mdtest's sake: everything is printed
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Do all of it so many times
    #[arg(short = 'i', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub iterations: u32,
}

/// A sequence like that of IO500, with its score; not comparable with listed results unless run as its rules
/// say
#[derive(Parser, Clone, Debug, Serialize)]
#[command(name = "nacre bench io500", bin_name = "nacre bench io500", disable_version_flag = true)]
pub struct Io500Args {
    /// Directories to work in, like --dirs
    pub directories: Vec<PathBuf>,
    #[command(flatten)]
    pub common: Common,
    /// Seconds of each phase that writes or creates (IO500's rules: 300)
    #[arg(long, default_value_t = 30.0)]
    pub seconds: f64,
    /// ior-easy: bytes of each process' file at most
    #[arg(long, value_parser = size, default_value = "4g", value_name = "SIZE")]
    pub easy_block: u64,
    /// ior-easy: bytes of one read or write
    #[arg(long, value_parser = size, default_value = "2m", value_name = "SIZE")]
    pub easy_transfer: u64,
    /// ior-hard: records of 47,008 bytes of each process at most
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub hard_segments: u64,
    /// mdtest-easy: files of each process at most
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub easy_files: u64,
    /// mdtest-hard: files of each process at most
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub hard_files: u64,
}

/// Records of large files in the orders that IOzone's throughput mode has, a file for each process
#[derive(Parser, Clone, Debug, Serialize)]
#[command(name = "nacre bench iozone", bin_name = "nacre bench iozone", disable_version_flag = true)]
#[command(disable_help_flag = true)]
pub struct IozoneArgs {
    /// Directories to work in, like --dirs [default: the current one]
    pub directories: Vec<PathBuf>,
    #[command(flatten)]
    pub common: Common,
    /// Processes, like --procs
    #[arg(short = 't', value_name = "N", value_parser = procs)]
    pub threads_of_iozone: Option<usize>,
    /// Bytes of a record
    #[arg(short = 'r', value_parser = size_in_k, default_value = "4k", value_name = "SIZE")]
    pub record: u64,
    /// Bytes of each file
    #[arg(short = 's', value_parser = size_in_k, default_value = "512k", value_name = "SIZE")]
    pub size: u64,
    /// Tests: 0 write and rewrite, 1 read and re-read, 2 random, 3 backward, 5 stride, 8 mixed [default: 0 1]
    #[arg(short = 'i', value_name = "N")]
    pub tests: Vec<u8>,
    /// Records from one to the next of -i 5
    #[arg(short = 'j', default_value_t = 17, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub stride: u64,
    /// fsync before a written file is closed
    #[arg(short = 'e')]
    pub fsync: bool,
    /// O_DIRECT
    #[arg(short = 'I')]
    pub direct: bool,
    /// Keep the files, and go on with kept ones
    #[arg(short = 'w')]
    pub keep_files: bool,
    /// Write a pattern that tells each byte's place, and verify it when reading
    #[arg(long)]
    pub verify: bool,
    /// Of IOzone's -+ options -+u is taken for its sake
    #[arg(short = '+', value_name = "OPTION")]
    pub plus: Vec<String>,
    /// Taken for IOzone's sake: close is part of every phase
    #[arg(short = 'c')]
    pub close: bool,
    /// Do all of it so many times
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub iterations: u32,
    /// -+h of -+m: the host that leads
    #[arg(short = 'h', hide = true)]
    pub host: Option<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

/// As IOzone has sizes: without a letter they are KiB.
fn size_in_k(s: &str) -> Result<u64, String> {
    if s.bytes().all(|b| b.is_ascii_digit()) { size(&format!("{s}k")) } else { size(s) }
}
