//! Telling a server what this client is beside a client.

use super::Core;
use crate::link::Link;
use bytes::Bytes;
use wire::msg::notify::Notice;
use wire::proof::Challenge;
use wire::{Frame, FrameKind, Header};

impl Core {
    /// Proves it on the connection of the session, if the server sent a nonce and there is anything to prove.
    /// What is sent later finds it proved.
    pub(super) fn prove(&self, link: &Link) {
        let keys = self.cfg.hooks.keys();
        let mut h = Header::new(FrameKind::Notify);
        h.target = self.target_number();
        let nonce = {
            let g = self.lock();
            (h.session, h.epoch) = (g.session, g.epoch);
            g.nonce
        };
        let Some(nonce) = nonce.filter(|_| !keys.is_empty()) else { return };
        let challenge =
            Challenge { nonce, session: h.session, target: h.target, client: self.cfg.client_uuid };
        let claims = keys.iter().map(|(by, key)| challenge.claim(key, *by)).collect();
        let body = postcard::to_stdvec(&Notice::Proof { claims }).expect("plain data encodes");
        link.post(Frame::new(h, body, Bytes::new()));
    }
}
