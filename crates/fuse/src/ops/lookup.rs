//! LOOKUP: a name in a directory. That it is not there may be kept too.

use super::Cx;
use crate::abi::EntryOut;
use crate::reply::{Answer, Reply, valid};
use model::Errno;
use std::time::Duration;

pub async fn run(cx: Cx, name: Vec<u8>) -> Answer {
    let parent = cx.fid()?;
    match cx.fs().lookup(cx.call(), parent, name.clone()).await {
        Ok(attr) => Ok(cx.found(parent, &name, &attr)),
        Err(Errno::ENOENT) => match cx.name_valid(parent, &name, None) {
            Duration::ZERO => Err(Errno::ENOENT),
            life => Ok(Reply::of(&valid(EntryOut::default(), life, Duration::ZERO))),
        },
        Err(e) => Err(e),
    }
}
