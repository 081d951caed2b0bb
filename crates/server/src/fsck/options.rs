//! The command line of `nacre fsck`.

use std::ffi::OsString;

/// What to check, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckOptions {
    /// Folders of targets, or folders that hold such folders.
    pub paths: Vec<String>,
    /// Mends what can be mended without losing anything.
    pub repair: bool,
    /// Damaged journals end at the damage: what was behind is lost.
    pub cut_journal: bool,
    /// Reads all data too.
    pub read_data: bool,
    pub json: bool,
    pub quiet: bool,
    /// Served targets, by their servers.
    pub online: bool,
    /// Of a whole file system, one target against the other.
    pub across: bool,
    /// Ends such a check.
    pub stop: bool,
}

impl FsckOptions {
    /// From the arguments behind `fsck`; the error is for the user.
    pub fn parse(args: &[OsString]) -> Result<FsckOptions, String> {
        let mut o = FsckOptions::default();
        let (mut only_paths, mut careful) = (false, false);
        for a in args {
            let text = a.to_str().ok_or_else(|| format!("'{}' is not UTF-8", a.to_string_lossy()))?;
            match text {
                _ if only_paths || !text.starts_with('-') => o.paths.push(text.to_string()),
                "--" => only_paths = true,
                // "-a", "-p": what fsck(8) passes on, for repairs that nobody need decide about. All of
                // --repair are.
                "--repair" | "-y" | "-a" | "-p" => {
                    o.repair = true;
                    careful |= text == "-a" || text == "-p";
                }
                "--cut-journal" => o.cut_journal = true,
                "--dry-run" | "-n" => o.repair = false,
                "--read-data" => o.read_data = true,
                "--json" => o.json = true,
                "--online" => o.online = true,
                "--across" => o.across = true,
                "--stop" => o.stop = true,
                "--quiet" | "-q" => o.quiet = true,
                // Everything is checked and told in any case.
                "-f" | "-v" => {}
                "-fn" | "-nf" => o.repair = false,
                "--mdsdb" | "--ostdb" => {
                    return Err(format!(
                        "{text}: no databases are made before a check: nacre fsck DIR of stopped targets, or \
                         nacre fsck --online while they are served"
                    ));
                }
                _ => return Err(format!("unknown option '{text}'")),
            }
        }
        if o.paths.is_empty() && !o.online {
            return Err("which folder?".into());
        }
        if o.cut_journal && careful {
            return Err("-p makes safe repairs only: a journal is cut by --repair --cut-journal".into());
        }
        if o.online && (o.read_data || o.cut_journal) {
            return Err(
                "--online looks at records: nacre scrub reads data, --cut-journal needs a stopped target"
                    .into(),
            );
        }
        if o.across && !o.online {
            return Err("--across goes with --online: stopped targets are compared in any case".into());
        }
        // What one target holds says too little for a repair.
        o.across |= o.online && o.repair;
        if o.stop && !o.online {
            return Err("--stop goes with --online".into());
        }
        Ok(o)
    }
}
