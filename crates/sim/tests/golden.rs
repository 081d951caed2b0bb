//! The on-disk files of every version that was kept are opened, and hold what they held
//! (`docs/formats/versions.md`).

use sim::golden;

fn opens(images: &[&[u8]; 3], contents: &str) {
    let images: Vec<Vec<u8>> = images.iter().map(|i| i.to_vec()).collect();
    let found = golden::describe(&images).expect("this version opens them");
    for (want, got) in contents.lines().zip(found.lines()) {
        assert_eq!(got, want);
    }
    assert_eq!(found.lines().count(), contents.lines().count());
}

#[test]
fn v0_1_0_is_opened() {
    opens(
        &[
            include_bytes!("../golden/v0.1.0/mdt.img"),
            include_bytes!("../golden/v0.1.0/ost0.img"),
            include_bytes!("../golden/v0.1.0/ost1.img"),
        ],
        include_str!("../golden/v0.1.0/contents.txt"),
    );
}
