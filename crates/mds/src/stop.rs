//! Whether the target stops: work in the background ends then, and requests that wait give up.

use std::sync::Arc;
use std::time::Duration;
use world::sync::watch;
use world::{Either, World, select};

/// All clones say the same.
#[derive(Clone)]
pub struct Stop {
    world: World,
    begun: Arc<watch::Sender<bool>>,
}

impl Stop {
    pub fn new(world: &World) -> Stop {
        Stop { world: world.clone(), begun: Arc::new(watch::Sender::new(false)) }
    }

    /// The target stops from now on.
    pub fn begin(&self) {
        self.begun.send_replace(true);
    }

    pub fn is_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Waits until the target stops.
    pub async fn begun(&self) {
        let mut begun = self.begun.subscribe();
        drop(begun.wait_for(|b| *b).await);
    }

    /// Waits for `d`. True if the target stopped meanwhile.
    pub async fn pause(&self, d: Duration) -> bool {
        matches!(select(self.begun(), self.world.sleep(d)).await, Either::Left(()))
    }
}
