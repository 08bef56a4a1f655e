//! Where answers come from: something that can be asked. The appliance over its admin API, made-up data, a test.

use std::time::Duration;

use super::message::{Answer, FetchError, Kind, Reply, Request};

/// How long an answer may take before the appliance counts as silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// The same for orders, which may touch 100,000 dead letters.
const ORDER_TIMEOUT: Duration = Duration::from_mins(2);

/// Something that can be asked. Never retries by itself: when to ask again is decided in `update`.
pub trait Source: Clone + Send + Sync + 'static {
    /// Asks once.
    fn fetch(&self, request: Request) -> impl Future<Output = Result<Answer, FetchError>> + Send;
}

/// Asks once, within bounds of time; always gives a reply.
pub async fn ask<S: Source>(source: S, request: Request) -> Reply {
    let limit = if request.kind() == Kind::Order { ORDER_TIMEOUT } else { ANSWER_TIMEOUT };
    let answer = match tokio::time::timeout(limit, source.fetch(request.clone())).await {
        Ok(answer) => answer,
        Err(_) => Err(FetchError::Unreachable(format!("no answer within {} s", limit.as_secs()))),
    };
    Reply { request, answer }
}
