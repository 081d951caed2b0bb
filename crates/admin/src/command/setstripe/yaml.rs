//! The layout that `lfs getstripe -y` printed, read again (`--yaml`).

use crate::command::getstripe::parse_flags;
use crate::command::getstripe::part::{Part, Parts};
use crate::failure::Failure;
use crate::size::parse_int;
use model::layout::EOF;
use model::{Errno, Fid, LayoutSpec};
use std::path::Path;
use world::sys::files;

/// Larger than what any layout prints: 64 components of 2000 objects each.
const FILE_MAX_BYTES: usize = 16 << 20;

/// The layout in a file. `EINVAL` with the line that cannot be read.
pub fn read(path: &Path) -> Result<LayoutSpec, Failure> {
    let shown = path.display().to_string();
    let bytes = files::read(path).map_err(|e| Failure::io("cannot read layout from", &shown, e))?;
    let refused = |errno, why: &str| Failure::explained("cannot read layout from", &shown, errno, why);
    if bytes.len() > FILE_MAX_BYTES {
        return Err(refused(Errno::EFBIG, "no layout is that long"));
    }
    let text = String::from_utf8(bytes).map_err(|_| refused(Errno::EINVAL, "it is no text"))?;
    parse(&text).map_err(|(errno, why)| refused(errno, &why))
}

/// Keys that say how a component came to be, not how it is.
const PASSED_OVER: &[&str] = &[
    "lcm_magic",
    "lcm_size",
    "lcm_flags",
    "lcm_layout_gen",
    "lcm_entry_count",
    "composite_header",
    "components",
    "sub_layout",
    "lcme_mirror_id",
    "lcme_offset",
    "lcme_size",
    "lcme_timestamp",
    "lmm_magic",
    "lmm_seq",
    "lmm_object_id",
    "lmm_fid",
    "lmm_layout_gen",
    "lmm_objects",
    "l_fid",
];

pub type Refused = (Errno, String);

pub fn parse(text: &str) -> Result<LayoutSpec, Refused> {
    let mut l = Parts { generation: 0, parts: Vec::new() };
    for (n, line) in text.lines().enumerate() {
        let bad = |why: &str| (Errno::EINVAL, format!("line {}: {why}: '{}'", n + 1, line.trim()));
        let entry = line.trim().trim_start_matches("- ");
        if entry.is_empty() || entry.starts_with('#') {
            continue;
        }
        if entry == "---" {
            if l.parts.is_empty() {
                continue;
            }
            return Err(bad("a second layout"));
        }
        let (key, value) = entry.split_once(':').ok_or_else(|| bad("no key with a value"))?;
        let (key, value) = (key.trim(), value.trim().trim_matches(['"', '\'']));
        if key == "lcm_mirror_count" && !matches!(value, "0" | "1") {
            return Err((Errno::EOPNOTSUPP, format!("line {}: a file has one copy in this release", n + 1)));
        }
        let begins = key == "lcme_id" || l.parts.is_empty();
        if PASSED_OVER.contains(&key)
            || key == "lcm_mirror_count"
            || key.strip_prefix("component").is_some_and(is_number)
        {
            continue;
        }
        if begins {
            l.parts.push(Part::default());
        }
        let p = l.parts.last_mut().expect("begun above");
        take(p, key, value).ok_or_else(|| bad("cannot be understood"))?;
    }
    finish(&mut l);
    l.spec().map_err(|e| (e, "no layout, or one that cannot be".to_string()))
}

fn is_number(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())
}

