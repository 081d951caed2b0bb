//! What is to be mounted: `NID[,NID][:NID…]:/FSNAME[/SUBDIR]`, with hosts by address or by name.

use model::HostNid;
use model::nid::parse_nid_list;
use model::target::fsname_is_valid;

/// What is to be mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    pub mgs_nids: Vec<HostNid>,
    pub fsname: String,
    /// Without slashes at its ends; empty for the root.
    pub subdir: String,
}

const SHAPE: &str = "expected MGSNID[,NID][:NID]:/FSNAME[/SUBDIR], for example 10.0.0.1@tcp:/nacre";

impl Source {
    /// The error says what is wrong.
    pub fn parse(text: &str) -> Result<Source, String> {
        let (nids, path) = text.split_once(":/").ok_or_else(|| format!("bad source '{text}': {SHAPE}"))?;
        let mgs_nids = parse_nid_list(nids).map_err(|e| format!("bad source '{text}': {e}"))?;
        let (fsname, subdir) = path.split_once('/').unwrap_or((path, ""));
        if !fsname_is_valid(fsname) {
            return Err(format!(
                "bad source '{text}': '{fsname}' is no file system name (1 to 8 of A-Z a-z 0-9 _ -); {SHAPE}"
            ));
        }
        Ok(Source { mgs_nids, fsname: fsname.to_string(), subdir: subdir.trim_matches('/').to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_taken_apart() {
        let s = Source::parse("10.0.0.1@tcp,10.1.0.1@tcp1:10.0.0.2@tcp:/fs/a/b/").unwrap();
        assert_eq!((s.mgs_nids.len(), s.fsname.as_str(), s.subdir.as_str()), (3, "fs", "a/b"));
        for many in ["mds01@tcp;mds02@tcp:/lustre", "mds05@tcp0:mds06@tcp0:/lustre_1", "mds05:10.0.0.6:/l"] {
            assert_eq!(Source::parse(many).unwrap().mgs_nids.len(), 2, "{many}");
        }
        assert_eq!(Source::parse("fd00::1@tcp:/nacre").unwrap().subdir, "");
        for bad in [
            "",
            "nacre",
            "10.0.0.1@o2ib:/fs",
            "10.0.0.1@tcp:/",
            "10.0.0.1@tcp:/toolongname",
            "@tcp:/fs",
            "10.0.0.1@tcp/fs",
        ] {
            assert!(Source::parse(bad).is_err(), "{bad}");
        }
    }
}
