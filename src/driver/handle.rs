//! What the rest of the program may ask the driver, from any task.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::core::history::History;
use crate::core::ids::{EndpointId, Seq};
use crate::core::time::StoreTime;
use crate::wire::{AttemptsView, EndpointState, HistoryView, StatusView};

/// Commands that may wait for the driver; it takes them every turn, so a few are plenty.
pub const COMMANDS_MAX: usize = 64;

/// How long a fresh status is waited for before an older one is given.
const REFRESH_MAX: Duration = Duration::from_secs(1);

/// There is no endpoint of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no endpoint \"{name}\"; there is {known}")]
pub struct UnknownEndpoint {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub known: String,
}

/// What a person may do to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointAction {
    /// Stop attempts, keep the data.
    Pause,
    /// Start again, also after a hold or a 410.
    Resume,
    /// Probe a held endpoint now.
    Probe,
}

/// A command on its way to the driver.
#[derive(Debug)]
pub enum Command {
    /// Do something to an endpoint.
    Endpoint {
        /// Its name.
        name: String,
        /// What.
        action: EndpointAction,
        /// Its state afterwards.
        answer: oneshot::Sender<Result<EndpointState, UnknownEndpoint>>,
    },
    /// These dead letters are pending again.
    Redriven(Vec<(Seq, EndpointId)>),
    /// Take a status snapshot now.
    Refresh(oneshot::Sender<()>),
}

/// A cheap handle to the driver.
#[derive(Clone)]
pub struct Handle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) status: watch::Receiver<Arc<StatusView>>,
    pub(super) attempts: watch::Receiver<Arc<AttemptsView>>,
    /// Written by the driver four times a second, held for microseconds.
    pub(super) history: Arc<Mutex<History>>,
}

impl Handle {
    /// Pauses, resumes or probes an endpoint. `Err` also when the appliance is stopping: then nothing is known.
    pub async fn endpoint(
        &self,
        name: &str,
        action: EndpointAction,
    ) -> Result<EndpointState, UnknownEndpoint> {
        let unknown = || UnknownEndpoint {
            name: name.to_owned(),
            known: "nothing: the appliance is stopping".to_owned(),
        };
        let (answer, reply) = oneshot::channel();
        let command = Command::Endpoint { name: name.to_owned(), action, answer };
        self.commands.send(command).await.map_err(|_| unknown())?;
        reply.await.map_err(|_| unknown())?
    }

    /// Tells the driver that dead letters are pending again.
    pub async fn redriven(&self, items: Vec<(Seq, EndpointId)>) {
        // If the driver has stopped, the next start finds them in the store.
        let _ = self.commands.send(Command::Redriven(items)).await;
    }

    /// A status taken after this call began, so that what was answered before is in it. If the driver is busy or has
    /// stopped: the latest there is.
    pub async fn fresh_status(&self) -> Arc<StatusView> {
        let (taken, wait) = oneshot::channel();
        if self.commands.try_send(Command::Refresh(taken)).is_ok() {
            let _ = tokio::time::timeout(REFRESH_MAX, wait).await;
        }
        self.status()
    }

    /// The latest status, at most a quarter of a second old.
    pub fn status(&self) -> Arc<StatusView> {
        Arc::clone(&self.status.borrow())
    }

    /// Changes whenever there is a new status.
    pub fn status_changes(&self) -> watch::Receiver<Arc<StatusView>> {
        self.status.clone()
    }

    /// Recent attempts for the dashboard.
    pub fn attempts(&self) -> Arc<AttemptsView> {
        Arc::clone(&self.attempts.borrow())
    }

    /// Depth and oldest age since start, for the dashboard's sparklines.
    pub fn history(&self, now: StoreTime) -> HistoryView {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        HistoryView { spans: history.traces(now.0) }
    }
}
