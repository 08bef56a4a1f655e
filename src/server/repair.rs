//! `POST /v1/dead-letters/repair`: invalid geometries mended, each as a new event that replaces its dead letter.
//!
//! The new event is stored first; only then does the old letter end, as superseded. If the appliance dies in between,
//! the next repair of the letter is answered "duplicate" by the store and ends it then: nothing is sent twice under two
//! keys, and the ledger balances at every moment.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;

use super::AppState;
use super::dead_letters::{Walk, selection};
use super::intake::RESULTS_LISTED_MAX;
use super::problem::{Failure, Kind};
use super::views::{Names, dead_letter_id};
use crate::core::delivery::{End, FailureClass};
use crate::core::event::{EventMeta, Mended, mend};
use crate::core::geometry::repair::Change;
use crate::store::{Appended, DeadLetter, EndRequest};
use crate::wire::{DeadLetterActionView, RepairedLetter};

/// Events appended at once, and bytes of them: a group shares one sync.
const GROUP_EVENTS_MAX: usize = 64;
const GROUP_BYTES_MAX: usize = 1 << 20;

/// A letter whose replacement is ready.
struct Ready {
    end: EndRequest,
    mended: Mended,
    said: RepairedLetter,
}

pub(super) async fn repair(
    State(state): State<AppState>,
    body: Bytes,
) -> Result<Json<DeadLetterActionView>, Failure> {
    let selection = selection(&body)?;
    // Its own task: a client that hangs up must not stop it between the new event and the end of the old letter.
    let work = tokio::spawn(async move {
        let mut view = DeadLetterActionView { dry_run: selection.dry_run, ..Default::default() };
        let names = Names::of(&state);
        let mut walk = Walk::new(&state, &selection)?;
        let (mut group, mut bytes) = (Vec::new(), 0);
        while let Some(letters) = walk.page(&state).await? {
            view.matched += letters.len() as u64;
            for letter in letters {
                match ready(&state, &names, &letter).await? {
                    Err(why) => leave(&mut view, why),
                    Ok(ready) if selection.dry_run => list(&mut view, ready.said),
                    Ok(ready) => {
                        bytes += ready.mended.event.body.len();
                        group.push(ready);
                    }
                }
                if group.len() >= GROUP_EVENTS_MAX || bytes >= GROUP_BYTES_MAX {
                    bytes = 0;
                    replace(&state, std::mem::take(&mut group), &mut view).await?;
                }
            }
        }
        replace(&state, group, &mut view).await?;
        Ok(Json(view))
    });
    work.await.map_err(|_| Kind::Internal.because("the repair broke off; what it replaced stays replaced"))?
}

/// The replacement of a letter, or why there is none.
async fn ready(
    state: &AppState,
    names: &Names,
    letter: &DeadLetter,
) -> Result<Result<Ready, String>, Failure> {
    match letter.reason.class {
        FailureClass::Unrouted => {
            return Ok(Err("no route wants it; change the routes and post it again".to_owned()));
        }
        FailureClass::CrsMismatch => {
            return Ok(Err("its coordinates are not WGS 84; convert and post it again".to_owned()));
        }
        _ => {}
    }
    let Some(event) = state.outbox.event(letter.head.seq).await? else {
        return Ok(Err("its bytes are lost".to_owned()));
    };
    let id = dead_letter_id(letter, names);
    let meta = EventMeta {
        device: Some(letter.head.device.clone()),
        event_type: Some(letter.head.event_type.clone()),
        producer_key: None,
    };
    let (settings, endpoint, from) = (state.intake.clone(), letter.endpoint, id.clone());
    let mended = tokio::task::spawn_blocking(move || mend(&settings, &event.body, &meta, &from, endpoint))
        .await
        .map_err(|_| Kind::Internal.because(format!("dead letter {id} could not be mended")))?;
    Ok(mended.map_err(|why| why.to_string()).map(|mended| Ready {
        end: EndRequest { seq: letter.head.seq, endpoint, end: End::Superseded },
        said: RepairedLetter {
            id,
            changes: mended.changes.iter().copied().map(Change::as_str).map(str::to_owned).collect(),
            type_before: mended.types.0.to_owned(),
            type_after: mended.types.1.to_owned(),
            ..RepairedLetter::default()
        },
        mended,
    }))
}

/// Stores the new events, then ends the letters they replace.
async fn replace(
    state: &AppState,
    group: Vec<Ready>,
    view: &mut DeadLetterActionView,
) -> Result<(), Failure> {
    if group.is_empty() {
        return Ok(());
    }
    let (rest, events): (Vec<_>, Vec<_>) =
        group.into_iter().map(|ready| ((ready.end, ready.said), ready.mended.event)).unzip();
    let appended = state.outbox.append(events).await?;
    let mut ends = Vec::new();
    for ((end, mut said), appended) in rest.into_iter().zip(appended) {
        match appended {
            Appended::Accepted { id, key, .. } => {
                (said.event_id, said.key) = (id.to_string(), key.to_string());
            }
            // Stored by a repair that was cut off before it ended the letter.
            Appended::Duplicate { id, key } => {
                said.event_id = id.to_string();
                said.key = key.map(|key| key.to_string()).unwrap_or_default();
            }
            Appended::DeadLettered { .. } | Appended::KeyReused { .. } => {
                leave(view, "the store did not take the new event as one to be delivered".to_owned());
                continue;
            }
        }
        ends.push(end);
        view.done += 1;
        list(view, said);
    }
    state.outbox.end(ends).await?;
    Ok(())
}

fn leave(view: &mut DeadLetterActionView, why: String) {
    view.skipped += 1;
    view.skipped_reason.get_or_insert(why);
}

fn list(view: &mut DeadLetterActionView, said: RepairedLetter) {
    if (view.repaired.len() as u64) < RESULTS_LISTED_MAX {
        view.repaired.push(said);
    }
}
