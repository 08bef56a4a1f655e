//! Secrets: read from files or the environment, never from arguments, never printed.

use std::path::Path;

/// A secret text. Debug and Display show `***`; only [`Secret::expose`] gives it away.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Why a secret could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file could not be read.
    #[error("cannot read the secret file {path}: {source}")]
    File {
        /// Which file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file or variable holds nothing: an empty secret would protect nothing.
    #[error("{origin} is empty; put the secret in it")]
    Empty {
        /// Which file or variable.
        origin: String,
    },
    /// The variable is not set.
    #[error("the environment variable {0} is not set")]
    Unset(String),
}

/// Reads a secret file; white space around the secret is no part of it.
pub fn from_file(path: &Path) -> Result<Secret, SecretError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| SecretError::File { path: path.display().to_string(), source })?;
    non_empty(text.trim(), || format!("the secret file {}", path.display()))
}

/// Reads a secret from the environment.
pub fn from_env(name: &str) -> Result<Secret, SecretError> {
    let text = std::env::var(name).map_err(|_| SecretError::Unset(name.to_owned()))?;
    non_empty(text.trim(), || format!("the environment variable {name}"))
}

fn non_empty(text: &str, origin: impl Fn() -> String) -> Result<Secret, SecretError> {
    if text.is_empty() { Err(SecretError::Empty { origin: origin() }) } else { Ok(Secret::new(text)) }
}
