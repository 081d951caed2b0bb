//! Kernel requests to client calls and back, nothing else: our own layer over classic /dev/fuse.
//!
//! ```ignore
//! let fs = client::Fs::mount(world.clone(), options).await?;
//! let mounted = fuse::mount(&fuse::MountPoint { source, dir, flags })?;
//! let session = fuse::serve(&world, fs, mounted, fuse::Config::default())?;
//! session.ready().await?;      // the mount answers
//! session.wait().await;        // until somebody unmounts it
//! ```
//!
//! A WRITE goes `session.rs` → `request.rs` → `ops/write.rs` → `client`, and back through `reply.rs`.

#![allow(unsafe_code)] // mount(2) and the device's ioctl; each with its reason

pub mod abi;
mod bridge;
mod control;
mod guard;
mod handles;
mod interrupt;
mod kernel;
pub mod lov_md;
mod making;
mod mount;
mod nodes;
mod ops;
mod options;
mod pages;
mod process;
mod recent;
mod reply;
mod request;
mod session;
mod writeback;

pub use guard::{Guard, guard};
pub use mount::{FSTYPE, KernelRoot, MountError, Mounted, mount, mounted_at, open_device, remount};
pub use options::{FileLocks, MountPoint, NOATIME, OptionError, Options, parse as parse_options};
pub use process::{Fate, fate};
pub use request::{Op, ParseError, Request, parse_request};
pub use session::{Config, Session, State, serve};
