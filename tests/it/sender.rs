//! One attempt against receivers that misbehave in every way: each fault has its kind, and tells truly whether any
//! byte went out and whether a kept connection was used.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use waypost::core::classify::{Outcome, TransportKind};
use waypost::core::ids::{EventId, Seq, StoreSalt};
use waypost::core::time::{Now, StoreTime, UnixMillis};
use waypost::receiver::record::{Keep, Options};
use waypost::receiver::script::{self, Act, Answer};
use waypost::receiver::{Fault, Power};
use waypost::sender::{Attempt, HttpSender, KeyForm, Sent, Settings, SigningKey, Tls};

use crate::support::misbehave::{self, OK, pem};
use crate::support::receiver;

/// Whole attempt in these tests; long against a loopback round trip, short for a test.
const TIMEOUT: Duration = Duration::from_millis(600);
/// How much later than its deadline an attempt may end on a busy machine.
const SLACK: Duration = Duration::from_secs(1);

fn settings(url: &str) -> Settings {
    let mut settings = Settings::new(url.parse().unwrap());
    settings.timeout = TIMEOUT;
    settings.connect_timeout = TIMEOUT / 2;
    settings
}

fn sender_to(url: &str) -> HttpSender {
    HttpSender::new(settings(url)).unwrap()
}

fn sender(addr: SocketAddr) -> HttpSender {
    sender_to(&format!("http://{addr}/hook"))
}

fn attempt(body: impl Into<Bytes>) -> Attempt {
    Attempt {
        number: 1,
        id: EventId::new(1_800_000_000_000, Seq(7), StoreSalt(9)),
        key: "idem:v2:00ff".into(),
        device: "Gerät 7\r\nX-Evil: 1".into(),
        event_type: "feature".into(),
        accepted_at: UnixMillis(1_800_000_000_000),
        body: body.into(),
    }
}

fn now(wall: UnixMillis) -> Now {
    Now { store: StoreTime(0), wall, wall_trusted: true }
}

async fn send(sender: &HttpSender) -> Sent {
    sender.send(&attempt("{}"), now(UnixMillis(1_800_000_000_000))).await
}

#[track_caller]
fn transport(sent: &Sent) -> (TransportKind, bool, bool) {
    match sent.outcome {
        Outcome::Transport { kind, bytes_sent, reused } => (kind, bytes_sent, reused),
        Outcome::Response(ref answer) => panic!("an answer came: {answer:?}"),
    }
}

#[track_caller]
fn status(sent: &Sent) -> u16 {
    match &sent.outcome {
        Outcome::Response(answer) => answer.status,
        Outcome::Transport { kind, .. } => panic!("no answer came: {kind:?}"),
    }
}

/// The receiver gets the exact bytes, the headers of the contract, and nothing that was smuggled into a device name.
#[tokio::test]
async fn a_receiver_gets_exact_bytes_and_the_headers_of_the_contract() {
    let receiver = receiver::keeping().await;
    let body = b"{\"n\": 9007199254740993, \"x\" :1.10, \"a\":\"\\u00e9\"}\n ";
    let sent = sender_to(&receiver.url()).send(&attempt(&body[..]), now(UnixMillis(0))).await;
    assert_eq!(status(&sent), 200);
    let seen = &receiver.book().seen()[0];
    assert_eq!(seen.body.as_deref(), Some(&body[..]));
    assert_eq!(seen.method, "POST");
    assert_eq!(seen.headers["waypost-device"], "Ger%C3%A4t%207%0D%0AX-Evil:%201");
    let mut names: Vec<_> = seen.headers.keys().map(ToString::to_string).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "accept",
            "content-length",
            "content-type",
            "host",
            "idempotency-key",
            "user-agent",
            "waypost-accepted-at",
            "waypost-attempt",
            "waypost-device",
            "waypost-event-type",
            "webhook-id"
        ]
    );
}

