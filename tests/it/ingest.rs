//! Intake over real sockets: every form and encoding, every refusal readable by the client, and clients that are slow,
//! endless or gone.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use waypost::receiver::Receiver;

use crate::support::appliance::{Answer, Running, SOON, answer, http};
use crate::support::receiver;

fn feature(n: u64) -> String {
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{}.5,45.25]}},"properties":{{"n":{n},"ts":"2026-12-01T00:00:00Z"}}}}"#,
        n % 90
    )
}

fn lines(range: std::ops::Range<u64>) -> String {
    range.map(|n| feature(n) + "\n").collect()
}

async fn start() -> (Receiver, Running) {
    let receiver = receiver::keeping().await;
    let running = Running::start(&receiver.url(), "", "").await;
    (receiver, running)
}

#[track_caller]
fn counts(answer: &Answer) -> [u64; 4] {
    assert_eq!(answer.status, 202, "{answer:?}");
    ["accepted", "duplicates", "dead_lettered", "rejected"].map(|name| answer.json()[name].as_u64().unwrap())
}

async fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = async_compression::tokio::write::GzipEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

async fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = async_compression::tokio::write::ZstdEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

/// Every form is taken, each feature reaches the receiver with its exact bytes, and results stand in order.
#[tokio::test]
async fn every_form_is_taken() {
    let (receiver, running) = start().await;
    let collection = format!(r#"{{"type":"FeatureCollection","features":[{},{}]}}"#, feature(1), feature(2));
    let sequence = format!("\u{1e}{}\n\u{1e}{}\n", feature(3), feature(4));
    for (media, body, accepted) in [
        ("application/geo+json", feature(0), 1),
        ("application/json; charset=utf-8", collection, 2),
        ("application/geo+json-seq", sequence, 2),
        ("application/x-ndjson", lines(5..8), 3),
        ("application/jsonl", feature(8), 1),
        ("application/json", r#"{"type":"Point","coordinates":[1,2]}"#.to_owned(), 1),
        ("application/json", r#"{"type":"FeatureCollection","features":[]}"#.to_owned(), 0),
    ] {
        let answer = running.post(media, body).await;
        assert_eq!(counts(&answer), [accepted, 0, 0, 0], "{media}");
        let results = answer.json()["results"].as_array().unwrap().clone();
        for (index, result) in results.iter().enumerate() {
            assert_eq!(result["index"], index);
            assert_eq!(result["status"], "accepted");
            assert!(result["key"].as_str().unwrap().starts_with("idem:v2:"));
        }
    }
    let no_type = answer(http().post(running.url("/v1/events")).body(feature(9))).await;
    assert_eq!(counts(&no_type), [1, 0, 0, 0], "no content type: a document");
    tokio::time::timeout(SOON, receiver.wait_distinct(11)).await.unwrap();
    let bodies: Vec<_> = receiver.book().seen().into_iter().filter_map(|seen| seen.body).collect();
    for n in 0..10 {
        assert!(bodies.iter().any(|body| body == feature(n).as_bytes()), "{n}");
    }
    let view = running.status(|view| view.ledger.delivered == 11).await;
    assert!(view.ledger.balanced);
    running.stop().await;
}

/// Compressed bodies are inflated; a media type or encoding that is not taken is 415, damage in one is 400.
#[tokio::test]
async fn encodings_are_inflated_or_refused() {
    let (_receiver, running) = start().await;
    let post = |encoding: &'static str, media: &'static str, body: Vec<u8>| {
        let request = http().post(running.url("/v1/events"));
        answer(request.header("content-encoding", encoding).header("content-type", media).body(body))
    };
    let ndjson = "application/x-ndjson";
    let zipped = gzip(lines(0..100).as_bytes()).await;
    assert_eq!(counts(&post("gzip", ndjson, zipped.clone()).await), [100, 0, 0, 0]);
    let packed = zstd(feature(100).as_bytes()).await;
    assert_eq!(counts(&post("zstd", "application/json", packed).await), [1, 0, 0, 0]);
    let cut = post("gzip", "application/json", zipped[..zipped.len() / 2].to_vec()).await;
    assert_eq!((cut.status, cut.slug().as_str()), (400, "bad-request"));
    let no_gzip = post("gzip", "application/json", feature(1).into_bytes()).await;
    assert_eq!((no_gzip.status, no_gzip.slug().as_str()), (400, "bad-request"));
    let br = post("br", "application/json", feature(1).into_bytes()).await;
    assert_eq!((br.status, br.slug().as_str()), (415, "unsupported-media"));
    let xml = running.post("application/xml", "<gml/>").await;
    assert_eq!((xml.status, xml.slug().as_str()), (415, "unsupported-media"));
    running.stop().await;
}

/// A body that is no GeoJSON at all is 400 and nothing is stored; in NDJSON each line stands alone, and a repeat of the
/// repaired whole doubles nothing (field fault 8).
#[tokio::test]
async fn a_broken_line_is_named_and_the_others_are_kept() {
    let (receiver, running) = start().await;
    for body in [
        "",
        " \n ",
        "nonsense",
        "[1,2]",
        r#"{"type":"Feature"}"#,
        r#"{"type":"Point","coordinates":[1e999,2]}"#,
    ] {
        let answer = running.post("application/json", body).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert_eq!(answer.slug(), "not-geojson", "{body}");
    }
    let broken = lines(0..57) + "{\"type\":\"Feature\",\n" + &lines(58..100);
    let answer = running.post("application/x-ndjson", broken).await;
    assert_eq!(counts(&answer), [99, 0, 0, 1]);
    assert_eq!(answer.json()["results"][57]["status"], "rejected");
    assert!(!answer.json()["results"][57]["reason"].as_str().unwrap().is_empty());
    let answer = running.post("application/x-ndjson", lines(0..100)).await;
    assert_eq!(counts(&answer), [1, 99, 0, 0]);
    assert_eq!(answer.json()["results"][57]["status"], "accepted");
    let none = running.post("application/x-ndjson", "a\nb\n").await;
    assert_eq!((none.status, none.slug().as_str()), (400, "not-geojson"));
    assert_eq!(none.json()["results"].as_array().unwrap().len(), 2);
    tokio::time::timeout(SOON, receiver.wait_distinct(100)).await.unwrap();
    let view = running.status(|view| view.ledger.delivered == 100).await;
    assert_eq!((view.ledger.accepted, view.ledger.duplicates, view.ledger.balanced), (100, 99, true));
    running.stop().await;
}

/// A producer's key: the same body again is a duplicate, another body is 422 and stored nowhere; not for sequences.
#[tokio::test]
async fn a_producers_key_belongs_to_one_body() {
    let (_receiver, running) = start().await;
    let post = |key: &str, body: String| {
        let request = http().post(running.url("/v1/events")).header("content-type", "application/geo+json");
        answer(request.header("idempotency-key", key).body(body))
    };
    let first = post("order-7", feature(1)).await;
    assert_eq!(counts(&first), [1, 0, 0, 0]);
    let again = post("order-7", feature(1)).await;
    assert_eq!(counts(&again), [0, 1, 0, 0]);
    assert_eq!(again.json()["results"][0]["id"], first.json()["results"][0]["id"]);
    let other = post("order-7", feature(2)).await;
    assert_eq!((other.status, other.slug().as_str()), (422, "key-reused"));
    let collection = format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, feature(1));
    assert_eq!(post("order-8", collection).await.status, 400);
    let request = http().post(running.url("/v1/events")).header("content-type", "application/x-ndjson");
    assert_eq!(answer(request.header("idempotency-key", "k").body(lines(0..2))).await.status, 400);
    running.stop().await;
}

/// Odd ids in headers never become another header at the receiver; what cannot be used is refused (field fault 40).
#[tokio::test]
async fn odd_ids_are_carried_safely_or_refused() {
    let (receiver, running) = start().await;
    let mut kept = 0;
    for (n, device) in ["Gerät", "🚜", "a b", "", "   ", "%0d%0aX-Evil: 1"].iter().enumerate() {
        let value = reqwest::header::HeaderValue::from_bytes(device.as_bytes()).unwrap();
        let request = http().post(running.url("/v1/events")).header("waypost-device", value);
        let answer = answer(request.body(feature(n as u64))).await;
        assert!(answer.status == 202 || answer.status == 400, "{device}: {answer:?}");
        kept += u64::from(answer.status == 202);
    }
    for (n, length) in [(10, 10_000), (11, 20_000)] {
        let request = http().post(running.url("/v1/events")).header("idempotency-key", "k".repeat(length));
        let status = answer(request.body(feature(n))).await.status;
        assert!(status == 400 || status == 431, "{length}: {status}");
    }
    let in_body = json!({"type": "Feature", "geometry": null, "properties": {"device_id": "a\r\nX-Evil: 1\u{0}\u{1b}[2J"}});
    let answer = running.post("application/json", in_body.to_string()).await;
    assert!(answer.status == 202 || answer.status == 400);
    kept += u64::from(answer.status == 202);
    tokio::time::timeout(SOON, receiver.wait_distinct(kept)).await.unwrap();
    for seen in receiver.book().seen() {
        assert!(!seen.headers.contains_key("x-evil"));
    }
    running.stop().await;
}

/// Deep nesting ends at the stated limit with 400, never a crash (field fault 39).
#[tokio::test]
async fn deep_nesting_is_refused() {
    let (_receiver, running) = start().await;
    for (depth, good) in [(20, true), (127, false), (129, false), (2_000, false), (100_000, false)] {
        let geometry = format!(
            "{}{}{}",
            r#"{"type":"GeometryCollection","geometries":["#.repeat(depth),
            r#"{"type":"Point","coordinates":[1,2]}"#,
            "]}".repeat(depth)
        );
        let array = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let in_properties = format!(r#"{{"type":"Feature","geometry":null,"properties":{{"a":{array}}}}}"#);
        for body in [geometry, in_properties] {
            for media in ["application/json", "application/x-ndjson"] {
                let answer = running.post(media, body.clone()).await;
                let expected = if good { 202 } else { 400 };
                // 127 arrays inside the feature are at the limit: either side of it is no fault.
                assert!(answer.status == expected || depth == 127, "{media} {depth}: {answer:?}");
            }
        }
    }
    running.stop().await;
}

/// Above 10,000 features only what is not accepted is listed.
#[tokio::test]
async fn long_sequences_list_only_what_was_not_accepted() {
    let (_receiver, running) = start().await;
    let body = lines(0..6_000) + "broken\n" + &lines(6_000..12_000);
    let answer = running.post("application/x-ndjson", body).await;
    assert_eq!(counts(&answer), [12_000, 0, 0, 1]);
    let results = answer.json();
    assert_eq!(results["results_omitted"], 12_000);
    assert_eq!(results["results"].as_array().unwrap().len(), 1);
    assert_eq!(results["results"][0]["index"], 6_000);
    running.stop().await;
}

/// Invalid geometry is kept as a dead letter, or refused where the config says so.
#[tokio::test]
async fn invalid_geometry_is_a_dead_letter_or_refused() {
    let bowtie = r#"{"type":"Feature","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]},"properties":{}}"#;
    let (receiver, running) = start().await;
    let answer = running.post("application/geo+json", bowtie).await;
    assert_eq!(counts(&answer), [0, 0, 1, 0]);
    assert!(answer.json()["results"][0]["reason"].as_str().unwrap().contains("Self-intersection"));
    running.stop().await;
    let running = Running::start(&receiver.url(), "invalid_geometry = \"reject\"", "").await;
    let answer = running.post("application/geo+json", bowtie).await;
    assert_eq!((answer.status, answer.slug().as_str()), (422, "invalid-geometry"));
    assert_eq!(receiver.book().totals().requests, 0);
    running.stop().await;
}

/// Producers need their token when one is set; it is no admin token.
#[tokio::test]
async fn producers_need_their_token() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "geheim\n").unwrap();
    let receiver = receiver::ok().await;
    let running = Running::start(&receiver.url(), &format!("token_file = \"{}\"", token.display()), "").await;
    let refused = running.post("application/json", feature(1)).await;
    assert_eq!((refused.status, refused.slug().as_str()), (401, "unauthorized"));
    // Large and with a wrong token: the client can read the answer all the same.
    let big = http().post(running.url("/v1/events")).bearer_auth("geheim-").body(vec![b' '; 20 << 20]);
    assert_eq!(answer(big).await.status, 401);
    let good = http().post(running.url("/v1/events")).bearer_auth("geheim").body(feature(1));
    assert_eq!(counts(&answer(good).await), [1, 0, 0, 0]);
    running.stop().await;
}

/// Sends a head and a body in pieces without looking at the answer before the end, as simple clients do.
async fn send_blindly(running: &Running, head: &str, piece: &[u8], pieces: usize, end: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let head = format!("POST /v1/events HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..pieces {
        stream.write_all(piece).await.unwrap();
    }
    stream.write_all(end).await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap()
}

/// Over-long bodies, with and without a length, bombs, and lines without an end: each client can read 413, even one that
/// sends everything before it looks (field fault 41).
#[tokio::test]
async fn a_client_can_read_413_whatever_it_sends() {
    let (_receiver, running) = start().await;
    let mega = vec![b' '; 1 << 20];
    for _ in 0..2 {
        let head = format!("content-length: {}", 20 << 20);
        assert_eq!(send_blindly(&running, &head, &mega, 20, b"").await, 413);
        let chunk = [b"100000\r\n", &mega[..], b"\r\n"].concat();
        let chunked = "transfer-encoding: chunked";
        assert_eq!(send_blindly(&running, chunked, &chunk, 20, b"0\r\n\r\n").await, 413);
        let endless = "content-type: application/x-ndjson\r\ntransfer-encoding: chunked";
        let line = [b"100000\r\n", &vec![b'x'; 1 << 20][..], b"\r\n"].concat();
        let status = send_blindly(&running, endless, &line, 30, b"0\r\n\r\n").await;
        assert!(status == 413 || status == 400, "{status}: one line that cannot be used");
    }
    let zeros = vec![b' '; 64 << 20];
    for (encoding, bomb) in [("gzip", gzip(&zeros).await), ("zstd", zstd(&zeros).await)] {
        let request = http().post(running.url("/v1/events")).header("content-encoding", encoding);
        assert_eq!(answer(request.body(bomb)).await.status, 413, "{encoding}");
    }
    assert_eq!(counts(&running.post("application/json", feature(1)).await), [1, 0, 0, 0]);
    running.stop().await;
}

/// Many long bodies at once do not take more memory than was set aside: who does not fit is told 429 and when to come
/// again, before it has sent anything; short events go on, and what was given back fits again.
#[tokio::test]
async fn bodies_that_do_not_fit_in_memory_are_429_and_short_ones_go_on() {
    let receiver = receiver::ok().await;
    let limits = "body_bytes_max = \"1MiB\"\nmemory_bytes_max = \"1MiB\"";
    let running = Running::start(&receiver.url(), limits, "").await;
    let long = feature(1) + &" ".repeat(600_000);
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    let head =
        format!("POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", long.len());
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.write_all(&long.as_bytes()[..10]).await.unwrap();
    let head = format!("expect: 100-continue\r\ncontent-length: {}", 700_000);
    while send_blindly(&running, &head, b"", 0, b"").await != 429 {} // until the first one has been seen
    let refused = running.post("application/json", feature(2) + &" ".repeat(700_000)).await;
    assert_eq!((refused.status, refused.slug().as_str()), (429, "busy"));
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(refused.body.contains("ingest.memory_bytes_max"), "{refused:?}");
    let line = running.post("application/x-ndjson", feature(3) + "\n" + &" ".repeat(700_000)).await;
    assert_eq!(line.status, 429, "{line:?}");
    assert_eq!(counts(&running.post("application/json", feature(4)).await), [1, 0, 0, 0]);
    slow.write_all(&long.as_bytes()[10..]).await.unwrap();
    let mut status = [0; 12];
    slow.read_exact(&mut status).await.unwrap();
    assert_eq!(&status[9..], b"202");
    drop(slow);
    let again = running.post("application/json", feature(2) + &" ".repeat(700_000)).await;
    assert_eq!(counts(&again), [1, 0, 0, 0]);
    running.stop().await;
}

/// Without room on the disk nothing is taken, and the answer says so and when to come again; what was never stored is
/// not counted.
#[tokio::test]
async fn no_room_on_the_disk_is_507_with_a_time_to_come_again() {
    let receiver = receiver::ok().await;
    let running = Running::start(&receiver.url(), "", "[store]\ndisk_free_reserve = \"1024GiB\"").await;
    for (media, body) in [("application/json", feature(1)), ("application/x-ndjson", lines(0..50))] {
        let refused = running.post(media, body).await;
        assert_eq!((refused.status, refused.slug().as_str()), (507, "full"), "{refused:?}");
        assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u32>().is_ok());
    }
    let status = running.status(|status| !status.ready).await;
    assert_eq!(status.ledger.accepted, 0);
    running.stop().await;
}

