//! The admin API over the Unix socket and the listener: who may do what, and what the answers say.

use std::os::unix::fs::PermissionsExt as _;

use reqwest::Method;
use serde_json::json;
use waypost::client::{AdminClient, ClientError, EndpointAction, Target};
use waypost::config::secret::Secret;
use waypost::core::history::{History, Span};
use waypost::receiver::Receiver;
use waypost::wire::{AccessView, DeadLetterPage, DeadLetterSelection, EndpointState, Way};

use crate::support::appliance::{Running, SOON, answer, http};
use crate::support::receiver;

fn feature(n: u32) -> String {
    json!({"type": "Feature", "geometry": {"type": "Point", "coordinates": [n, 10]},
        "properties": {"device_id": "d", "seq": n, "note": "=1+1,\u{1b}[2J"}})
    .to_string()
}

async fn with_token() -> (Receiver, Running, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("admin-token");
    std::fs::write(&token, "chef").unwrap();
    let receiver = receiver::ok().await;
    let ingest = format!("admin_token_file = \"{}\"", token.display());
    let running = Running::start(&receiver.url(), &ingest, "").await;
    (receiver, running, dir)
}

/// Reads need the admin token if there is one, else a loopback peer and a Host that DNS cannot move; no web page gets
/// anything, and changes always need the token and JSON.
#[tokio::test]
async fn no_web_page_and_no_stranger_can_drive_it() {
    let receiver = receiver::ok().await;
    let open = Running::start(&receiver.url(), "", "").await;
    let (_receiver, closed, _dir) = with_token().await;
    let token = ("authorization", "Bearer chef");
    let json_type = ("content-type", "application/json");
    let pause = "/v1/endpoints/default/pause";
    let cases: &[(&Running, Method, &str, &[(&str, &str)], u16)] = &[
        (&open, Method::GET, "/v1/status", &[], 200),
        (&open, Method::GET, "/v1/status", &[("host", "evil.example")], 403),
        (&open, Method::GET, "/v1/status", &[("origin", "http://evil.example")], 403),
        (&open, Method::GET, "/metrics", &[], 200),
        (&open, Method::GET, "/v1/nothing", &[], 404),
        (&open, Method::POST, pause, &[json_type], 403),
        (&open, Method::DELETE, "/v1/status", &[], 405),
        (&open, Method::POST, "/v1/events", &[("host", "evil.example"), json_type], 403),
        (&open, Method::POST, "/v1/events", &[("origin", "null"), json_type], 403),
        (&closed, Method::GET, "/v1/status", &[], 401),
        (&closed, Method::GET, "/v1/status", &[("authorization", "Bearer chef2")], 401),
        (&closed, Method::GET, "/v1/status", &[token], 200),
        (&closed, Method::GET, "/healthz", &[], 200),
        (&closed, Method::GET, "/readyz", &[], 200),
        (&closed, Method::POST, pause, &[json_type], 401),
        (&closed, Method::POST, pause, &[token], 415),
        (&closed, Method::POST, pause, &[token, ("content-type", "text/plain")], 415),
        (&closed, Method::POST, pause, &[token, json_type, ("origin", "http://a")], 403),
        (&closed, Method::POST, pause, &[token, json_type], 200),
        (&closed, Method::POST, "/v1/endpoints/other/pause", &[token, json_type], 404),
        (&closed, Method::POST, "/v1/endpoints/default/explode", &[token, json_type], 404),
        (&closed, Method::GET, "/v1/events/../../etc/passwd", &[token], 404),
        (&closed, Method::GET, "/v1/events/%2e%2e%2fetc", &[token], 404),
        (&closed, Method::GET, "/v1/dead-letters?what=1", &[token], 400),
        (&closed, Method::GET, "/v1/dead-letters?bbox=1,2,3", &[token], 400),
        (&closed, Method::GET, "/v1/dead-letters?since=yesterday", &[token], 400),
        (&closed, Method::GET, "/v1/outbox?cursor=abc", &[token], 400),
        (&closed, Method::GET, "/v1/outbox?endpoint=other", &[token], 404),
    ];
    for (running, method, path, headers, expected) in cases {
        let mut request = http().request(method.clone(), running.url(path)).body("{}");
        for (name, value) in *headers {
            request = request.header(*name, *value);
        }
        let answer = answer(request).await;
        assert_eq!(answer.status, *expected, "{method} {path} {headers:?}: {answer:?}");
        if answer.status >= 400 {
            answer.slug();
        }
    }
    assert_eq!(std::fs::metadata(open.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    open.stop().await;
    closed.stop().await;
}

/// The client over the socket needs no token; over the URL it needs the right one, and says clearly what is wrong.
#[tokio::test]
async fn the_client_works_over_both_ways() {
    let (_receiver, running, _dir) = with_token().await;
    assert!(running.admin().status().await.unwrap().ready);
    let url =
        |token: &str| Target::Url { url: running.url("/").parse().unwrap(), token: Some(Secret::new(token)) };
    assert!(AdminClient::new(url("chef")).unwrap().status().await.is_ok());
    match AdminClient::new(url("koch")).unwrap().status().await {
        Err(ClientError::Problem(problem)) => assert_eq!(problem.status, 401),
        other => panic!("{other:?}"),
    }
    let nowhere = Target::Socket(running.dir.path().join("no.sock"));
    let err = AdminClient::new(nowhere).unwrap().status().await.unwrap_err();
    assert!(err.to_string().contains("waypost run"), "{err}");
    running.stop().await;
}

/// Each role is told what it may do, and may do no more: a reader sees everything and changes nothing, a producer may
/// neither. The figures are those of `/v1/access`, which the dashboard shows.
#[tokio::test]
async fn roles_are_told_and_kept_to() {
    let dir = tempfile::tempdir().unwrap();
    let mut ingest = String::new();
    for role in ["token", "admin_token", "read_token"] {
        let file = dir.path().join(role);
        std::fs::write(&file, format!("{role}-secret")).unwrap();
        ingest.push_str(&format!("{role}_file = \"{}\"\n", file.display()));
    }
    let receiver = receiver::ok().await;
    let running = Running::start(&receiver.url(), &ingest, "").await;
    let client = |token: &str| {
        let token = Some(Secret::new(format!("{token}-secret")));
        AdminClient::new(Target::Url { url: running.url("/").parse().unwrap(), token }).unwrap()
    };
    let access = running.admin().access().await.unwrap();
    assert_eq!(access, AccessView { way: Way::Socket, changes: true });
    let access = client("admin_token").access().await.unwrap();
    assert_eq!(access, AccessView { way: Way::Token, changes: true });
    let reader = client("read_token");
    assert_eq!(reader.access().await.unwrap(), AccessView { way: Way::Token, changes: false });
    assert!(reader.status().await.unwrap().ready);
    let everything = DeadLetterSelection::default();
    assert_eq!(reader.dead_letter_count(&everything).await.unwrap().matched, 0);
    let status_of = |answer: Result<_, ClientError>| match answer {
        Err(ClientError::Problem(problem)) => problem.status,
        other => panic!("{other:?}"),
    };
    let dry = DeadLetterSelection { dry_run: true, ..everything };
    assert_eq!(status_of(reader.dead_letter_action("redrive", &dry).await.map(|_| ())), 403);
    assert_eq!(status_of(reader.endpoint("default", EndpointAction::Pause).await.map(|_| ())), 403);
    assert_eq!(status_of(client("token").access().await.map(|_| ())), 401);
    assert_eq!(status_of(client("no").access().await.map(|_| ())), 401);
    running.stop().await;
    let open = Running::start(&receiver.url(), "", "").await;
    let url = Target::Url { url: open.url("/").parse().unwrap(), token: None };
    let access = AdminClient::new(url).unwrap().access().await.unwrap();
    assert_eq!(access, AccessView { way: Way::Loopback, changes: false });
    open.stop().await;
}

/// What the screens look back on and down at: the depth since the start, places in cells as fine as the part asked for,
/// areas of the routes, and how many dead letters a filter means.
#[tokio::test]
async fn history_map_and_counts_for_screens() {
    let receiver = receiver::ok().await;
    let route =
        "[[route]]\nendpoint = \"default\"\n[[route]]\nendpoint = \"default\"\nbbox = [0, 0, 30, 20]\n";
    let running = Running::start(&receiver.url(), "", route).await;
    let admin = running.admin();
    admin.endpoint("default", EndpointAction::Pause).await.unwrap();
    let body: String = (0..12).map(|n| feature(n) + "\n").collect();
    assert_eq!(running.post("application/x-ndjson", body).await.status, 202);
    let bad = json!({"type": "Feature", "properties": {"device_id": "d"}, "geometry":
        {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}});
    assert_eq!(running.post("application/geo+json", bad.to_string()).await.status, 202);
    admin.status().await.unwrap();
    let history = admin.history().await.unwrap();
    let mut screen = History::default();
    screen.merge(0, &history.spans);
    for span in Span::ALL {
        let newest = screen.columns(span, 300).into_iter().next_back().flatten().unwrap();
        assert_eq!(newest.pending, 12, "{span:?}");
    }
    let map = admin.map(None).await.unwrap();
    assert_eq!((map.cell_degrees, map.cells.len(), map.unplaced), (0.5, 13, 0));
    assert_eq!(map.zones[0].bbox, [0.0, 0.0, 30.0, 20.0]);
    assert_eq!(map.extent, Some([0.0, 0.5, 11.0, 10.0]));
    let part = admin.map(Some([4.5, 9.0, 7.5, 11.0])).await.unwrap();
    assert_eq!(part.cells.iter().map(|cell| cell.pending).sum::<u64>(), 3);
    assert!(part.cell_degrees < 0.02, "{}", part.cell_degrees);
    let count = |selection| {
        let admin = admin.clone();
        async move { admin.dead_letter_count(&selection).await.unwrap().matched }
    };
    assert_eq!(count(DeadLetterSelection::default()).await, 1);
    let far = Some([50.0, 50.0, 60.0, 60.0]);
    assert_eq!(count(DeadLetterSelection { bbox: far, ..DeadLetterSelection::default() }).await, 0);
    let some = admin.outbox(None, Some([4.5, 9.0, 7.5, 11.0]), 500, None).await.unwrap();
    assert_eq!((some.entries.len(), some.cursor), (3, None));
    running.stop().await;
}

/// Pausing keeps events in the outbox, page by page; resuming sends them; the story of one tells it all.
#[tokio::test]
async fn a_paused_endpoint_keeps_its_events() {
    let receiver = receiver::ok().await;
    let running = Running::start(&receiver.url(), "", "").await;
    let admin = running.admin();
    let paused = admin.endpoint("default", EndpointAction::Pause).await.unwrap();
    assert_eq!(paused.state, EndpointState::Paused);
    let body: String = (0..25).map(|n| feature(n) + "\n").collect();
    assert_eq!(running.post("application/x-ndjson", body).await.status, 202);
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = admin.outbox(Some("default"), None, 10, cursor.as_deref()).await.unwrap();
        ids.extend(page.entries.into_iter().map(|entry| entry.event.id));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(ids.len(), 25);
    let mut distinct = ids.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 25);
    let story = admin.event(&ids[0]).await.unwrap();
    assert_eq!(story.body.as_deref(), Some(feature(0).as_str()));
    assert_eq!(story.deliveries[0].state, "pending");
    assert_eq!(receiver.book().totals().requests, 0);
    admin.endpoint("default", EndpointAction::Resume).await.unwrap();
    tokio::time::timeout(SOON, receiver.wait_distinct(25)).await.unwrap();
    let view = running.status(|view| view.ledger.pending == 0).await;
    assert!(view.ledger.balanced);
    assert_eq!(view.endpoints[0].url, receiver.url().replace("/hook", ""));
    running.stop().await;
}

/// Dead letters: listed, filtered, shown with bytes, exported in three formats, redriven with key, id and bytes, and
/// discarded; dry runs change nothing.
#[tokio::test]
async fn dead_letters_can_be_read_exported_redriven_and_discarded() {
    let receiver = receiver::always(400).await;
    let running = Running::start(&receiver.url(), "", "").await;
    let admin = running.admin();
    let body: String = (0..5).map(|n| feature(n) + "\n").collect();
    assert_eq!(running.post("application/x-ndjson", body).await.status, 202);
    let mercator = r#"{"type":"Feature","crs":{"type":"name","properties":{"name":"EPSG:3857"}},"geometry":{"type":"Point","coordinates":[5e5,6e6]},"properties":{}}"#;
    assert_eq!(running.post("application/geo+json", mercator).await.status, 202);
    running.status(|view| view.ledger.dead == 6).await;
    let all = DeadLetterSelection::default();
    let page = admin.dead_letters(&all, None).await.unwrap();
    assert_eq!((page.entries.len(), page.total), (6, 6));
    let near = DeadLetterSelection { bbox: Some([2.5, 9.0, 4.5, 11.0]), ..all.clone() };
    assert_eq!(admin.dead_letters(&near, None).await.unwrap().entries.len(), 2);
    let short = DeadLetterSelection { limit: Some(4), ..all.clone() };
    let first = admin.dead_letters(&short, None).await.unwrap();
    let rest = admin.dead_letters(&short, first.cursor.as_deref()).await.unwrap();
    assert_eq!((first.entries.len(), rest.entries.len()), (4, 2));
    let ids = |page: &DeadLetterPage| page.entries.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
    let newest = admin.newest_dead_letters(&short, None).await.unwrap();
    let older = admin.newest_dead_letters(&short, newest.cursor.as_deref()).await.unwrap();
    let mut down: Vec<String> = ids(&newest).into_iter().chain(ids(&older)).collect();
    down.reverse();
    assert_eq!(down, ids(&page), "newest first is the same list the other way round");
    let rejected = page.entries.iter().find(|entry| entry.device == "d").unwrap();
    let shown = admin.dead_letter(&rejected.id).await.unwrap();
    assert_eq!(shown.schema, "dlq.v1");
    assert_eq!(shown.history.last().unwrap().status, Some(400));
    assert!(shown.raw_payload.unwrap().contains("device_id"));
    for format in ["geojson", "geojsonseq", "csv"] {
        let mut out = Vec::new();
        let bytes = admin.export(format, &all, &mut out).await.unwrap();
        assert_eq!(bytes as usize, out.len());
        let text = String::from_utf8(out).unwrap();
        match format {
            "geojson" => {
                let collection: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!(collection["features"].as_array().unwrap().len(), 6);
            }
            "geojsonseq" => assert_eq!(text.matches('\u{1e}').count(), 6),
            _ => assert!(!text.contains('\u{1b}') && text.lines().count() >= 7, "{text}"),
        }
    }
    let dry = DeadLetterSelection { dry_run: true, ..all.clone() };
    let view = admin.dead_letter_action("redrive", &dry).await.unwrap();
    assert_eq!((view.matched, view.done, view.skipped), (6, 0, 1));
    assert_eq!(running.admin().status().await.unwrap().ledger.dead, 6);
    receiver::set_ok(&receiver);
    let view = admin.dead_letter_action("redrive", &all).await.unwrap();
    assert_eq!((view.matched, view.done, view.skipped), (6, 5, 1));
    tokio::time::timeout(SOON, receiver.wait_distinct(5)).await.unwrap();
    let totals = receiver.book().totals();
    assert_eq!(totals.conflicts, 0, "the same bytes under the same keys");
    let view = admin.dead_letter_action("discard", &all).await.unwrap();
    assert_eq!((view.matched, view.done), (1, 1));
    let view = running.status(|view| view.ledger.discarded == 1).await;
    assert_eq!((view.ledger.delivered, view.ledger.dead, view.ledger.balanced), (5, 0, true));
    let err = admin.dead_letter(&rejected.id).await.unwrap_err();
    assert!(matches!(err, ClientError::Problem(_)), "{err}");
    running.stop().await;
}

/// A replay of events that fail again ends, and they are back with one attempt more (field fault 33); after three
/// redrives a dead letter is left alone.
#[tokio::test]
async fn a_redrive_of_what_fails_again_ends() {
    let receiver = receiver::always(400).await;
    let running = Running::start(&receiver.url(), "", "").await;
    let admin = running.admin();
    let body: String = (0..10).map(|n| feature(n) + "\n").collect();
    assert_eq!(running.post("application/x-ndjson", body).await.status, 202);
    let all = DeadLetterSelection::default();
    for round in 1..=3 {
        running.status(|view| view.ledger.dead == 10).await;
        let view = admin.dead_letter_action("redrive", &all).await.unwrap();
        assert_eq!((view.done, view.skipped), (10, 0), "round {round}");
        tokio::time::timeout(SOON, receiver.wait(|totals| totals.requests == 10 * (round + 1)))
            .await
            .unwrap();
    }
    running.status(|view| view.ledger.dead == 10).await;
    let view = admin.dead_letter_action("redrive", &all).await.unwrap();
    assert_eq!((view.done, view.skipped), (0, 10));
    assert!(view.skipped_reason.is_some());
    running.stop().await;
}

/// Metrics and status say the same; the URL's secrets are in neither (field fault 56).
#[tokio::test]
async fn no_secret_of_a_url_is_shown_anywhere() {
    let receiver = receiver::always(400).await;
    let url = receiver.url().replace("http://", "http://user:geheim@").replace("/hook", "/geheim?k=geheim");
    let running = Running::start(&url, "", "").await;
    running.post("application/json", feature(1)).await;
    let view = running.status(|view| view.ledger.dead == 1).await;
    let id = running.admin().dead_letters(&DeadLetterSelection::default(), None).await.unwrap().entries[0]
        .id
        .clone();
    let mut texts = vec![serde_json::to_string(&view).unwrap()];
    for path in ["/metrics", "/v1/attempts", "/v1/log", &format!("/v1/dead-letters/{id}")] {
        let answer = answer(http().get(running.url(path))).await;
        assert_eq!(answer.status, 200, "{path}");
        texts.push(answer.body);
    }
    assert!(texts[1].contains("waypost_dead_letters{endpoint=\"default\"} 1"), "{}", texts[1]);
    for text in texts {
        assert!(!text.contains("geheim"), "{text}");
    }
    running.stop().await;
}
