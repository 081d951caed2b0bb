//! Pages, made from documents. Text of others is escaped by maud.

pub mod act;
pub mod actions;
pub mod capacity;
pub mod checks;
pub mod config;
pub mod directories;
pub mod doctor;
pub mod frame;
pub mod movements;
pub mod overview;
pub mod parts;
pub mod performance;
pub mod policies;
pub mod quotas;
pub mod recovery;
pub mod requests;
pub mod top;
pub mod topology;
