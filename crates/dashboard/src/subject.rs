//! The pages: a row each.

use crate::app::Console;
use crate::pages;
use crate::source::Topic;
use maud::Markup;
use serde_json::{Map, Value};

/// What a page is made from: the same that its JSON address gives.
pub struct Documents(pub Map<String, Value>);

impl Documents {
    pub fn of(&self, topic: Topic) -> &Value {
        self.0.get(topic.name()).unwrap_or(&Value::Null)
    }
}

/// One page.
pub struct Subject {
    /// `/NAME`, and `/api/NAME` for its JSON.
    pub name: &'static str,
    pub title: &'static str,
    /// What it is about, for the list of JSON addresses.
    pub about: &'static str,
    pub topics: &'static [Topic],
    pub render: fn(&Documents, &Console) -> Markup,
    /// What stands above and is not fetched again.
    pub above: Option<fn(&Console) -> Markup>,
}

/// In the order of the navigation.
pub const SUBJECTS: &[Subject] = &[
    Subject {
        name: "overview",
        title: "Overview",
        about: "file systems with verdict, troubles, targets with states and space",
        topics: &[Topic::Overview],
        render: pages::overview::render,
        above: None,
    },
    Subject {
        name: "topology",
        title: "Topology",
        about: "hosts, their targets with states and epochs",
        topics: &[Topic::Overview, Topic::Servers, Topic::Config],
        render: pages::topology::render,
        above: None,
    },
    Subject {
        name: "capacity",
        title: "Capacity",
        about: "fill of OSTs, pools and metadata targets",
        topics: &[Topic::Overview, Topic::Config],
        render: pages::capacity::render,
        above: None,
    },
    Subject {
        name: "performance",
        title: "Performance",
        about: "rates of now are in /api/history",
        topics: &[],
        render: pages::performance::render,
        above: Some(pages::performance::charts),
    },
    Subject {
        name: "top",
        title: "Top",
        about: "busiest jobs and clients, users, groups and projects with most",
        topics: &[Topic::Jobs, Topic::Clients, Topic::Owners],
        render: pages::top::render,
        above: None,
    },
    Subject {
        name: "directories",
        title: "Directories",
        about: "directories with a quota, those with most in them first",
        topics: &[Topic::Directories],
        render: pages::directories::render,
        above: None,
    },
    Subject {
        name: "recovery",
        title: "Recovery",
        about: "targets in recovery, targets that are away, and where the cluster's engine has them",
        topics: &[Topic::Servers, Topic::Overview, Topic::Ha],
        render: pages::recovery::render,
        above: None,
    },
    Subject {
        name: "requests",
        title: "Requests",
        about: "requests of this host's mounts that wait",
        topics: &[Topic::Requests],
        render: pages::requests::render,
        above: None,
    },
    Subject {
        name: "movements",
        title: "Movements",
        about: "files that are moved to other objects",
        topics: &[Topic::Movements, Topic::Overview],
        render: pages::movements::render,
        above: None,
    },
    Subject {
        name: "checks",
        title: "Checks",
        about: "lfsck and scrub",
        topics: &[Topic::Checks],
        render: pages::checks::render,
        above: None,
    },
    Subject {
        name: "policies",
        title: "Policies",
        about: "runs of policies",
        topics: &[Topic::Policies],
        render: pages::policies::render,
        above: None,
    },
    Subject {
        name: "config",
        title: "Configuration",
        about: "what the MGS keeps, and its last versions",
        topics: &[Topic::Config],
        render: pages::config::render,
        above: None,
    },
    Subject {
        name: "quotas",
        title: "Quotas",
        about: "what owners have, and may have",
        topics: &[Topic::Owners],
        render: pages::quotas::render,
        above: None,
    },
    Subject {
        name: "doctor",
        title: "Doctor",
        about: "what is wrong right now, and the command that helps",
        topics: &[Topic::Doctor],
        render: pages::doctor::render,
        above: None,
    },
    Subject {
        name: "actions",
        title: "Actions",
        about: "what an operator may do is in /api, who did what in /api/audit",
        topics: &[],
        render: pages::actions::render,
        above: None,
    },
];

pub fn find(name: &str) -> Option<&'static Subject> {
    SUBJECTS.iter().find(|s| s.name == name)
}
