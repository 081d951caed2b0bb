use super::*;
use model::layout::{ComponentSpec, LayoutSpec};
use model::{Layout, TargetMark};

const FID: Fid = Fid::new(0x2_0000_0401, 2, 0);

fn component(end: u64, stripe_count: i32) -> ComponentSpec {
    ComponentSpec { end, stripe_count, stripe_size: 1 << 20, ..ComponentSpec::default() }
}

fn file(layout: Layout) -> Stripe {
    Stripe {
        fid: FID,
        kind: FileType::Regular,
        layout: Some(layout.marked(|_| TargetMark::NONE)),
        default: None,
        fs_default: None,
        mdt_bytes: None,
        grows_into: None,
    }
}

fn directory(default: LayoutSpec) -> Stripe {
    Stripe { kind: FileType::Directory, layout: None, default: Some(default), ..file(Layout::on_mdt(65536)) }
}

/// A megabyte on OST 3, a gigabyte on two objects of one OST, not yet there, and room to grow into.
fn composite() -> Stripe {
    let specs = [
        component(1 << 20, 1),
        ComponentSpec { overstriped: true, ..component(1 << 30, -2) },
        ComponentSpec { extension_bytes: 64 << 20, ..component(EOF, 4) },
    ];
    let mut l = Layout::composite(1, 3, &specs);
    l.instantiate(0, FID, ("", &[3]));
    file(l)
}

fn shown(s: &Stripe, args: &[&str]) -> String {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let p = getopt::parse(&without_marks(&args).unwrap(), OPTS).unwrap();
    let printer = Printer::new(&p).unwrap();
    let l = match s.kind {
        FileType::Directory => Parts::of_spec(&effective(s).0),
        _ => Parts::of_file(s).unwrap(),
    };
    if !printer.fields.is_empty() {
        return value_lines(&printer.fields, Path::new("f"), (s, &l), &printer.filter, printer.style);
    }
    let chosen = printer.filter.select(&l);
    let body = match s.kind {
        FileType::Directory => printer.style.directory(&l, &chosen),
        _ => printer.style.file(s, &l, &chosen),
    };
    printer.style.heading(Path::new("f")) + &body
}

const COMPOSITE: &str = "\
f
  lcm_layout_gen:    3
  lcm_mirror_count:  1
  lcm_entry_count:   4
    lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
      lmm_stripe_count:  1
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: 3
      lmm_objects:
      -   0: { l_ost_idx:   3, l_fid: [0x200000401:0x2:0x0] }

    lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   1073741824
      lmm_stripe_count:  -2
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0,overstriped
      lmm_layout_gen:    0
      lmm_stripe_offset: -1

    lcme_id:             3
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 1073741824
    lcme_extent.e_end:   1073741824
      lmm_stripe_count:  4
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1

    lcme_id:             4
    lcme_mirror_id:      0
    lcme_flags:          extension
    lcme_extent.e_start: 1073741824
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  0
      lmm_extension_size: 67108864
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1

";

#[test]
fn composite_layouts_look_as_those_of_lustre() {
    assert_eq!(shown(&composite(), &[]), COMPOSITE);
    let verbose = shown(&composite(), &["-v", "-I2"]);
    let head = "f\ncomposite_header:\n  lcm_magic:         0x0BD60BD0\n  lcm_size:          376\n  lcm_flags:         0\n";
    assert!(verbose.starts_with(head), "{verbose}");
    let entry = "    lcme_offset:         280\n    lcme_size:           32\n    sub_layout:\n      lmm_stripe_count:  -2\n";
    assert!(verbose.contains(entry), "{verbose}");
}

#[test]
fn plain_layouts_look_as_those_of_lustre() {
    let s = file(Layout::plain(FID, 4 << 20, "", &[1, 3]));
    let text = "f\nlmm_stripe_count:  2\nlmm_stripe_size:   4194304\nlmm_pattern:       raid0\nlmm_layout_gen:    0\n\
                lmm_stripe_offset: 1\n\tobdidx\t\t objid\t\t objid\t\t group\n\
                \t     1\t             2\t          0x2\t   0x200000401\n\
                \t     3\t             2\t          0x2\t   0x200000401\n\n";
    assert_eq!(shown(&s, &[]), text);
    assert_eq!(shown(&s, &["--component-count"]), "0\n");
    assert!(
        shown(&s, &["-v"]).starts_with("f\nlmm_magic:         0x0BD10BD0\nlmm_seq:           0x200000401\n")
    );
}

#[test]
fn values_are_of_the_last_initialised_component_or_of_those_that_match() {
    let s = composite();
    for (args, want) in [
        (&["-c"][..], "1\n"),
        (&["-S"], "1048576\n"),
        (&["-i"], "3\n"),
        (&["-I"], "1\n"),
        (&["-L"], "raid0\n"),
        (&["-E"], "1048576\n"),
        (&["--component-start"], "0\n"),
        (&["--component-flags"], "init\n"),
        (&["--component-count"], "4\n"),
        (&["-g"], "3\n"),
        (&["-N"], "1\n"),
        (&["-z"], "0\n"),
        (&["-p"], "\n"),
        (&["--component-flags=init", "-I"], "1\n"),
        (&["--component-flags=^init", "-I"], "2\n3\n4\n"),
        (&["--component-flags=^init,^extension", "-E"], "1073741824\n1073741824\n"),
        (&["--component-flags=extension", "-z"], "67108864\n"),
        (&["-I3", "-z"], "67108864\n"),
        (&["-I2", "-c", "-L"], "f\nstripe_count:         -2\nlayout:               raid0,overstriped\n"),
        (&["-E+1M", "-I"], "2\n3\n4\n"),
        (&["-E-1G", "-I"], "1\n"),
        (&["-Eeof", "-I"], "4\n"),
        (&["--component-end=1M", "-I"], "1\n"),
        (&["--component-start=+0", "-I"], "2\n3\n4\n"),
        (&["--component-start=1M", "-I"], "2\n"),
        (&["--mirror-index=1", "-I"], "1\n2\n3\n4\n"),
        (&["!", "--mirror-index=1", "-I"], ""),
        (&["--mirror-id=+0", "-I"], ""),
        (&["!", "--mirror-id=7", "-I", "-I1"], "1\n"),
    ] {
        assert_eq!(shown(&s, args), want, "{args:?}");
    }
    assert_eq!(
        shown(&composite(), &["-I9"]),
        "f\n  lcm_layout_gen:    3\n  lcm_mirror_count:  1\n  lcm_entry_count:   4\n"
    );
}

