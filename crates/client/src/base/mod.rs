//! What all layers stand on: who the mount is and how it was set up ([`Context`]), what went wrong in the
//! background (`errseq` tells it, `errors` lists it, `lost` finds out whose it was), who keeps copies of what
//! it knows (`cache_holder`), work that must reach its end (`detach`) or that others let pass (`under_way`),
//! when processors are to stay awake (`pmqos`). Nothing here sends anything.

pub(crate) mod cache_holder;
pub(crate) mod context;
pub(crate) mod detach;
pub(crate) mod errors;
pub(crate) mod errseq;
pub(crate) mod jobid;
pub(crate) mod lost;
pub(crate) mod maintenance;
pub(crate) mod params;
pub(crate) mod pmqos;
pub(crate) mod shares;
pub(crate) mod under_way;
pub(crate) mod whose;

pub(crate) use context::{Context, Settings};
pub(crate) use detach::Detached;
