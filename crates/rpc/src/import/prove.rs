//! Telling a server what this client is beside a client.

use super::Core;
use crate::link::Link;
use bytes::Bytes;
use wire::msg::notify::Notice;
use wire::proof::{CLAIMS_MAX, Challenge};
use wire::{Frame, FrameKind, Header};

impl Core {
    /// Proves it on the connection of the session, if the server sent a nonce and there is anything to prove.
    /// What is sent later finds it proved.
    pub(super) fn prove(&self, link: &Link) {
        let keys = self.cfg.hooks.keys();
        let (nonce, session, epoch) = {
            let g = self.lock();
            (g.nonce, g.session, g.epoch)
        };
        let Some(nonce) = nonce.filter(|_| !keys.is_empty()) else { return };
        let target = self.target_number();
        let challenge = Challenge { nonce, session, target, client: self.cfg.client_uuid };
        for some in keys.chunks(CLAIMS_MAX) {
            let mut h = Header::new(FrameKind::Notify);
            (h.target, h.session, h.epoch) = (target, session, epoch);
            let claims = some.iter().map(|(by, key)| challenge.claim(key, *by)).collect();
            let body = postcard::to_stdvec(&Notice::Proof { claims }).expect("plain data encodes");
            link.post(Frame::new(h, body, Bytes::new()));
        }
    }
}