/// One value of a component; `None`: it is none.
fn take(p: &mut Part, key: &str, value: &str) -> Option<()> {
    let number = |v: &str| parse_int(v);
    let unsigned = |v: &str| u64::try_from(number(v)?).ok();
    match key.strip_prefix("lmm_").unwrap_or(key) {
        "lcme_id" => p.id = if value == "N/A" { 0 } else { u32::try_from(number(value)?).ok()? },
        "lcme_flags" => p.flags = if value == "0" { 0 } else { parse_flags(value).ok()?.0 },
        "lcme_extent.e_start" => p.start = unsigned(value)?,
        "lcme_extent.e_end" if value == "EOF" => p.end = EOF,
        "lcme_extent.e_end" => p.end = unsigned(value)?,
        "stripe_count" => p.stripe_count = i64::from(i32::try_from(number(value)?).ok()?),
        "stripe_size" | "extension_size" => p.stripe_size = unsigned(value)?,
        "stripe_offset" => p.offset = i64::from(i32::try_from(number(value)?).ok()?),
        "pool" => p.pool = value.to_string(),
        "pattern" => match value {
            "raid0" => {}
            "mdt" => p.is_on_mdt = true,
            "raid0,overstriped" => p.is_overstriped = true,
            _ => return None,
        },
        "l_ost_idx" => p.objects.push((u16::try_from(number(value)?).ok()?, Fid::NONE)),
        "osts" => {
            let list = value.strip_prefix('[')?.strip_suffix(']')?;
            for i in list.split(',') {
                p.objects.push((u16::try_from(number(i.trim())?).ok()?, Fid::NONE));
            }
        }
        _ => return None,
    }
    Some(())
}

/// Where room to grow into stands, its size is that of a step; a plain layout on the MDT is as large as that.
fn finish(l: &mut Parts) {
    for p in l.parts.iter_mut().filter(|p| p.is_on_mdt) {
        (p.objects, p.offset) = (Vec::new(), -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::layout::ComponentSpec;

    #[test]
    fn components_are_read_in_both_shapes() {
        let list = "lcm_layout_gen:    3\nlcm_mirror_count:  1\nlcm_entry_count:   2\ncomponents:\n\
                    - lcme_id:             1\n  lcme_mirror_id:      0\n  lcme_flags:          init\n\
                    \u{20} lcme_extent.e_start: 0\n  lcme_extent.e_end:   1048576\n  sub_layout:\n\
                    \u{20}   lmm_stripe_count:  1\n    lmm_stripe_size:   65536\n    lmm_pattern:       raid0\n\
                    \u{20}   lmm_layout_gen:    0\n    lmm_stripe_offset: 3\n    lmm_objects:\n\
                    \u{20}   - l_ost_idx: 3\n      l_fid:     0x1:0x2:0x0\n\
                    - lcme_id:             2\n  lcme_flags:          0\n  lcme_extent.e_start: 1048576\n\
                    \u{20} lcme_extent.e_end:   EOF\n  sub_layout:\n    lmm_stripe_count:  -1\n\
                    \u{20}   lmm_stripe_size:   131072\n    lmm_pattern:       raid0,overstriped\n    lmm_stripe_offset: -1\n";
        let named = list.replace("- lcme_id:             1", "component0:\n  lcme_id:             1");
        for text in [list, named.as_str(), &format!("# /mnt/f\n---\n{list}")] {
            let parts = parse(text).unwrap().components().unwrap();
            let first = ComponentSpec {
                end: 1 << 20,
                stripe_count: 1,
                stripe_size: 65536,
                osts: vec![3],
                ..ComponentSpec::default()
            };
            let second = ComponentSpec {
                stripe_count: -1,
                stripe_size: 131_072,
                overstriped: true,
                ..ComponentSpec::default()
            };
            assert_eq!(parts, [first, second], "{text}");
        }
    }

    #[test]
    fn what_is_no_layout_is_refused_with_its_line() {
        for (text, errno, part) in [
            ("", 22, "no layout"),
            ("lmm_stripe_count: x\n", 22, "line 1"),
            ("lmm_stripe_count: 1\nhello: 3\n", 22, "line 2"),
            ("just words\n", 22, "line 1"),
            ("lmm_stripe_count: 1\n---\nlmm_stripe_count: 1\n", 22, "a second layout"),
            ("lcm_mirror_count: 2\n", 95, "one copy"),
            ("lmm_pattern: raid5\n", 22, "raid5"),
            ("lmm_stripe_count: 9999\n", 22, "cannot be"),
            ("lcme_flags: extension\n", 22, "cannot be"),
        ] {
            let (e, why) = parse(text).unwrap_err();
            assert_eq!(e.0, errno, "{text}");
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