/// Signatures of both secrets of a rotation satisfy a receiver that knows only one of them.
#[tokio::test]
async fn signed_attempts_pass_a_verifying_receiver() {
    let old = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let new = SigningKey::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
    let options = Options { secrets: vec![old.clone()], ..Options::default() };
    let receiver = receiver::with(script::always(200), options).await;
    let mut settings = settings(&receiver.url());
    settings.signing = vec![new, old];
    settings.key_form = KeyForm::Quoted;
    let wall = waypost::clock::Clock::system(waypost::clock::ClockTrust::Auto).now().wall;
    let sender = HttpSender::new(settings).unwrap();
    assert_eq!(status(&sender.send(&attempt("{}"), now(wall)).await), 200);
    let stale = sender.send(&attempt("{}"), now(UnixMillis(wall.0 - 3_600_000))).await;
    assert_eq!(status(&stale), 401, "an hour-old stamp");
    let untrusted = Now { wall_trusted: false, ..now(wall) };
    let unsent = sender.send(&attempt("{}"), untrusted).await;
    assert_eq!(transport(&unsent), (TransportKind::ClockUntrusted, false, false));
    assert_eq!(receiver.book().totals().requests, 2, "nothing is signed with a clock that is not trusted");
}

/// Redirects are never followed, whatever they say: no GET, no second host, no credentials elsewhere.
#[tokio::test]
async fn redirects_are_answers_and_nothing_more() {
    let elsewhere = receiver::ok().await;
    for code in [301, 302, 303, 307, 308] {
        let location = vec![("location".to_owned(), elsewhere.url())];
        let answer = Answer { headers: location, ..Answer::status(code) };
        let receiver = receiver::scripted(script::in_turn(vec![Act::Answer(answer)]), Keep::Heads).await;
        let sent = send(&sender_to(&receiver.url())).await;
        assert_eq!(status(&sent), code);
        assert_eq!(receiver.book().totals().requests, 1);
    }
    assert_eq!(elsewhere.book().totals().requests, 0);
}

/// Faults before any byte left: a repeat is free.
#[tokio::test]
async fn faults_of_the_connection_sent_nothing() {
    let receiver = receiver::ok().await;
    let url = receiver.url();
    receiver.stop().await.unwrap();
    assert_eq!(transport(&send(&sender_to(&url)).await), (TransportKind::Refused, false, false));

    let (addr, _guard) = misbehave::black_hole().await;
    let sent = send(&sender(addr)).await;
    assert_eq!(transport(&sent), (TransportKind::ConnectTimeout, false, false));
    assert!(sent.latency < TIMEOUT + SLACK);

    let sent = send(&sender_to("http://no-such-host.invalid/hook")).await;
    assert_eq!(transport(&sent), (TransportKind::Dns, false, false));
    assert!(sent.latency < TIMEOUT + SLACK);
}

/// Each way in which TLS can fail has its kind; a client certificate is shown when it is asked for.
#[tokio::test]
async fn tls_faults_are_told_apart() {
    let private = Tls { ca_pem: Some(pem("ca.pem")), ..Tls::default() };
    let with_client = Tls { client_pem: Some((pem("client.pem"), pem("client.key"))), ..private.clone() };
    for (certificate, asks, tls, expected) in [
        ("good.pem", false, &private, None),
        ("good.pem", false, &Tls { tls13_only: true, ..private.clone() }, None),
        ("good.pem", true, &with_client, None),
        ("good.pem", false, &Tls::default(), Some(TransportKind::Tls)),
        ("expired.pem", false, &private, Some(TransportKind::TlsExpired)),
        ("not-yet-valid.pem", false, &private, Some(TransportKind::TlsNotYetValid)),
        ("good.pem", true, &private, Some(TransportKind::Tls)),
    ] {
        let addr = misbehave::tls_server(certificate, asks).await;
        let mut settings = settings(&format!("https://localhost:{}/hook", addr.port()));
        settings.tls = tls.clone();
        let sent = send(&HttpSender::new(settings).unwrap()).await;
        match expected {
            None => assert_eq!(status(&sent), 200, "{certificate}"),
            Some(kind) => assert_eq!(transport(&sent).0, kind, "{certificate}, asks: {asks}"),
        }
    }
}

