//! What a daemon tells of itself and its targets in numbers.

use super::Node;
use super::target::{Role, Target};
use crate::metrics::Told;
use model::metrics::{Page, Scrape, Side};
use model::param::EVERYTHING;
use rpc::server::recovery::Recovery;
use std::sync::Arc;

fn add_target(to: &mut Scrape, t: &Target) {
    match &t.service {
        Role::Mgs(m) => to.add(&m.params(EVERYTHING)),
        Role::Mdt(m) => to.add(&m.params(EVERYTHING)),
        Role::Ost(o) => to.add(&o.params(EVERYTHING)),
    }
    to.add(&t.osd_params(EVERYTHING));
    let progress = t.recovery().and_then(Recovery::progress);
    let left = progress.map(|p| (p.clients.saturating_sub(p.completed), p.seconds_left));
    to.add_target(&t.label(), t.state(), left);
}

impl Node {
    pub(super) fn metrics(&self) -> Page {
        let mut s = Scrape::new(Side::Server, admin::VERSION);
        s.add(&self.own_params(EVERYTHING));
        self.targets().iter().for_each(|t| add_target(&mut s, t));
        self.standby().iter().for_each(|m| s.add(&m.params(EVERYTHING)));
        s.add_health(self.trouble().is_none());
        s.finish()
    }
}

impl Told for Arc<Node> {
    fn page(&self) -> Page {
        self.metrics()
    }

    fn trouble(&self) -> Option<String> {
        Node::trouble(self)
    }
}
