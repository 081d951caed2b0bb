//! The client daemon of one mount. `ps` shows it as `mount.nacre SOURCE DIR`.

use crate::outcome::Outcome;
use admin::local::{MOUNT_SOCKET, MountRequest};
use client::Source;
use client::control::{ControlError, Packed, Response};
use client::{Fs, MountOptions};
use model::Errno;
use model::events::EVENTS;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use world::World;
use world::sys::control::{self, ControlSocket};
use world::sys::mounts::Unmount;
use world::sys::process::{self, SIGINT, SIGTERM};

struct Wanted {
    source: String,
    dir: PathBuf,
    options: fuse::Options,
    what: Source,
}

fn wanted(args: &[OsString]) -> Result<Wanted, String> {
    let [source, dir, rest @ ..] = args else {
        return Err("the daemon is started by the mount helper".to_string());
    };
    let list = rest.get(1).map(|o| o.to_string_lossy().into_owned()).unwrap_or_default();
    let source = source.to_str().ok_or("the source is not UTF-8")?.to_string();
    let what = Source::parse(&source)?;
    let options = fuse::parse_options(&list).map_err(|e| e.to_string())?;
    Ok(Wanted { source, dir: PathBuf::from(dir), options, what })
}

async fn connect(world: &World, w: &Wanted) -> Result<Arc<Fs>, String> {
    let host = world::sys::hostname();
    let attempts = w.options.retry.unwrap_or(0).saturating_add(1);
    let mut last = String::new();
    for n in 0..attempts {
        if n > 0 {
            tracing::info!("attempt {} of {attempts}: {last}", n + 1);
            world.sleep(Duration::from_secs(1)).await;
        }
        let opt = MountOptions {
            mgs_nids: w.what.mgs_nids.clone(),
            fsname: w.what.fsname.clone(),
            subdir: w.what.subdir.clone(),
            port: w.options.port.unwrap_or(model::limits::PORT),
            bind: w.options.bind,
            networks: w.options.networks.clone(),
            client_name: format!("nacre-client {} on {host} at {}", admin::VERSION, w.dir.display()),
            soft_timeout_ms: w.options.soft_timeout_ms(),
            // The kernel keeps `ro`, so that remount,rw needs no second daemon.
            read_only: false,
        };
        match Fs::mount(world.clone(), opt).await {
            Ok(fs) => return Ok(fs),
            Err(e) => last = e.to_string(),
        }
    }
    Err(last)
}

/// Without a guard the mount works; a daemon that is killed at the wrong moment leaves it to `umount -f`.
fn guard(mounted: &fuse::Mounted) -> Option<fuse::Guard> {
    let args = [super::GUARD.into(), mounted.dir.clone().into_os_string()];
    let guard = process::own_executable().and_then(|exe| fuse::Guard::start(mounted, &exe, "nacre", &args));
    guard.inspect_err(|e| tracing::warn!("no guard for the mount: {e}")).ok()
}

/// `exclude=`: what lies on the OST is an error at once, as after `lctl deactivate` on this host.
async fn exclude(fs: &Arc<Fs>, ost: &str) -> Result<(), String> {
    let label = ost.strip_suffix("_UUID").unwrap_or(ost);
    let name = format!("osc.{label}-*.active");
    let request = client::control::Request::SetParam { name, value: "0".to_string() };
    match client::admin::answer_of_mount(fs, 0, request).await {
        Ok(_) => Ok(()),
        Err(e) => Err(format!(
            "mount option 'exclude': '{ost}' is no OST of the file system ({}): see lfs osts",
            e.message
        )),
    }
}

async fn bring_up(world: &World, w: &Wanted) -> Result<(fuse::Session, Option<fuse::Guard>), String> {
    let fs = connect(world, w).await?;
    fs.set_lazystatfs(!w.options.no_lazystatfs);
    match world::sys::host_addresses() {
        Ok(own) => client::Admin(&fs).set_own_addresses(own),
        Err(e) => {
            tracing::warn!("no maintenance can leave this host alone: its addresses cannot be listed: {e}")
        }
    }
    client::Admin(&fs).set_noatime(w.options.flags & fuse::NOATIME != 0);
    for ost in &w.options.exclude {
        if let Err(e) = exclude(&fs, ost).await {
            fs.unmount().await;
            return Err(e);
        }
    }
    let at = fuse::MountPoint { source: w.source.clone(), dir: w.dir.clone(), flags: w.options.flags };
    let mounted = match fuse::mount(&at) {
        Ok(m) => m,
        Err(e) => {
            fs.unmount().await;
            return Err(e.message);
        }
    };
    let config = fuse::Config {
        readdirplus: !w.options.no_readdirplus,
        kernel_cache: !w.options.no_kernel_cache,
        locks: w.options.locks,
        ..fuse::Config::default()
    };
    let guard = guard(&mounted);
    let dir = mounted.dir.clone();
    let (session, kernel_root) =
        fuse::serve(world, fs, mounted, config).map_err(|e| format!("cannot serve the mount: {e}"))?;
    session.ready().await?;
    kernel_root.show(&w.source, &dir).map_err(|e| e.message)?;
    Ok((session, guard))
}

