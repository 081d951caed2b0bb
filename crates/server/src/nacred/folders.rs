//! Folders that are not there yet: at boot a disk may be mounted later than nacred starts.

use super::ended::StartError;
use std::io;
use std::path::Path;
use std::time::Duration;
use world::World;
use world::sys::files;

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Why nothing can be served from a folder yet: it is missing, or empty, as a mount point is without its
/// disk. `None`: there is something in it, whatever that is.
fn lacks(dir: &str) -> Option<&'static str> {
    match files::list(Path::new(dir)) {
        Ok(names) => names.is_empty().then_some("is empty, as a mount point without its disk"),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Some("is not there"),
        // What else is wrong with it is said when it is read.
        Err(_) => None,
    }
}

/// Returns once something is in all of `dirs`, after `patience` at the latest; then with an error that names
/// what is missing. Without patience nothing is looked at.
pub async fn wait(world: &World, dirs: &[String], patience: Duration) -> Result<(), StartError> {
    let began = world.now();
    let mut told: Vec<&String> = Vec::new();
    while !patience.is_zero() {
        let missing: Vec<(&String, &str)> = dirs.iter().filter_map(|d| Some((d, lacks(d)?))).collect();
        for d in told.extract_if(.., |d| !missing.iter().any(|m| m.0 == *d)) {
            let took = world.now().since(began);
            tracing::info!("target '{d}' is there, after {:.1} s", took.as_secs_f64());
        }
        let Some((first, why)) = missing.first() else { return Ok(()) };
        if world.now().since(began) >= patience {
            return Err(StartError::new(format!(
                "target '{first}' {why}; it was waited for, for {} s (--folder-patience): is its disk mounted?",
                patience.as_secs()
            )));
        }
        for (d, why) in &missing {
            if !told.contains(d) {
                tracing::warn!(
                    "target '{d}' {why}: waiting for it, for {} s at most (--folder-patience)",
                    patience.as_secs()
                );
                told.push(d);
            }
        }
        assert!(told.len() <= dirs.len(), "each folder is named once");
        world.sleep(LOOK_EVERY).await;
    }
    Ok(())
}
