//! The edge table line by line, and the transport failures.

use super::super::time::{StoreTime, UnixMillis};
use super::*;

fn now() -> Now {
    Now { store: StoreTime(0), wall: UnixMillis(1_764_547_200_000), wall_trusted: true }
}

fn edge() -> EndpointPolicy {
    EndpointPolicy::default()
}

fn status(status: u16, policy: &EndpointPolicy) -> Verdict {
    classify(&Outcome::Response(Answer { status, ..Answer::default() }), policy, now())
}

fn failed(kind: TransportKind, bytes_sent: bool, reused: bool, wall_trusted: bool) -> Verdict {
    let outcome = Outcome::Transport { kind, bytes_sent, reused };
    classify(&outcome, &edge(), Now { wall_trusted, ..now() })
}

#[test]
fn the_edge_table() {
    use VerdictKind as V;
    let rows: &[(V, &[u16])] = &[
        (V::Delivered, &[200, 201, 202, 204, 299]),
        (V::Retry, &[408, 409, 417, 421, 423, 424, 425, 500, 506, 508, 510, 599]),
        (V::Throttle, &[429]),
        (V::Hold, &[502, 503, 504, 507, 520, 521, 522, 523, 524, 530]),
        (V::HoldAuth, &[401, 403, 407, 498, 499]),
        (V::HoldConfig, &[300, 301, 302, 303, 304, 307, 308, 404, 405, 415, 501, 505]),
        (V::HoldLocal, &[511]),
        (V::Terminal, &[400, 402, 406, 411, 412, 413, 414, 416, 418, 422, 426, 428, 431, 451]),
        (V::Disabled, &[410]),
    ];
    for (kind, statuses) in rows {
        for code in *statuses {
            let verdict = status(*code, &edge());
            assert_eq!(verdict.kind, *kind, "{code}");
            assert_eq!(verdict.charged, *kind == V::Retry, "{code} blames the wrong side");
            assert_eq!(verdict.reason, format!("http {code}"));
        }
    }
    for code in 0..=999 {
        status(code, &edge()); // total, whatever a broken receiver sends
    }
}

#[test]
fn an_override_pins_a_status_in_both_policies() {
    for kind in [PolicyKind::Edge, PolicyKind::Article] {
        let overrides = [
            (409, Override::Delivered),
            (400, Override::Retry),
            (422, Override::Hold),
            (503, Override::Terminal),
        ];
        let policy = EndpointPolicy { kind, overrides: overrides.into(), ..edge() };
        assert_eq!(status(409, &policy).kind, VerdictKind::Delivered);
        assert_eq!(status(400, &policy).kind, VerdictKind::Retry);
        assert_eq!(status(422, &policy).kind, VerdictKind::Hold);
        assert_eq!(status(503, &policy).kind, VerdictKind::Terminal);
    }
}

#[test]
fn transport_failures_name_their_cause_and_who_pays() {
    use HoldReason as H;
    use TransportKind as T;
    use VerdictKind as V;
    let check = |kind, sent, verdict, hold, charged| {
        let found = failed(kind, sent, false, true);
        assert_eq!((found.kind, found.hold, found.charged), (verdict, Some(hold), charged), "{kind:?}");
    };
    check(T::Dns, false, V::HoldLocal, H::Dns, false);
    check(T::NoNetwork, false, V::HoldLocal, H::Network, false);
    check(T::Refused, false, V::Hold, H::Refused, false);
    check(T::ConnectTimeout, false, V::Hold, H::Timeout, false);
    check(T::Tls, false, V::Hold, H::Tls, false);
    check(T::TlsNotYetValid, false, V::Hold, H::Tls, false);
    check(T::TlsExpired, false, V::Hold, H::Tls, false);
    check(T::Reset, true, V::Retry, H::Refused, true);
    check(T::Reset, false, V::Retry, H::Refused, false);
    check(T::Timeout, true, V::Retry, H::Timeout, true);
    check(T::Protocol, true, V::Retry, H::Http5xx, true);
}

#[test]
fn certificates_are_not_judged_by_a_clock_that_is_wrong() {
    for kind in [TransportKind::TlsNotYetValid, TransportKind::TlsExpired, TransportKind::ClockUntrusted] {
        let verdict = failed(kind, false, false, false);
        assert_eq!((verdict.kind, verdict.hold), (VerdictKind::HoldLocal, Some(HoldReason::Clock)));
    }
}

#[test]
fn only_a_reset_on_a_kept_connection_is_free() {
    assert!(failed(TransportKind::Reset, true, true, true).free_repeat);
    assert!(!failed(TransportKind::Reset, true, false, true).free_repeat);
    assert!(!failed(TransportKind::Timeout, true, true, true).free_repeat);
}

#[test]
fn a_spent_quota_pauses_even_after_a_success() {
    let limited = |status, remaining, retry_after: &[&str]| {
        let answer = Answer {
            status,
            rate_limit: Some(RateLimit { remaining, reset_s: 7 }),
            retry_after: retry_after.iter().map(|text| (*text).to_owned()).collect(),
            ..Answer::default()
        };
        classify(&Outcome::Response(answer), &edge(), now())
    };
    let seconds = |s| Some(Duration::from_secs(s));
    assert_eq!((limited(200, 0, &[]).kind, limited(200, 0, &[]).pause), (VerdictKind::Delivered, seconds(7)));
    assert_eq!(limited(200, 3, &[]).pause, None);
    assert_eq!(limited(429, 0, &["40"]).pause, seconds(40), "Retry-After wins");
    assert_eq!(limited(403, 0, &[]).kind, VerdictKind::Throttle);
}

#[test]
fn a_document_too_large_now_may_be_taken_later() {
    let answer = Answer { status: 413, retry_after: vec!["60".to_owned()], ..Answer::default() };
    let verdict = classify(&Outcome::Response(answer), &edge(), now());
    assert_eq!((verdict.kind, verdict.pause), (VerdictKind::Throttle, Some(Duration::from_mins(1))));
}

#[test]
fn the_article_believes_pages_and_charges_everything() {
    let article = EndpointPolicy { kind: PolicyKind::Article, ..edge() };
    let page = Answer { status: 200, content_type: "text/html".to_owned(), ..Answer::default() };
    assert_eq!(classify(&Outcome::Response(page.clone()), &article, now()).kind, VerdictKind::Delivered);
    assert_eq!(classify(&Outcome::Response(page), &edge(), now()).kind, VerdictKind::HoldLocal);
    let refused = Outcome::Transport { kind: TransportKind::Refused, bytes_sent: false, reused: false };
    let verdict = classify(&refused, &article, now());
    assert!(verdict.charged && verdict.kind == VerdictKind::Retry && verdict.hold.is_none());
    for (value, wait_s) in [("5", Some(5)), ("400", Some(30)), ("Sun, 06 Nov 1994 08:49:37 GMT", None)] {
        let answer = Answer { status: 503, retry_after: vec![value.to_owned()], ..Answer::default() };
        let pause = classify(&Outcome::Response(answer), &article, now()).pause;
        assert_eq!(pause, wait_s.map(Duration::from_secs), "{value}");
    }
}
