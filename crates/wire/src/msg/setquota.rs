//! setquota: what users, groups and projects may use. Root only.

use model::quota::LimitOrder;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setquota {
    pub order: LimitOrder,
}
message!(Setquota, Setquota, ());
