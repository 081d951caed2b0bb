//! configview: the configuration and its history, for administrators of any host.

use super::{Done, done};
use crate::registration::Refused;
use crate::restore::ConfigOrder;
use crate::service::Mgs;
use model::Errno;
use rpc::Incoming;
use wire::msg::configview::{Configview, ConfigviewReply, PIECE_MAX_BYTES, Piece, View};

/// As it is asked on the MGS's host.
fn order(view: View) -> ConfigOrder {
    let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    match view {
        View::Show => ConfigOrder::Show,
        View::History { before: 0, count: n } => ConfigOrder::History(count(n)),
        View::History { before, count: n } => ConfigOrder::Older(before, count(n)),
        View::Diff { from, to } => ConfigOrder::Diff(from, to),
        View::Export => ConfigOrder::Export,
    }
}

fn piece(mgs: &Mgs, m: &Configview) -> Result<Piece, Refused> {
    let (version, answer) = mgs.look(&order(m.view))?;
    if m.from > 0 && m.version != version {
        let why = format!("the configuration has version {version} by now: ask from the beginning");
        return Err((Errno::ESTALE, why));
    }
    let text = serde_json::to_vec(&answer).expect("plain data encodes");
    let rest = usize::try_from(m.from).ok().and_then(|from| text.get(from..));
    let Some(rest) = rest else {
        return Err((Errno::EINVAL, format!("the answer has {} bytes", text.len())));
    };
    let text_of_piece = rest.get(..PIECE_MAX_BYTES).unwrap_or(rest).to_vec();
    Ok(Piece { version, total: text.len() as u64, text: text_of_piece })
}

pub fn run(mgs: &Mgs, req: &Incoming, m: &Configview) -> Result<Done, Errno> {
    if !req.ctx.cred.is_root() {
        return Err(Errno::EPERM);
    }
    let said = piece(mgs, m).map_err(|(e, why)| (e.0, why));
    Ok(done(&ConfigviewReply { said }, mgs.seen(), false))
}
