//! What `list_param` shows of what there is.

use super::*;

fn all() -> Vec<ParamInfo> {
    let info = |(name, writable): (&str, bool)| ParamInfo {
        name: name.into(),
        writable,
        lasting: writable,
        unit: String::new(),
        range: None,
        default: String::new(),
        help: String::new(),
    };
    let names = [
        ("timeout", false),
        ("osc.demo-OST0000-osc-1.active", true),
        ("osc.demo-OST0000-osc-1.state", false),
        ("obdfilter.demo-OST0000.degraded", true),
        ("obdfilter.demo-OST0000.exports.10.0.0.1@tcp.stats", false),
    ];
    names.into_iter().map(info).collect()
}

fn shown(pattern: &str, below: bool) -> Vec<String> {
    listed(pattern, below, &all()).into_iter().map(|(n, l)| format!("{n}{}", l.mark())).collect()
}

#[test]
fn directories_are_listed_and_marked() {
    assert_eq!(shown("*", false), ["obdfilter/", "osc/", "timeout"]);
    assert_eq!(shown("osc.*", false), ["osc.demo-OST0000-osc-1/"]);
    assert_eq!(shown("osc.*.*", false), ["osc.demo-OST0000-osc-1.active=", "osc.demo-OST0000-osc-1.state"]);
    assert_eq!(shown("{osc,timeout}", false), ["osc/", "timeout"]);
    assert!(shown("mdc.*", false).is_empty());
    assert_eq!(
        shown("osc", true),
        ["osc/", "osc.demo-OST0000-osc-1/", "osc.demo-OST0000-osc-1.active=", "osc.demo-OST0000-osc-1.state"]
    );
    assert_eq!(
        shown("obdfilter.*.exports", true),
        [
            "obdfilter.demo-OST0000.exports/",
            "obdfilter.demo-OST0000.exports.10.0.0.1@tcp/",
            "obdfilter.demo-OST0000.exports.10.0.0.1@tcp.stats",
        ]
    );
}

#[test]
fn paths_have_slashes_where_parts_end() {
    assert_eq!(path_of("osc.demo-OST0000-osc-1.active"), "osc/demo-OST0000-osc-1/active");
    assert_eq!(path_of("a.exports.10.0.0.1@tcp.stats"), "a/exports/10.0.0.1@tcp/stats");
    assert_eq!(path_of("timeout"), "timeout");
}

#[test]
fn devices_are_of_the_host() {
    assert!(wants_devices("devices") && wants_devices("*") && wants_devices("{timeout,devices}"));
    assert!(!wants_devices("osc.*") && !wants_devices("device"));
}
