//! One change at a time to a good file: each fault names line, key and what would be right.

use super::*;

fn faults(text: &str) -> String {
    match Config::parse(text, "waypost.toml") {
        Ok(_) => "fine".to_owned(),
        Err(err) => err.to_string(),
    }
}

const GOOD: &str = "[[endpoint]]\nname = \"hq\"\nurl = \"https://user:pw@hq.example:8443/hook?token=x\"\n";

#[test]
fn a_small_file_is_enough_and_the_url_is_shown_without_its_secrets() {
    let config = Config::parse(GOOD, "waypost.toml").unwrap();
    assert_eq!(config.endpoints[0].url_shown, "https://hq.example:8443");
    assert!(!format!("{config:?}").contains("pw@"), "a config dump must not show secrets");
    assert_eq!(config.endpoints[0].policy, EndpointPolicy::default());
}

#[test]
fn a_misspelt_key_is_named_with_line_and_nearest_key() {
    let text = format!("data_dirr = \"x\"\n{GOOD}");
    assert_eq!(faults(&text), "waypost.toml:1: data_dirr: unknown key `data_dirr`; did you mean `data_dir`?");
    let text = format!("{GOOD}retry = {{ capp = \"3s\" }}\n");
    assert_eq!(
        faults(&text),
        "waypost.toml:4: endpoint[0].retry.capp: unknown key `capp`; did you mean `cap`?"
    );
}

#[test]
fn values_out_of_range_say_the_range() {
    for (line, expected) in [
        ("timeout = \"0s\"", "waypost.toml:4: endpoint[0].timeout: 0ms is out of range; use 100ms to 1h"),
        ("in_flight_max = 0", "waypost.toml:4: endpoint[0].in_flight_max: 0 is out of range; use 1 to 1024"),
        (
            "retry = { cap = \"100ms\" }",
            "waypost.toml:4: endpoint[0].retry.cap: is shorter than retry.base; the cap is the largest delay",
        ),
        (
            "retry = { window = \"90h\" }",
            "waypost.toml: idempotency.ttl: 78h is shorter than the longest retry window + 6h; use at least 96h, or a receiver could take a late retry for a new event",
        ),
        (
            "budget = { min_per_sec = 0.0 }",
            "waypost.toml:4: endpoint[0].budget.min_per_sec: 0 is out of range; use 0.01 to 1000000",
        ),
        (
            "headers = { Idempotency-Key = \"x\" }",
            "waypost.toml:4: endpoint[0].headers: \"Idempotency-Key\" is set by waypost itself; leave it out",
        ),
        (
            "verdicts = { 99 = \"retry\" }",
            "waypost.toml:4: endpoint[0].verdicts: \"99\" is not a status from 200 to 599",
        ),
    ] {
        assert_eq!(faults(&format!("{GOOD}{line}\n")), expected);
    }
    let text = format!("[store]\ndisk_bytes_max = \"1MiB\"\n{GOOD}");
    assert_eq!(
        faults(&text),
        "waypost.toml:2: store.disk_bytes_max: 1MiB is out of range; use 128MiB to 16384GiB"
    );
}

#[test]
fn a_wrong_unit_or_type_is_told_with_an_example() {
    let message = faults(&format!("{GOOD}timeout = 10\n"));
    assert!(
        message.starts_with("waypost.toml:4: endpoint[0].timeout: ") && message.contains("30s"),
        "{message}"
    );
    let message = faults(&format!("{GOOD}timeout = \"10 parsec\"\n"));
    assert!(message.contains("is not a duration; write for example"), "{message}");
    let message = faults("[[endpoint]\n");
    assert!(message.starts_with("waypost.toml:1: "), "{message}");
}

#[test]
fn listening_beyond_loopback_needs_a_token_and_empty_secrets_are_refused() {
    let text = format!("[ingest]\nlisten = \"0.0.0.0:8070\"\n{GOOD}");
    assert!(faults(&text).contains("producers need a token"), "{}", faults(&text));
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let text = format!("[ingest]\ntoken_file = {:?}\n{GOOD}", empty.display().to_string());
    assert!(faults(&text).contains("is empty; put the secret in it"), "{}", faults(&text));
    let text = format!("{GOOD}auth = {{ bearer_env = \"WAYPOST_TEST_UNSET\" }}\n");
    assert!(faults(&text).contains("WAYPOST_TEST_UNSET is not set"), "{}", faults(&text));
}

#[test]
fn names_are_unique_and_routes_name_endpoints() {
    let text = format!("{GOOD}{GOOD}[[route]]\nendpoint = \"nowhere\"\n");
    let message = faults(&text);
    assert!(
        message.contains("waypost.toml:5: endpoint[1].name: \"hq\" is the name of another endpoint too"),
        "{message}"
    );
    assert!(message.contains("route[0].endpoint: \"nowhere\" is no endpoint; there is hq, hq"), "{message}");
}

#[test]
fn flags_alone_make_a_config_and_their_faults_name_the_flag() {
    let config = Config::for_endpoint("http://127.0.0.1:9/h", None, None).unwrap();
    assert_eq!(config.endpoints[0].name.as_str(), "default");
    let err = Config::for_endpoint("ftp://x", Some("nonsense"), None).unwrap_err().to_string();
    assert!(err.contains("--to: endpoint[0].url: must begin with http") && err.contains("--listen"), "{err}");
}

#[test]
fn the_example_file_says_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/waypost.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let raw = read(&text, "examples/waypost.toml").unwrap();
    let mut defaults = Raw { node: "gw-017".to_owned(), ..Default::default() };
    defaults.endpoint.push(raw::RawEndpoint::default());
    defaults.endpoint[0].budget.when_empty = Some(crate::core::policy::WhenEmpty::Defer);
    defaults.route.push(RawRoute { endpoint: "default".to_owned(), ..Default::default() });
    assert_eq!(raw, defaults);
    Config::parse(&text, "examples/waypost.toml").unwrap();
}
