//! get_param and set_param of the target's daemon.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GetParam {
    /// Shell glob over dotted names.
    pub pattern: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GetParamReply {
    pub values: Vec<(String, String)>,
}
message!(GetParam, GetParam, GetParamReply);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetParam {
    pub name: String,
    pub value: String,
    /// `-P`: on the MGS, for every node and for good.
    pub permanent: bool,
    /// Take the permanent setting back.
    pub delete: bool,
}
message!(SetParam, SetParam, GetParamReply);
