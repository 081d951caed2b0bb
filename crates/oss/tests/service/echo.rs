//! Echo objects: what `obdfilter-survey case=disk` has an OST do.

use super::{Bed, MemDisk};
use oss::{EchoLoad, EchoObjects};
use store::object::location::{ObjectRecord, TAG_OBJECT, id_of_key};

#[test]
fn a_survey_writes_and_reads_objects_of_no_file_and_leaves_none() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    let echo = EchoObjects::of(&up.ost);
    let load = EchoLoad { write: true, objects: 2, threads: 4, bytes: 64 << 10, request: 4 << 10 };
    let run = |load| {
        echo.start(load).unwrap();
        bed.wait(async {
            while echo.look().running {
                bed.world.sleep(std::time::Duration::from_millis(1)).await;
            }
        });
        echo.look()
    };
    let first = run(load);
    assert_eq!((first.bytes, first.failed), (64 << 10, None));
    assert!(first.nanos > 0);
    // over what is there, and back
    assert_eq!(run(load).failed, None);
    let read = EchoLoad { write: false, ..load };
    assert_eq!((run(read).bytes, run(read).failed), (64 << 10, None));
    let sizes = || -> Vec<u64> {
        let all = up.db.scan(&[TAG_OBJECT], &[TAG_OBJECT + 1], 10).unwrap();
        let record = |(k, v): &(Vec<u8>, Vec<u8>)| ObjectRecord::decode(id_of_key(k).unwrap(), v).unwrap();
        all.iter().map(|kv| record(kv).attr.size).collect()
    };
    assert_eq!(sizes(), [32 << 10, 32 << 10]);
    // nobody wrote so many
    let more = run(EchoLoad { bytes: 128 << 10, ..read });
    assert!(more.failed.is_some_and(|why| why.contains("read of echo object")));
    bed.wait(echo.clean()).unwrap();
    assert_eq!(sizes(), [0; 0]);
    assert!(!echo.look().running);
    bed.wait(up.ost.stop());
}