/// A peer that speaks no TLS, or cuts the handshake, is a TLS fault and no byte of the event left.
#[tokio::test]
async fn a_cut_handshake_is_a_tls_fault() {
    let cut = misbehave::server(|stream| async move { drop(stream) }).await;
    let plain = misbehave::server(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    for addr in [cut, plain] {
        let sent = send(&sender_to(&format!("https://{addr}/hook"))).await;
        assert_eq!(transport(&sent), (TransportKind::Tls, false, false));
    }
}

/// Answers that never come, or come a byte at a time, end with the attempt's deadline.
#[tokio::test]
async fn a_trickle_ends_with_the_deadline() {
    let slow = Duration::from_millis(100);
    let long = Bytes::from(vec![b'x'; 10_000]);
    let cases = [
        Act::Hang,
        Act::Answer(Answer { fault: Fault::Trickle { after: 0, every: slow }, ..Answer::status(200) }),
        Act::Answer(Answer {
            fault: Fault::Trickle { after: 500, every: slow },
            body: long,
            ..Answer::status(200)
        }),
    ];
    for act in cases {
        let receiver = receiver::scripted(script::in_turn(vec![act.clone()]), Keep::Nothing).await;
        let sent = send(&sender_to(&receiver.url())).await;
        assert_eq!(transport(&sent).0, TransportKind::Timeout, "{act:?}");
        assert!(transport(&sent).1, "bytes went out: {act:?}");
        assert!(sent.latency >= TIMEOUT && sent.latency < TIMEOUT + SLACK, "{:?}", sent.latency);
        receiver.stop().await.unwrap();
    }
    let endless = misbehave::server(|mut stream| async move {
        misbehave::read_request(&mut stream).await;
        while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(transport(&send(&sender(endless)).await).0, TransportKind::Timeout, "100 for ever");
}

/// A refusal counts from its header on, so a Retry-After is not lost with a broken body; a success counts only whole.
#[tokio::test]
async fn a_success_must_be_whole_and_a_refusal_need_not() {
    let body = Bytes::from(vec![b'x'; 10_000]);
    for (code, refused) in [(200, false), (503, true)] {
        let answer = Answer {
            body: body.clone(),
            fault: Fault::ResetAfter(500),
            retry_after: Some("7".to_owned()),
            ..Answer::status(code)
        };
        let receiver = receiver::scripted(script::in_turn(vec![Act::Answer(answer)]), Keep::Nothing).await;
        let sent = send(&sender_to(&receiver.url())).await;
        match sent.outcome {
            Outcome::Response(answer) => {
                assert!(refused, "{code}");
                assert_eq!(answer.retry_after, ["7"]);
            }
            Outcome::Transport { kind, bytes_sent, .. } => {
                assert!(!refused, "{code}");
                assert_eq!((kind, bytes_sent), (TransportKind::Reset, true));
            }
        }
    }
}

/// Resets at any byte of a small or large request are resets, and the next attempt works.
#[tokio::test]
async fn a_reset_while_sending_is_a_reset() {
    for size in [1_000, 900_000] {
        for after_body_bytes in [0, 1, size / 2, size - 1, size] {
            let acts = vec![Act::Reset { after_body_bytes }, Act::Answer(Answer::status(200))];
            let receiver = receiver::scripted(script::in_turn(acts), Keep::Heads).await;
            let sender = sender_to(&receiver.url());
            let attempt = attempt(vec![b' '; usize::try_from(size).unwrap()]);
            let sent = sender.send(&attempt, now(UnixMillis(0))).await;
            assert_eq!(transport(&sent), (TransportKind::Reset, true, false), "{size} {after_body_bytes}");
            assert_eq!(status(&sender.send(&attempt, now(UnixMillis(0))).await), 200);
            assert_eq!(receiver.book().seen()[1].body_bytes, size);
            receiver.stop().await.unwrap();
        }
    }
    let status_line = Answer { fault: Fault::ResetAfter(17), ..Answer::status(200) };
    let receiver = receiver::scripted(script::in_turn(vec![Act::Answer(status_line)]), Keep::Nothing).await;
    assert_eq!(transport(&send(&sender_to(&receiver.url())).await), (TransportKind::Reset, true, false));
}

/// A kept connection that is closed at the moment of use is told from a fresh one that is.
#[tokio::test]
async fn a_kept_connection_that_was_closed_is_named() {
    // Answers once, and closes when the second request has come.
    let addr = misbehave::server(|mut stream| async move {
        misbehave::read_request(&mut stream).await;
        let _ = stream.write_all(OK).await;
        misbehave::read_request(&mut stream).await;
    })
    .await;
    let sender = sender(addr);
    assert_eq!(status(&send(&sender).await), 200);
    assert_eq!(transport(&send(&sender).await), (TransportKind::Reset, true, true));
    assert_eq!(status(&send(&sender).await), 200, "a fresh connection");
}

/// Connections are kept: a hundred attempts in turn use one.
#[tokio::test]
async fn connections_are_kept() {
    let receiver = receiver::ok().await;
    let sender = sender_to(&receiver.url());
    for _ in 0..100 {
        assert_eq!(status(&send(&sender).await), 200);
    }
    assert_eq!(receiver.book().seen().iter().map(|seen| seen.connection).max(), Some(1));
}

/// What is no HTTP is no success; an answer that never ends is read to the bound.
#[tokio::test]
async fn nonsense_and_endless_answers_are_bounded() {
    let nonsense =
        misbehave::server(|stream| misbehave::answer_all(stream, b"SSH-2.0-OpenSSH_9.9\r\n\r\n\r\n")).await;
    assert_eq!(transport(&send(&sender(nonsense)).await), (TransportKind::Protocol, true, false));

    let endless = misbehave::server(|mut stream| async move {
        misbehave::read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    })
    .await;
    match send(&sender(endless)).await.outcome {
        Outcome::Response(answer) => {
            assert_eq!(answer.body.len(), waypost::sender::ANSWER_READ_BYTES_MAX);
        }
        other @ Outcome::Transport { .. } => panic!("{other:?}"),
    }
}

/// Secrets in the URL, the headers and the credentials show up in no debug output; the request has them.
#[tokio::test]
async fn secrets_are_sent_and_never_shown() {
    let receiver = receiver::keeping().await;
    let url = receiver.url().replace("http://", "http://user:geheim-1@") + "?token=geheim-2";
    let mut with_headers = settings(&url);
    with_headers.headers.insert("X-Api-Key".to_owned(), "geheim-3".to_owned());
    let shown = format!("{with_headers:?}");
    assert!(!shown.contains("geheim"), "{shown}");
    let sender = HttpSender::new(with_headers).unwrap();
    let sent = send(&sender).await;
    assert_eq!(status(&sent), 200);
    let seen = &receiver.book().seen()[0];
    assert_eq!(seen.headers["authorization"], "Basic dXNlcjpnZWhlaW0tMQ==");
    assert_eq!(seen.headers["x-api-key"], "geheim-3");
    assert_eq!(seen.path, "/hook?token=geheim-2");
    receiver.set_power(Power::Down);
    receiver.stop().await.unwrap();
    assert!(!format!("{:?}", send(&sender).await).contains("geheim"));
}

/// `check --net` can ask without an event.
#[tokio::test]
async fn an_endpoint_can_be_reached_without_an_event() {
    let receiver = receiver::always(405).await;
    assert_eq!(status(&sender_to(&receiver.url()).reach().await), 405);
    let seen = &receiver.book().seen()[0];
    assert_eq!((seen.method.as_str(), seen.key.as_str(), seen.body_bytes), ("OPTIONS", "", 0));
    receiver.stop().await.unwrap();
    assert_eq!(transport(&sender_to(&receiver.url()).reach().await).0, TransportKind::Refused);
}