/// A client that asks before it sends is told 413 without having to send.
#[tokio::test]
async fn a_refusal_comes_before_the_body_when_the_client_waits_for_it() {
    let (_receiver, running) = start().await;
    let head = format!("expect: 100-continue\r\ncontent-length: {}", 20 << 20);
    let status = tokio::time::timeout(SOON, send_blindly(&running, &head, b"", 0, b"")).await.unwrap();
    assert_eq!(status, 413);
    running.stop().await;
}

/// Clients that hang up right after their body leave whole events or none, and nothing behind (field fault 6).
#[tokio::test]
async fn clients_that_hang_up_leave_whole_events_or_none() {
    let (receiver, running) = start().await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8_u64 {
        let address = running.address;
        clients.spawn(async move {
            for n in 0..50 {
                let body = feature(client * 1_000 + n);
                let mut stream = TcpStream::connect(address).await.unwrap();
                let head = format!(
                    "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(body.as_bytes()).await.unwrap();
                tokio::time::sleep(Duration::from_micros(n * 97 % 3_000)).await;
            }
        });
    }
    clients.join_all().await;
    for n in 0..100 {
        assert_eq!(running.post("application/json", feature(100_000 + n)).await.status, 202);
    }
    let received = || receiver.book().totals();
    let view =
        running.status(|view| view.ledger.pending == 0 && view.ledger.delivered == received().distinct).await;
    assert!(view.ledger.balanced && view.ledger.accepted >= 100);
    let totals = received();
    assert_eq!((totals.duplicates, totals.conflicts), (0, 0));
    for seen in receiver.book().seen() {
        assert!(serde_json::from_slice::<serde_json::Value>(seen.body.as_deref().unwrap()).is_ok());
    }
    running.stop().await;
}

/// Fault 42: what the intake takes can be sent, up to the last byte of the limit, in every form and with characters of four
/// bytes; one byte more is refused in words.
#[tokio::test]
async fn what_is_taken_up_to_the_last_byte_of_the_limit_is_delivered() {
    const LIMIT: usize = 64 << 10;
    let receiver = receiver::keeping().await;
    let running = Running::start(&receiver.url(), "body_bytes_max = \"64KiB\"", "").await;
    let mut number = 0;
    let mut sized = |bytes: usize, fill: char| {
        number += 1;
        let (head, tail) =
            (format!(r#"{{"type":"Feature","geometry":null,"properties":{{"n":{number},"pad":""#), "\"}}");
        let room = bytes - head.len() - tail.len();
        let fills = fill.to_string().repeat(room / fill.len_utf8());
        format!("{head}{fills}{}{tail}", "y".repeat(room % fill.len_utf8()))
    };
    let mut taken = Vec::new();
    for fill in ['x', '\u{1f6f0}'] {
        for bytes in [LIMIT - 1, LIMIT, LIMIT + 1] {
            let fits = bytes <= LIMIT;
            let document = sized(bytes, fill);
            let answer = running.post("application/geo+json", document.clone()).await;
            assert_eq!(answer.status, if fits { 202 } else { 413 }, "{bytes} as a document");
            let line = sized(bytes, fill);
            let answer = running.post("application/x-ndjson", format!("{line}\n{}\n", sized(200, 'z'))).await;
            assert_eq!(counts(&answer)[0], 1 + u64::from(fits), "{bytes} as a line: {answer:?}");
            let text = sized(bytes, fill);
            let answer = running
                .post("application/geo+json-seq", format!("\u{1e}{text}\n\u{1e}{}\n", sized(200, 'z')))
                .await;
            assert_eq!(counts(&answer)[0], 1 + u64::from(fits), "{bytes} in a text sequence: {answer:?}");
            if fits {
                taken.extend([document, line, text]);
            }
        }
    }
    // A hundred just under the limit, at once.
    let batch: Vec<String> = (0..100).map(|_| sized(LIMIT - 1, 'x')).collect();
    assert_eq!(counts(&running.post("application/x-ndjson", batch.join("\n")).await), [100, 0, 0, 0]);
    taken.extend(batch);
    let view = running.status(|view| view.ledger.pending == 0 && view.ledger.delivered == 112 + 12).await;
    assert!(view.ledger.balanced && view.ledger.dead == 0);
    let bodies: std::collections::HashSet<_> =
        receiver.book().seen().into_iter().filter_map(|seen| seen.body).collect();
    for body in taken {
        assert!(bodies.contains(body.as_bytes()), "{} bytes were taken and never sent", body.len());
    }
    running.stop().await;
}

/// Silent and half-said connections give way to a working producer, however many there are (field fault 57).
#[tokio::test]
async fn silent_connections_do_not_keep_a_producer_out() {
    let receiver = receiver::ok().await;
    let running = Running::start(&receiver.url(), "connections_max = 8", "").await;
    let mut idle = Vec::new();
    for n in 0..40 {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        if n % 2 == 0 {
            stream.write_all(b"POST /v1/ev").await.unwrap();
        }
        idle.push(stream);
        let posted = running.post("application/json", feature(n));
        assert_eq!(tokio::time::timeout(SOON, posted).await.unwrap().status, 202, "{n}");
    }
    running.stop().await;
}

/// A body that is cut off in a sequence keeps the lines before the cut; sent again whole, nothing is doubled.
#[tokio::test]
async fn a_sequence_that_is_cut_can_be_sent_again() {
    let (receiver, running) = start().await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let head = "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(lines(0..80).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    let answer = running.post("application/x-ndjson", lines(0..100)).await;
    let [accepted, duplicates, ..] = counts(&answer);
    assert_eq!(accepted + duplicates, 100);
    tokio::time::timeout(SOON, receiver.wait_distinct(100)).await.unwrap();
    let view = running.status(|view| view.ledger.delivered == 100).await;
    assert_eq!((view.ledger.accepted, view.ledger.balanced), (100, true));
    assert_eq!(receiver.book().totals().requests, 100);
    running.stop().await;
}

/// A chunk that is none, in the middle of a sequence: the lines before it are kept, and the answer says how many.
#[tokio::test]
async fn a_sequence_that_breaks_off_tells_what_is_kept_of_it() {
    let (receiver, running) = start().await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let head = "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = lines(0..80);
    let chunk = format!("{head}{:x}\r\n{text}\r\nno chunk\r\n", text.len());
    stream.write_all(chunk.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("80 features of this post are kept"), "{answer}");
    let nothing = running.post("application/x-ndjson", "").await;
    assert!(!nothing.json().to_string().contains("are kept"), "{nothing:?}");
    tokio::time::timeout(SOON, receiver.wait_distinct(80)).await.unwrap();
    running.stop().await;
}
