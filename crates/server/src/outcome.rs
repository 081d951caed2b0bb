//! What a daemon that the mount helper started tells it.

use serde::{Deserialize, Serialize};
use world::sys::process;

/// The line that tells the helper how it went.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Mounted,
    Failed {
        message: String,
        /// Of a target: another server of this host has the address.
        #[serde(default)]
        has_neighbour: bool,
    },
}

impl Outcome {
    pub fn failed(message: String) -> Outcome {
        Outcome::Failed { message, has_neighbour: false }
    }

    pub fn say(&self) {
        let line = serde_json::to_string(self).expect("plain data encodes");
        if let Err(e) = process::report(&line) {
            tracing::debug!("the mount helper does not listen: {e}");
        }
    }
}
