use super::*;
use model::layout::{ComponentSpec, EOF};

fn parse(args: &[&str]) -> Result<LayoutSpec, Failure> {
    spec(&getopt::parse(&args.iter().map(OsString::from).collect::<Vec<_>>(), OPTS).unwrap())
}

#[test]
fn pools_have_names_and_words() {
    for (word, pool) in [("flash", "flash"), ("ignore", "ignore"), ("none", ""), ("inherit", ""), ("", "")] {
        assert_eq!(parse(&["-p", word]).unwrap().pool, pool, "{word}");
    }
    let s = parse(&["-E", "1G", "-p", "flash", "-E", "-1", "-p", "disk"]).unwrap();
    let pools: Vec<_> = s.full_components().unwrap().into_iter().map(|c| c.pool).collect();
    assert_eq!(pools, ["flash", "disk"]);
}

#[test]
fn options_become_a_layout() {
    let s = parse(&["-c", "-1", "-S", "1M", "-i", "2"]).unwrap();
    assert_eq!((s.stripe_count, s.stripe_size, s.stripe_start), (-1, 1 << 20, 2));
    assert_eq!(parse(&["-o", "3,1", "-o", "1,2"]).unwrap().osts, [3, 1, 2]);
    let s = parse(&["-C", "-2"]).unwrap();
    assert_eq!((s.stripe_count, s.is_overstriped()), (-2, true));
    assert_eq!(parse(&["-C", "4", "-o", "0,0,1,1"]).unwrap().osts, [0, 0, 1, 1]);
}

#[test]
fn data_on_the_mdt_comes_first() {
    let s = parse(&["-E", "128k", "-L", "mdt", "-E", "-1", "-c", "2", "-S", "1M"]).unwrap();
    assert_eq!((s.mdt_bytes(), s.stripe_count, s.stripe_size), (Some(131_072), 2, 1 << 20));
    let s = parse(&["-E", "64k", "-L", "mdt"]).unwrap();
    assert_eq!((s.mdt_bytes(), s.names_objects()), (Some(65536), false));
    let s = parse(&["-E", "64", "-L", "mdt", "-E", "1G", "-c1", "-E", "eof", "-c4"]).unwrap();
    let ends: Vec<(u64, i32)> = s.components().unwrap().iter().map(|c| (c.end, c.stripe_count)).collect();
    assert_eq!((s.mdt_bytes(), ends), (Some(65536), vec![(1 << 30, 1), (EOF, 4)]));
}

#[test]
fn what_stands_behind_an_end_is_of_that_component() {
    let s = parse(&[
        "-S",
        "1M",
        "-E",
        "64M",
        "-c",
        "1",
        "-E",
        "1G",
        "-C",
        "8",
        "-o",
        "1,2,3,4,1,2,3,4",
        "-E",
        "-1",
        "-z",
        "256M",
    ])
    .unwrap();
    let first =
        ComponentSpec { end: 64 << 20, stripe_count: 1, stripe_size: 1 << 20, ..ComponentSpec::default() };
    let second = ComponentSpec {
        end: 1 << 30,
        stripe_count: 8,
        overstriped: true,
        osts: vec![1, 2, 3, 4, 1, 2, 3, 4],
        ..ComponentSpec::default()
    };
    let third = ComponentSpec { extension_bytes: 256 << 20, ..ComponentSpec::default() };
    assert_eq!(s.components().unwrap(), [first, second, third]);
    // One to the end is no composite layout.
    assert!(!parse(&["-E", "-1", "-c", "2"]).unwrap().is_composite());
    assert!(parse(&["-E", "1G", "-c", "2"]).unwrap().is_composite());
}

#[test]
fn impossible_layouts_have_their_errno() {
    for (args, code) in [
        (&["-c", "2001"][..], 34),
        (&["-c", "-2"], 34),
        (&["-C", "-33"], 34),
        (&["-C", "2001"], 34),
        (&["-c", "2", "-C", "2"], crate::EXIT_USAGE),
        (&["-S", "65537"], 22),
        (&["-S", "4G"], 22),
        (&["-i", "70000"], 22),
        (&["-c", "3", "-o", "1,2"], 22),
        (&["-p", "a.b"], 22),
        (&["-p", "sixteen__letters"], 22),
        (&["-E", "1000k"], 22),
        (&["-E", "0"], 22),
        (&["-E", "x"], crate::EXIT_USAGE),
        (&["-E", "1G", "-E", "1G"], 22),
        (&["-E", "1G", "-E", "512M"], 22),
        (&["-E", "-1", "-E", "1G"], 22),
        (&["-E", "1G", "-c", "2001"], 34),
        (&["-E", "1G", "-z", "100"], 22),
        (&["-E", "1G", "-z", "0"], 22),
        (&["-z", "64M"], crate::EXIT_USAGE),
        (&["-E", "1G", "-E", "2G", "-L", "mdt"], 22),
        (&["-E", "64k", "-L", "mdt", "-E", "64k"], 22),
        (&["-E", "64k", "-L", "mdt", "-c", "2"], crate::EXIT_USAGE),
        (&["-E", "64k", "-L", "mdt", "-z", "64M"], crate::EXIT_USAGE),
        (&["-L", "mdt"], crate::EXIT_USAGE),
        (&["-E", "1G", "-L", "raid6"], crate::EXIT_USAGE),
        (&["-E", "2M", "-L", "mdt"], 22),
        (&["-E", "-1", "-L", "mdt"], 22),
        (&["-E", "1000k", "-L", "mdt"], 22),
        (&["-c", "x"], crate::EXIT_USAGE),
        (&["-N2"], 95),
        (&["-N", "-E", "1G"], 95),
        (&["--ec", "4+2"], 95),
        (&["--foreign=none"], 95),
        (&["--copy", "/nowhere", "--yaml", "/nowhere"], crate::EXIT_USAGE),
        (&["--yaml", "/nowhere"], 2),
        (&["--copy", "/nowhere"], 2),
    ] {
        assert_eq!(parse(args).unwrap_err().exit_code(), code, "{args:?}");
    }
    let many: Vec<String> = (1..=65).flat_map(|n| ["-E".to_string(), format!("{n}M")]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(parse(&many).unwrap_err().exit_code(), 22);
}
