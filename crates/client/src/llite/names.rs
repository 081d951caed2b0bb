//! What operations on names and open handles share.

use super::Data;
use crate::base::Context;
use crate::lmv::Lmv;
use crate::mdc;
use std::sync::Arc;

/// Names that lead to files, and handles under which these are open.
pub(crate) struct Names {
    pub cx: Arc<Context>,
    pub lmv: Arc<Lmv>,
    pub meta: Arc<mdc::Shared>,
    pub data: Arc<Data>,
}

impl Names {
    pub(crate) fn new(data: &Arc<Data>) -> Arc<Names> {
        let (cx, lmv, meta) = (data.cx.clone(), data.lmv.clone(), data.meta.clone());
        Arc::new(Names { cx, lmv, meta, data: data.clone() })
    }
}
