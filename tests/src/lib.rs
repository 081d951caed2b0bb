//! Real processes under test; see README.md