/// For `lctl`, which must not wait for servers that are away.
fn control(session: &Arc<fuse::Session>) -> std::io::Result<ControlSocket> {
    let session = session.clone();
    let answer = move |line: &str| match serde_json::from_str::<MountRequest>(line) {
        Ok(MountRequest::Where) => {
            serde_json::to_string(&session.dir().to_string_lossy()).expect("plain data encodes")
        }
        Ok(MountRequest::Metrics) => {
            let page = Packed::of(&session.metrics(admin::VERSION));
            serde_json::to_string(&page).expect("plain data encodes")
        }
        Ok(MountRequest::Debug(order)) => {
            serde_json::to_string(&crate::log::answer(order)).expect("plain data encodes")
        }
        Ok(MountRequest::Events { after }) => {
            serde_json::to_string(&EVENTS.read(after)).expect("plain data encodes")
        }
        Ok(MountRequest::Ask(r)) => {
            let response = world::block_on(session.ask(r));
            serde_json::to_string(&response).expect("plain data encodes")
        }
        Err(e) => {
            let message = format!("request not understood: {e}");
            let error = ControlError { errno: Errno::EINVAL.0, message };
            serde_json::to_string(&Response::Error(error)).expect("plain data encodes")
        }
    };
    control::serve(&format!("{MOUNT_SOCKET}{}", std::process::id()), Arc::new(answer))
}

pub fn main(args: &[OsString]) -> i32 {
    process::block_signals(&[SIGTERM, SIGINT]);
    process::set_name("mount.nacre");
    process::raise_open_files();
    crate::log::start();
    if let Err(e) = process::spare_when_memory_is_short() {
        tracing::debug!("cannot ask to be spared when memory is short: {e}");
    }
    let failed = |message: String| {
        tracing::error!("{message}");
        Outcome::failed(message).say();
        super::EXIT_FAILURE
    };
    let w = match wanted(args) {
        Ok(w) => w,
        Err(e) => return failed(e),
    };
    let (world, runtime) = match world::real::start_helped(2) {
        Ok(r) => r,
        Err(e) => return failed(format!("cannot start threads: {e}")),
    };
    // A defect in one operation is that operation's EIO; everything else somebody waits for.
    runtime.end_on_panic(&["fuse-op"]);
    let (session, _guard) = match runtime.block_on(bring_up(&world, &w)) {
        Ok(s) => s,
        Err(e) => return failed(e),
    };
    tracing::info!("mounted {} at {}", w.source, w.dir.display());
    Outcome::Mounted.say();
    let session = Arc::new(session);
    let socket = control(&session);
    if let Err(e) = &socket {
        tracing::warn!("no control socket, lctl has to ask through the mount: {e}");
    }
    if let Some(at) = w.options.metrics {
        crate::metrics::start(&world, at, Arc::new(crate::metrics::OfMount(session.clone())));
    }
    let probed = session.clone();
    world.spawn("probe", async move { probed.keep_probing().await });
    let on_signal = session.clone();
    // A signal is a wish to unmount: refused while the mount is in use, as umount(8) would be.
    let watcher = world::sys::thread("signals", move || {
        loop {
            if process::wait_signal(&[SIGTERM, SIGINT], Duration::from_secs(3600)).is_some()
                && let Err(e) = on_signal.unmount(Unmount::Normal)
            {
                tracing::warn!("asked to end by a signal, but cannot unmount: {e}");
            }
        }
    });
    if let Err(e) = watcher {
        tracing::warn!("signals are not watched: {e}");
    }
    runtime.block_on(session.wait());
    tracing::info!("unmounted {}", w.dir.display());
    crate::log::flush();
    0
}
