//! What is known about a delivery: its attempts so far, its state, and what a settlement writes.
//!
//! A delivery is one event for one endpoint. [`State`] and [`State::apply`] are its whole life; the store replays the
//! same transitions on recovery.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::classify::VerdictKind;

use super::time::{StoreTime, UnixMillis};

/// Attempts kept in a delivery's history; older ones are dropped from the middle (the first is kept).
pub const HISTORY_MAX: usize = 8;
/// Bytes of a receiver's answer kept for the last attempt of a history.
pub const ANSWER_BYTES_MAX: usize = 1024;

/// One attempt as it is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Number from 1, as sent in `Waypost-Attempt`.
    pub number: u32,
    /// When it ended.
    pub at: UnixMillis,
    /// What kind of thing happened.
    pub verdict: VerdictKind,
    /// Short cause in words, for example `http 503` or `connection refused`.
    pub reason: String,
    /// HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// From start to end of the attempt.
    pub latency_ms: u32,
    /// Delay drawn before the next attempt, if there is one.
    pub delay_ms: Option<u64>,
    /// Whether any byte of the request may have reached the receiver.
    pub bytes_sent: bool,
    /// Whether it counted towards `attempts_max`.
    pub charged: bool,
    /// Start of the answer's body as text, at most [`ANSWER_BYTES_MAX`] bytes (the last attempt only).
    pub answer: String,
}

/// What survives a restart of a delivery that is between attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
pub struct Progress {
    /// Attempts made, all kinds.
    pub attempts: u32,
    /// Attempts that count towards `attempts_max`.
    pub charged: u32,
    /// Times this delivery was redriven.
    pub redrives: u32,
    /// Previous delay, the state of decorrelated jitter; zero before the first.
    pub previous_delay: Duration,
    /// Attempts, oldest first, at most [`HISTORY_MAX`].
    pub history: Vec<AttemptRecord>,
}

/// Class of a dead letter (`failure_class` of the `dlq.v1` envelope).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Retries ended on something that may pass: budget, attempts on 5xx or timeouts.
    Transient,
    /// The geometry gate refused it.
    InvalidGeometry,
    /// The receiver or the intake found the document wrong.
    SchemaViolation,
    /// A `crs` other than WGS 84 longitude, latitude.
    CrsMismatch,
    /// A terminal answer of the receiver.
    Rejected,
    /// Older than the retry window.
    Expired,
    /// Failed again and again while others passed.
    Poison,
    /// No route wanted it.
    Unrouted,
    /// None of these.
    Unknown,
}

/// Where in its life a dead letter failed (`failed_stage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Reading the document.
    Parse,
    /// Its coordinate reference system.
    Crs,
    /// The geometry gate.
    Geometry,
    /// Choosing endpoints.
    Route,
    /// Sending it.
    Delivery,
}

/// Why a delivery is dead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadReason {
    /// Class for filters and redrive rules.
    pub class: FailureClass,
    /// Stage that failed.
    pub stage: Stage,
    /// One sentence.
    pub message: String,
    /// Offending position, for geometry.
    pub location: Option<[f64; 2]>,
}

/// What is written at the end of an attempt (or by a person, or by a limit).
#[derive(Clone, Debug, PartialEq)]
pub enum Settlement {
    /// 2xx believed.
    Delivered {
        /// The attempt that did it and those before.
        progress: Progress,
    },
    /// Try again at `due`; keeps counts, delay and history.
    RetryAt {
        /// When the next attempt may start.
        due: StoreTime,
        /// Counts and history.
        progress: Progress,
    },
    /// Back to plain pending, nothing charged: the endpoint is held.
    Returned {
        /// Counts and history; written only if something in it must survive.
        progress: Progress,
    },
    /// To the dead letters.
    Dead {
        /// Why.
        reason: DeadReason,
        /// Counts and history.
        progress: Progress,
    },
    /// Dropped by a route's TTL.
    Expired,
    /// A newer ping of the same device replaced it.
    Superseded,
}

/// State of a delivery in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Accepted, no attempt's outcome recorded out of line.
    Pending,
    /// Between attempts, due at the given store time.
    Waiting(StoreTime),
    /// In the dead-letter queue.
    Dead,
    /// Ends: delivered, expired, discarded, dropped, superseded or lost.
    Ended(End),
}

