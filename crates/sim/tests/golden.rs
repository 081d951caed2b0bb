//! The on-disk files of every version that was kept are opened, and hold what they held
//! (`docs/formats/versions.md`).

use sim::golden;

macro_rules! opens {
    ($version:literal) => {{
        let images = [
            &include_bytes!(concat!("../golden/", $version, "/mdt.img"))[..],
            &include_bytes!(concat!("../golden/", $version, "/ost0.img"))[..],
            &include_bytes!(concat!("../golden/", $version, "/ost1.img"))[..],
        ];
        let images: Vec<Vec<u8>> = images.iter().map(|i| i.to_vec()).collect();
        let contents = include_str!(concat!("../golden/", $version, "/contents.txt"));
        let found = golden::describe(&images).expect("this version opens them");
        for (want, got) in contents.lines().zip(found.lines()) {
            assert_eq!(got, want, "of {}", $version);
        }
        assert_eq!(found.lines().count(), contents.lines().count(), "of {}", $version);
    }};
}

/// The formats of the first release: a journal without salt, layouts of one component.
#[test]
fn v0_1_0_is_opened() {
    opens!("v0.1.0");
}

/// Journals with salt, layouts in components, usage in the tables, labels of objects.
#[test]
fn what_was_written_on_2026_11_28_is_opened() {
    opens!("2026-11-28");
}

/// The same formats, with what is only there while somebody uses it: a changelog, the trash, a quota of a
/// directory, objects in components, snapshots.
#[test]
fn what_was_in_use_on_2026_11_29_is_opened_and_can_be_used() {
    opens!("2026-11-29");
}
