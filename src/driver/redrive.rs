//! Finds the next dead letter that sends itself again, and puts it back in line.

use crate::core::delivery::FailureClass;
use crate::core::dispatcher::REDRIVES_MAX;
use crate::core::ids::{EndpointId, Seq};
use crate::store::{DeadFilter, Outbox, StoreError};

/// Dead letters read at once; most that are transient may go.
const PAGE: usize = 16;

/// Sends the first transient dead letter behind `after` again that may go; gives its sequence. A letter that has been
/// redriven or discarded meanwhile is passed over.
pub(super) async fn next_transient(
    outbox: &Outbox,
    endpoint: EndpointId,
    mut after: Option<(Seq, EndpointId)>,
) -> Result<Option<Seq>, StoreError> {
    let filter = DeadFilter {
        endpoint: Some(endpoint),
        class: Some(FailureClass::Transient),
        ..DeadFilter::default()
    };
    loop {
        let page = outbox.dead_letters(filter.clone(), after, PAGE).await?;
        for letter in page.letters {
            let seq = letter.head.seq;
            if letter.progress.redrives < REDRIVES_MAX && outbox.redrive(vec![(seq, endpoint)]).await? > 0 {
                return Ok(Some(seq));
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(None);
        }
    }
}