/// The ways a delivery ends for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// A receiver has it.
    Delivered,
    /// Its route's TTL passed.
    Expired,
    /// A person gave it up.
    Discarded,
    /// `when_full = "drop-oldest"` or a full dead-letter share with `discard-oldest`.
    Dropped,
    /// A newer event replaced it: a later ping, or the repaired one of a dead letter.
    Superseded,
    /// Destroyed by damage; counted at recovery or when it was read.
    Lost,
}

/// What can happen to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// An attempt failed and another is due.
    RetryAt(StoreTime),
    /// The endpoint is held; back in line.
    Returned,
    /// To the dead letters.
    Dead,
    /// A person or auto-redrive sends a dead letter again.
    Redriven,
    /// An end.
    End(End),
}

/// A transition that the diagram does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{transition:?} is not possible from {from:?}")]
pub struct IllegalTransition {
    /// State before.
    pub from: State,
    /// What was asked.
    pub transition: Transition,
}

impl State {
    /// The one transition function: `pending ⇄ waiting → dead → pending`, and every way to an end.
    pub fn apply(self, transition: Transition) -> Result<State, IllegalTransition> {
        use End::{Delivered, Discarded, Dropped, Expired, Lost, Superseded};
        let illegal = Err(IllegalTransition { from: self, transition });
        match (self, transition) {
            (State::Ended(_), _) => illegal,
            (State::Pending | State::Waiting(_), Transition::RetryAt(due)) => Ok(State::Waiting(due)),
            (State::Pending | State::Waiting(_), Transition::Returned)
            | (State::Dead, Transition::Redriven) => Ok(State::Pending),
            (State::Pending | State::Waiting(_), Transition::Dead) => Ok(State::Dead),
            (
                State::Pending | State::Waiting(_),
                Transition::End(end @ (Delivered | Expired | Superseded | Dropped | Lost | Discarded)),
            )
            | (State::Dead, Transition::End(end @ (Discarded | Dropped | Superseded | Lost))) => {
                Ok(State::Ended(end))
            }
            (State::Dead, _) | (State::Pending | State::Waiting(_), Transition::Redriven) => illegal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [End; 6] =
        [End::Delivered, End::Expired, End::Discarded, End::Dropped, End::Superseded, End::Lost];

    /// The diagram, drawn as a table of what is possible from each state; everything else is refused.
    #[test]
    fn the_transition_function_accepts_exactly_the_drawn_diagram() {
        let due = StoreTime(7);
        let alive = |state: State| -> Vec<(Transition, State)> {
            assert!(matches!(state, State::Pending | State::Waiting(_)));
            [
                (Transition::RetryAt(due), State::Waiting(due)),
                (Transition::Returned, State::Pending),
                (Transition::Dead, State::Dead),
            ]
            .into_iter()
            .chain(ENDS.map(|end| (Transition::End(end), State::Ended(end))))
            .collect()
        };
        let dead = [(Transition::Redriven, State::Pending)]
            .into_iter()
            .chain(
                [End::Discarded, End::Dropped, End::Superseded, End::Lost]
                    .map(|end| (Transition::End(end), State::Ended(end))),
            )
            .collect::<Vec<_>>();
        let mut diagram = vec![
            (State::Pending, alive(State::Pending)),
            (State::Waiting(StoreTime(3)), alive(State::Waiting(StoreTime(3)))),
            (State::Dead, dead),
        ];
        diagram.extend(ENDS.map(|end| (State::Ended(end), Vec::new())));
        let transitions: Vec<Transition> =
            [Transition::RetryAt(due), Transition::Returned, Transition::Dead, Transition::Redriven]
                .into_iter()
                .chain(ENDS.map(Transition::End))
                .collect();
        for (from, possible) in diagram {
            for transition in &transitions {
                let drawn = possible.iter().find(|(known, _)| known == transition).map(|(_, to)| *to);
                let expected = drawn.ok_or(IllegalTransition { from, transition: *transition });
                assert_eq!(from.apply(*transition), expected, "{from:?} {transition:?}");
            }
        }
    }
}
