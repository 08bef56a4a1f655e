//! Receivers for tests: on loopback, any port, requests kept.
#![allow(dead_code, reason = "helpers come before the tests that use them")]

use std::collections::BTreeSet;

use waypost::clock::{Clock, ClockTrust};
use waypost::receiver::Receiver;
use waypost::receiver::record::{Keep, Options, SEEN_MAX};
use waypost::receiver::script::{self, Script};

/// A receiver that answers 200 and keeps heads.
pub async fn ok() -> Receiver {
    always(200).await
}

/// A receiver that answers one status and keeps heads.
pub async fn always(status: u16) -> Receiver {
    scripted(script::always(status), Keep::Heads).await
}

/// A receiver that answers 200 and keeps bodies too.
pub async fn keeping() -> Receiver {
    scripted(script::always(200), Keep::Bodies).await
}

/// A receiver with a script of its own.
pub async fn scripted(script: Script, keep: Keep) -> Receiver {
    with(script, Options { keep, ..Options::default() }).await
}

/// A receiver with a script and options.
pub async fn with(script: Script, options: Options) -> Receiver {
    let any = "127.0.0.1:0".parse().unwrap();
    Receiver::start(any, script, options, Clock::system(ClockTrust::Auto)).await.unwrap()
}

/// From now on it answers 200.
pub fn set_ok(receiver: &Receiver) {
    receiver.set_script(script::always(200));
}

/// Keys of the requests answered 200 so far, of which it must remember each.
pub fn delivered(receiver: &Receiver) -> BTreeSet<String> {
    let requests = receiver.book().totals().requests;
    assert!(
        requests <= SEEN_MAX as u64,
        "{requests} requests: the oldest are forgotten, collect them on the way"
    );
    answered(receiver)
}

/// Keys of those requests answered 200 that it remembers.
pub fn answered(receiver: &Receiver) -> BTreeSet<String> {
    let seen = receiver.book().seen().into_iter();
    seen.filter(|request| request.status == Some(200)).map(|request| request.key).collect()
}
