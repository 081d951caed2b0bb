use super::*;
use model::layout::{
    COMPONENT_INIT, COMPONENT_PREFER_READ, COMPONENT_PREFER_WRITE, ComponentChange, ComponentFilter,
    ComponentSpec, EOF,
};

fn parse(args: &[&str]) -> Result<LayoutSpec, Failure> {
    spec(&options::parse(&args.iter().map(OsString::from).collect::<Vec<_>>(), OPTS).unwrap())
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

fn change_of(args: &[&str]) -> Result<Option<ComponentChange>, Failure> {
    let args = args.iter().map(OsString::from).collect::<Vec<_>>();
    components::change(&options::parse(&args, OPTS).unwrap())
}

#[test]
fn changes_of_components_have_every_spelling() {
    let end = |end| ComponentSpec { end, ..ComponentSpec::default() };
    let mut more = LayoutSpec::default();
    more.set_components(&[ComponentSpec { stripe_count: 2, ..end(1 << 30) }, end(EOF)]);
    for add in ["--component-add", "--comp-add", "--component-a"] {
        for e in ["-E", "--component-end", "--comp-end"] {
            let got = change_of(&[add, e, "1G", "--stripe_count", "2", e, "-1", "f"]).unwrap();
            assert_eq!(got, Some(ComponentChange::Add(more.clone())), "{add} {e}");
        }
    }
    for (del, set) in [("--component-del", "--component-set"), ("--comp-del", "--comp-set")] {
        for (id, flags) in [("-I", "--component-flags"), ("--comp-id", "--comp-flags")] {
            let got = change_of(&[del, id, "3", "f"]).unwrap();
            assert_eq!(got, Some(ComponentChange::Delete(ComponentFilter::Id(3))));
            let got = change_of(&[del, flags, "^init"]).unwrap();
            let choice = ComponentFilter::Flags { with: 0, without: COMPONENT_INIT };
            assert_eq!(got, Some(ComponentChange::Delete(choice)));
            let got = change_of(&[set, id, "0x2", flags, "prefer"]).unwrap();
            let both = COMPONENT_PREFER_READ | COMPONENT_PREFER_WRITE;
            assert_eq!(got, Some(ComponentChange::Flags { id: 2, set: both, clear: 0 }));
            let got = change_of(&[set, id, "2", flags, "prefrd,^prefwr"]).unwrap();
            let (set, clear) = (COMPONENT_PREFER_READ, COMPONENT_PREFER_WRITE);
            assert_eq!(got, Some(ComponentChange::Flags { id: 2, set, clear }));
        }
    }
    assert_eq!(change_of(&["-E", "1G", "-c", "2", "f"]).unwrap(), None, "a whole layout");
    // One that reaches to the end is a component here.
    let mut one = LayoutSpec::default();
    one.set_components(&[end(EOF)]);
    assert_eq!(change_of(&["--component-add", "-E", "-1"]).unwrap(), Some(ComponentChange::Add(one)));
}

#[test]
fn changes_that_cannot_be_have_their_errno() {
    use crate::EXIT_USAGE;
    for (args, code) in [
        (&["--component-add", "--component-del", "-I1"][..], EXIT_USAGE),
        (&["--component-add", "-c", "2"], EXIT_USAGE),
        (&["--component-add", "-E", "1G", "-I", "2"], EXIT_USAGE),
        (&["--component-add", "-E", "1G", "--copy", "f"], EXIT_USAGE),
        (&["--component-add", "-E", "1G", "--mode", "644"], EXIT_USAGE),
        (&["--component-add", "-E", "1G", "-d"], EXIT_USAGE),
        (&["--component-add", "-E", "64k", "-L", "mdt"], 22),
        (&["--component-add", "-E", "1G", "-E", "1G"], 22),
        (&["--component-add", "-E", "1G", "-c", "2001"], 34),
        (&["-I", "2"], EXIT_USAGE),
        (&["--component-flags", "^init"], EXIT_USAGE),
        (&["--component-del"], EXIT_USAGE),
        (&["--component-del", "-I", "1", "--component-flags", "init"], EXIT_USAGE),
        (&["--component-del", "-I", "1", "-E", "1G"], EXIT_USAGE),
        (&["--component-del", "-I", "0"], 22),
        (&["--component-del", "-I", "-1"], 22),
        (&["--component-del", "-I", "x"], EXIT_USAGE),
        (&["--component-del", "--component-flags", "best"], EXIT_USAGE),
        (&["--component-set", "-I", "1"], EXIT_USAGE),
        (&["--component-set", "--component-flags", "prefer"], EXIT_USAGE),
        (&["--component-set", "-I", "1", "--component-flags", "prefer,^prefrd"], EXIT_USAGE),
        (&["--component-set", "-I", "1", "--component-flags", "stale"], 95),
        (&["--component-set", "-I", "1", "--component-flags", "^stale"], 95),
        (&["--component-set", "-I", "1", "--component-flags", "nosync"], 95),
        (&["--component-set", "-I", "1", "--component-flags", "init"], 22),
        (&["--component-set", "-I", "1", "--component-flags", "prefer,extension"], 22),
    ] {
        assert_eq!(change_of(args).unwrap_err().exit_code(), code, "{args:?}");
    }
}
