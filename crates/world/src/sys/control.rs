//! A daemon's local control socket: one line of request, one line of answer, both JSON text.
//!
//! Sockets live in the run directory under the daemon's pid, so that no two daemons share one and `lctl`
//! finds them all.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Longest request or answer.
pub const MESSAGE_MAX_BYTES: u64 = 8 << 20;

/// Where daemons put their sockets: `$NACRE_RUN_DIR`, `/run/nacre` for root, a private folder otherwise.
pub fn run_dir() -> PathBuf {
    if let Some(d) = std::env::var_os("NACRE_RUN_DIR") {
        return PathBuf::from(d);
    }
    match (super::euid(), std::env::var_os("XDG_RUNTIME_DIR")) {
        (0, _) => PathBuf::from("/run/nacre"),
        (_, Some(d)) => PathBuf::from(d).join("nacre"),
        (uid, None) => PathBuf::from(format!("/tmp/nacre-{uid}")),
    }
}

/// The socket's name; removed when dropped.
pub struct ControlSocket {
    path: PathBuf,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

type Handler = Arc<dyn Fn(&str) -> String + Send + Sync>;

fn serve_one(s: &UnixStream, handler: &Handler) -> io::Result<()> {
    s.set_read_timeout(Some(Duration::from_secs(5)))?;
    s.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new(s.take(MESSAGE_MAX_BYTES)).read_line(&mut line)?;
    let mut answer = handler(line.trim_end());
    answer.push('\n');
    (&mut &*s).write_all(answer.as_bytes())
}

/// Answers requests on `run_dir()/NAME.sock`, one at a time, until the process ends.
pub fn serve(name: &str, handler: Handler) -> io::Result<ControlSocket> {
    let dir = run_dir();
    std::fs::create_dir_all(&dir)?;
    let path = dir.join(format!("{name}.sock"));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let socket = ControlSocket { path };
    super::thread("control", move || {
        for s in listener.incoming().flatten() {
            if let Err(e) = serve_one(&s, &handler) {
                tracing::debug!("control request failed: {e}");
            }
        }
    })?;
    Ok(socket)
}

/// Asks one daemon.
pub fn call(path: &Path, request: &str, patience: Duration) -> io::Result<String> {
    let mut s = UnixStream::connect(path)?;
    s.set_read_timeout(Some(patience))?;
    s.set_write_timeout(Some(patience))?;
    s.write_all(format!("{request}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(s.take(MESSAGE_MAX_BYTES)).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the daemon gave no answer"));
    }
    Ok(answer.trim_end().to_string())
}

/// Whether there is a socket that this user may not use.
pub fn is_refused() -> bool {
    let dir = run_dir();
    match super::files::list(&dir) {
        Ok(names) => names.iter().filter(|n| n.ends_with(".sock")).any(|n| {
            UnixStream::connect(dir.join(n)).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
        }),
        Err(e) => e.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// Sockets of living daemons; names that a killed daemon left behind are removed.
pub fn list() -> Vec<PathBuf> {
    let dir = run_dir();
    let mut out = Vec::new();
    for n in super::files::list(&dir).unwrap_or_default() {
        let Some(stem) = n.strip_suffix(".sock") else { continue };
        let path = dir.join(&n);
        let pid = stem.rsplit('-').next().and_then(|p| p.parse::<u32>().ok());
        match UnixStream::connect(&path) {
            Ok(_) => out.push(path),
            Err(_) if pid.is_some_and(|p| !super::process::alive(p)) => {
                let _ = std::fs::remove_file(&path);
            }
            Err(_) => {}
        }
    }
    out
}