#[test]
fn wrong_filters_are_named() {
    for args in [
        &["-I0"][..],
        &["-Ix"],
        &["-Efoo"],
        &["--component-flags=nice"],
        &["--mirror-id=x"],
        &["--component-start=z"],
    ] {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let p = getopt::parse(&args, OPTS).unwrap();
        assert!(matches!(Filter::new(&p), Err(Failure::Usage(_))), "{args:?}");
    }
    assert!(without_marks(&["!".into(), "-c".into()]).is_err());
    assert!(without_marks(&["!".into()]).is_err());
}

#[test]
fn a_file_that_lies_with_its_inode_shows_what_it_grows_into() {
    let mut later = LayoutSpec { stripe_count: 1, stripe_size: 4 << 20, ..LayoutSpec::default() };
    let s = Stripe { grows_into: Some(later.clone()), ..file(Layout::on_mdt(65536)) };
    let text = shown(&s, &[]);
    let mdt = "    lcme_id:             1\n    lcme_mirror_id:      0\n    lcme_flags:          init\n\
               \u{20}   lcme_extent.e_start: 0\n    lcme_extent.e_end:   65536\n      lmm_stripe_count:  0\n\
               \u{20}     lmm_stripe_size:   65536\n      lmm_pattern:       mdt\n      lmm_layout_gen:    0\n\
               \u{20}     lmm_stripe_offset: 0\n\n    lcme_id:             2\n";
    assert!(text.contains(mdt), "{text}");
    assert_eq!(shown(&s, &["-L"]), "mdt\n");
    assert_eq!(
        shown(&s, &["--component-flags=^init", "-E", "-c"]),
        "f\nstripe_count:         1\ncomponent_end:        EOF\n"
    );
    later.set_components(&[component(1 << 20, 1), component(EOF, 4)]);
    let s = Stripe { grows_into: Some(later), ..file(Layout::on_mdt(65536)) };
    assert_eq!(shown(&s, &["--component-start=+-1", "-I"]), "");
    assert_eq!(shown(&s, &["--mirror-id=0", "--component-start"]), "0\n65536\n1048576\n");
}

#[test]
fn directories_show_what_new_files_get() {
    let s = directory(LayoutSpec { stripe_count: 2, ..LayoutSpec::default() });
    let text = "f\nstripe_count:  2 stripe_size:   4194304 pattern:       raid0 stripe_offset: -1\n\n";
    assert_eq!(shown(&s, &[]), text);
    let mut d = LayoutSpec::default();
    d.set_mdt_bytes(65536);
    d.set_components(&[
        component(1 << 30, 1),
        ComponentSpec { end: EOF, stripe_count: -1, ..ComponentSpec::default() },
    ]);
    let text = shown(&directory(d.clone()), &[]);
    let want = "f\n  lcm_layout_gen:    0\n  lcm_mirror_count:  1\n  lcm_entry_count:   3\n    lcme_id:             N/A\n";
    assert!(text.starts_with(want), "{text}");
    let last = "    lcme_extent.e_start: 1073741824\n    lcme_extent.e_end:   EOF\n      \
                stripe_count:  -1 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1\n\n";
    assert!(text.ends_with(last), "{text}");
    // Inherited from the file system's default.
    let inherited = Stripe { default: None, fs_default: Some(d), ..directory(LayoutSpec::default()) };
    assert_eq!(shown(&inherited, &[]), text);
    // Where new files begin, and what their first objects are like.
    for (args, value) in [(["-E"], "65536\n"), (["-L"], "mdt\n"), (["-c"], "1\n"), (["-S"], "1048576\n")] {
        assert_eq!(shown(&inherited, &args), value, "{args:?}");
    }
}

#[test]
fn yaml_of_a_layout_makes_an_equal_one() {
    let mut dir = LayoutSpec::default();
    dir.set_mdt_bytes(65536);
    dir.set_components(&[component(1 << 30, 1), component(EOF, -1)]);
    let on_mdt = Stripe {
        grows_into: Some(dir.clone().inherit(&LayoutSpec::builtin())),
        ..file(Layout::on_mdt(65536))
    };
    let with_osts = LayoutSpec { osts: vec![3, 1], ..LayoutSpec::default() };
    for s in [
        composite(),
        on_mdt,
        file(Layout::plain(FID, 4 << 20, "", &[1, 3])),
        directory(dir),
        directory(with_osts),
    ] {
        let l = match s.kind {
            FileType::Directory => Parts::of_spec(&effective(&s).0),
            _ => Parts::of_file(&s).unwrap(),
        };
        for args in [&["-y"][..], &["-y", "-v"]] {
            let yaml = shown(&s, args);
            let read = crate::command::setstripe::layout_of_yaml(&yaml).unwrap();
            assert_eq!(read, l.spec().unwrap(), "{yaml}");
        }
    }
}
