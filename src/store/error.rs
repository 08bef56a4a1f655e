//! What can go wrong, by what the caller does about it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why a store does not open. Damage is never a reason: it is set aside, counted and reported in
/// [`super::Recovery`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the data directory {dir} is in use by {holder}; stop that one first, or give this one its own data_dir"
    )]
    Locked {
        /// Which directory.
        dir: PathBuf,
        /// `process 4242`, or `another process`.
        holder: String,
    },
    /// The path is something else.
    #[error("{path} is not a directory; set data_dir to a directory, or to a path that does not exist yet")]
    NotADirectory {
        /// What was configured.
        path: PathBuf,
    },
    /// No permission.
    #[error(
        "cannot write to {path} as this user: {source}; make the directory belong to the user that runs waypost"
    )]
    NotWritable {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Written by a later version.
    #[error(
        "the store in {dir} has format {found}, this version reads up to {known}; nothing was changed; run the newer waypost, or export with it and import here"
    )]
    NewerFormat {
        /// Which directory.
        dir: PathBuf,
        /// Format on disk.
        found: u32,
        /// Newest that this version reads.
        known: u32,
    },
    /// The system refused something else.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What we were doing: `create`, `read`, `write`.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a call other than `append` did nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full even for settlements; try later.
    #[error("the disk is full")]
    Full {
        /// When to try again.
        retry_after: Duration,
    },
    /// The store is stopping or has failed.
    #[error("the store is closed")]
    Closed,
    /// The disk refused.
    #[error("store: {0}")]
    Io(Arc<std::io::Error>),
}
