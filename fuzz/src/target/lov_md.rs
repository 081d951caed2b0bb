//! Layouts as programs set them in `lustre.lov`.

use super::Target;
use fuse::lov_md;
use model::layout::{ComponentSpec, EOF};
use model::{Fid, Layout, LayoutSpec};

pub const TARGET: Target = Target {
    name: "lov_md",
    what: "layouts that programs set as an extended attribute",
    run,
    samples,
    fix: None,
    words: &[
        &[0xd0, 0x0b, 0xd1, 0x0b],
        &[0xd0, 0x0b, 0xd3, 0x0b],
        &[0xd0, 0x0b, 0xd5, 0x0b],
        &[0xd0, 0x0b, 0xd6, 0x0b],
        &[0xff; 8],
        &[0x40, 0, 0, 0],
    ],
    max_bytes: 4096,
};

fn run(bytes: &[u8]) {
    if let Ok(s) = lov_md::decode(bytes) {
        assert_eq!(s.check(), Ok(()), "only what can be is asked for");
        // What is asked of a directory can be read and set again.
        assert!(lov_md::decode(&lov_md::encode_spec(&s)).is_ok());
    }
}

fn samples() -> Vec<Vec<u8>> {
    let fid = Fid::new(0x2_0000_0401, 3, 0);
    let part = |end, extension_bytes| ComponentSpec { end, extension_bytes, ..ComponentSpec::default() };
    let mut spec = LayoutSpec::default();
    spec.set_components(&[part(1 << 20, 0), part(EOF, 1 << 26)]);
    spec.set_mdt_bytes(65536);
    let osts = LayoutSpec { osts: vec![2, 0], pool: "flash".into(), ..LayoutSpec::default() };
    vec![
        lov_md::encode(&Layout::plain(fid, 65536, "", &[1, 2])),
        lov_md::encode(&Layout::plain(fid, 65536, "flash", &[1])),
        lov_md::encode(&Layout::on_mdt(65536)),
        lov_md::encode_spec(&spec),
        lov_md::encode_spec(&osts),
    ]
}
