//! The OSTs that a command about pools names: `demo-OST0001_UUID`, `OST0001`, `8`, `demo-OST[0-10/2]`,
//! `OST[0-10/2,13]`, `[0-3]`, `12-14`.

use crate::failure::Failure;
use crate::size::parse_int;
use model::limits::OST_INDEX_MAX;
use model::{Errno, TargetId};

fn bad(item: &str, why: &str) -> Failure {
    Failure::explained("cannot use", item, Errno::EINVAL, why)
}

fn index(text: &str) -> Option<u16> {
    let n = parse_int(text)?;
    u16::try_from(n).ok().filter(|i| u32::from(*i) <= OST_INDEX_MAX)
}

/// `0-10/2`, `13`: numbers with steps.
fn range(text: &str, item: &str, out: &mut Vec<u16>) -> Result<(), Failure> {
    let is_none = || bad(item, &format!("'{text}' is no index and no range of them (0-10, 0-10/2)"));
    let (ends, step) = match text.split_once('/') {
        None => (text, 1),
        Some((ends, step)) => (ends, index(step).filter(|s| *s > 0).ok_or_else(is_none)?),
    };
    let (first, last) = match ends.split_once('-') {
        None if text == ends => (index(ends), index(ends)),
        None => (None, None),
        Some((a, b)) => (index(a), index(b)),
    };
    let (Some(first), Some(last)) = (first, last) else { return Err(is_none()) };
    if first > last {
        return Err(is_none());
    }
    out.extend((first..=last).step_by(step.into()));
    Ok(())
}

/// The indices that an item names, in its order. `EINVAL` for what names none, or an OST of another file
/// system.
pub(super) fn osts(fsname: &str, item: &str) -> Result<Vec<u16>, Failure> {
    let mut rest = item;
    if let Some(at) = item.rfind("-OST") {
        if &item[..at] != fsname {
            return Err(bad(item, &format!("it is not of file system '{fsname}'")));
        }
        rest = &item[at + 1..];
    }
    let mut out = Vec::new();
    if let Some(number) = rest.strip_prefix("OST").filter(|r| !r.starts_with('[')) {
        let hex = number.strip_suffix("_UUID").unwrap_or(number);
        let plain = hex.len() == 4 && hex.bytes().all(|c| c.is_ascii_hexdigit());
        let i = u16::from_str_radix(hex, 16).ok().filter(|i| plain && u32::from(*i) <= OST_INDEX_MAX);
        let i = i.ok_or_else(|| bad(item, "the name of an OST ends in 4 hexadecimal digits: OST000a"))?;
        assert_eq!(TargetId::ost(i).index, i, "the digits of a name are the index");
        return Ok(vec![i]);
    }
    let list = rest.strip_prefix("OST").unwrap_or(rest);
    let list = list.strip_suffix("_UUID").unwrap_or(list);
    let inside = match list.strip_prefix('[') {
        Some(l) => l.strip_suffix(']').ok_or_else(|| bad(item, "the list has no end: [0-10/2,13]"))?,
        None => list,
    };
    for part in inside.split(',') {
        range(part, item, &mut out)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_name_osts() {
        for (item, means) in [
            ("my-fs-OST0001_UUID", &[1][..]),
            ("my-fs-OST000a", &[10]),
            ("OST0010", &[16]),
            ("8", &[8]),
            ("0x1f", &[31]),
            ("my-fs-OST[0-10/2]", &[0, 2, 4, 6, 8, 10]),
            ("my-fs-OST[1,3]_UUID", &[1, 3]),
            ("OST[0-10/5,13]", &[0, 5, 10, 13]),
            ("[0-3]", &[0, 1, 2, 3]),
            ("12-14", &[12, 13, 14]),
            ("1,4-5", &[1, 4, 5]),
        ] {
            assert_eq!(osts("my-fs", item).unwrap(), means, "{item}");
        }
        for wrong in [
            "",
            "x",
            "other-OST0001",
            "fs-OST0001",
            "OST1",
            "OST00zz",
            "OST+001",
            "OST[0-3",
            "[3-0]",
            "[0-4/0]",
            "4/2",
            "-1",
            "[-1]",
            "70000",
            "0-65535",
            "[]",
            "MDT0000",
        ] {
            assert_eq!(osts("my-fs", wrong).unwrap_err().exit_code(), 22, "{wrong}");
        }
    }
}
