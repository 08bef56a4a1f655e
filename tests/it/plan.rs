//! `waypost plan` on the real binary: it simulates, compares, checks, draws, and says clearly what is wrong.

use std::path::Path;

use serde_json::Value;

use crate::support::process::{run, stdout};

fn plan(args: &[&str]) -> (Option<i32>, String, String) {
    let mut all = vec!["plan"];
    all.extend(args);
    let output = run(&all);
    (output.status.code(), stdout(&output), String::from_utf8(output.stderr).unwrap())
}

fn json(args: &[&str]) -> (Option<i32>, Value) {
    let mut all = args.to_vec();
    all.push("--json");
    let (code, out, err) = plan(&all);
    (code, serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}")))
}

fn row<'a>(plan: &'a Value, policy: &str) -> &'a Value {
    plan["rows"].as_array().unwrap().iter().find(|row| row["policy"] == policy).unwrap()
}

/// RETRY 3.3 and 3.5 from the command line: ten seconds at ten events a second.
#[test]
fn the_article_loses_nearly_all_of_ten_seconds_and_a_hold_nothing() {
    let (code, plan) = json(&["--rate", "10", "--outage", "10s"]);
    assert_eq!(code, Some(0));
    let (edge, article) = (row(&plan, "edge"), row(&plan, "article"));
    assert_eq!(edge["dead_letters"], 0);
    assert!(article["dead_percent"].as_f64().unwrap() > 95.0, "{article}");
    let first = article["first_dead_after_s"].as_f64().unwrap();
    assert!((3.0..6.5).contains(&first), "first shed after {first} s");
    let attempts = |row: &Value| row["attempts_in_outage"].as_u64().unwrap();
    assert!(attempts(edge) <= 15 && attempts(article) > 150, "{edge} {article}");
    assert!(edge["noticed_last_s"].as_f64().unwrap() <= 60.1);
    assert!(edge["drained_s"].as_f64().is_some());
    assert_eq!(plan["envelopes"].as_array().unwrap().len(), 3);
}

#[test]
fn the_text_has_table_checks_plots_and_envelopes_and_the_same_seed_repeats_it() {
    let args = ["--rate", "2", "--outage", "20s,1m", "--link-per-day", "1GB"];
    let (code, out, err) = plan(&args);
    assert_eq!(code, Some(0), "{out}{err}");
    for words in [
        "OUTAGE",
        "POLICY",
        "DEAD %",
        "NOTICED",
        "BY LINK",
        "are full after",
        "check      ok",
        "edge - waiting",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
    for law in ["full (6 attempts", "equal (6 attempts", "decorrelated (6 attempts"] {
        assert!(out.contains(law), "{law}: {out}");
    }
    assert_eq!(plan(&args).1, out);
    let (_, tables, _) = plan(&[args.as_slice(), &["--no-plot"]].concat());
    assert!(out.starts_with(tables.trim_end()) && !tables.contains("waiting"));
}

/// A window that outlives the receiver's memory of keys, an outage that outlives the window, a card that is too small.
#[test]
fn what_does_not_fit_is_said_and_is_exit_code_1() {
    let (code, plan) = json(&["--rate", "1", "--outage", "1m", "--key-ttl", "24h"]);
    assert_eq!(code, Some(1));
    let check = &plan["checks"][0];
    assert!(check["ok"] == false && check["text"].as_str().unwrap().contains("key lifetime of 24.0 h"));

    let (code, plan) = json(&["--rate", "1", "--outage", "2m", "--window", "1m", "--policy", "edge"]);
    assert_eq!(code, Some(1));
    assert_eq!(plan["checks"][1]["ok"], false);
    assert!(row(&plan, "edge")["dead_letters"].as_u64().unwrap() > 10, "the first minute has expired");

    let args = ["--rate", "1", "--outage", "2m", "--disk", "64KiB", "--policy", "edge"];
    let (code, plan) = json(&args);
    assert_eq!((code, &row(&plan, "edge")["disk_suffices"]), (Some(1), &Value::Bool(false)));
    let hours = plan["full_after_h"].as_f64().unwrap();
    assert!((hours - 61_440.0 / 1274.0 / 3600.0).abs() < 1e-6, "{hours}");
}

/// A fleet is made smaller with its receiver: shares stay, counts are those of all.
#[test]
fn a_large_fleet_is_simulated_in_small() {
    let args =
        ["--rate", "0.5", "--boxes", "1000", "--capacity", "5000", "--outage", "1m", "--policy", "edge"];
    let (code, plan) = json(&[args.as_slice(), &["--events-max", "1000"]].concat());
    assert_eq!(code, Some(0));
    let edge = row(&plan, "edge");
    assert!(edge["boxes_simulated"].as_u64().unwrap() < 30, "{edge}");
    let events = edge["events"].as_u64().unwrap();
    assert!((25_000..36_000).contains(&events), "{events} events of 1,000 boxes in a minute");
}

#[test]
fn the_policy_of_a_config_is_planned() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("waypost.toml");
    let endpoint = "[[endpoint]]\nname = \"hq\"\nurl = \"http://127.0.0.1:9000/\"\n";
    let text = format!(
        "[idempotency]\nttl = \"30h\"\n[store]\ndisk_bytes_max = \"128MiB\"\n{endpoint}\
         retry = {{ base = \"2s\", cap = \"8s\", window = \"24h\" }}\nhold = {{ probe_base = \"1s\", probe_cap = \"2s\" }}\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let (code, plan) = json(&["--config", config, "--outage", "1m", "--policy", "edge"]);
    assert_eq!(code, Some(0));
    assert_eq!((&plan["disk_bytes_max"], &plan["key_ttl_s"]), (&(128 << 20).into(), &(30 * 3600).into()));
    let edge = row(&plan, "edge");
    assert!(edge["noticed_last_s"].as_f64().unwrap() <= 2.2, "probes every 2 s: {edge}");
    assert!(edge["attempts_in_outage"].as_u64().unwrap() > 25, "{edge}");
    let longest = plan["envelopes"][1]["bands"][9]["p95_s"].as_f64().unwrap();
    assert!(longest <= 8.0, "{longest}");

    let (code, _, err) = self::plan(&["--config", config, "--endpoint", "nobody"]);
    assert!(code == Some(2) && err.contains("has no endpoint \"nobody\"; it has hq"), "{err}");
}

#[test]
fn mistakes_are_named_with_what_to_do_and_are_exit_code_2() {
    for (args, words) in [
        (&["--rate", "500"][..], "raise --capacity, or lower --rate or --boxes"),
        (&["--rate", "0"], "it must be above 0"),
        (&["--rate", "much"], "a number is needed"),
        (&["--outage", "ten"], "is not a duration"),
        (&["--outage", "0s"], "give at least 1s"),
        (&["--base", "1m", "--cap", "1s"], "change --base or --cap"),
        (&["--policy", "hope"], "possible values: edge, article, ladder"),
        (&["--rate", "10", "--outage", "3d", "--events-max", "1000"], "raise --events-max"),
        (&["--endpoint", "hq"], "--config"),
    ] {
        let (code, out, err) = plan(args);
        assert_eq!(code, Some(2), "{args:?}: {out}{err}");
        assert!(err.contains(words), "{args:?}: {err}");
    }
    let (code, help, _) = plan(&["--help"]);
    assert!(code == Some(0) && help.contains("Examples:") && help.contains("waypost plan --config"));
    let completions = stdout(&run(&["completions", "bash"]));
    assert!(completions.contains("--link-per-day"));
}

/// The image in docs/RETRY.md shows what the command beside it draws.
/// `WAYPOST_WRITE_DOCS=1 cargo test --test it the_image_of_the_policy` writes it anew.
#[test]
fn the_image_of_the_policys_page_is_drawn_by_plan() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let dir = tempfile::tempdir().unwrap();
    let drawn = dir.path().join("retry.svg");
    let args = [
        "--rate",
        "1",
        "--boxes",
        "10",
        "--capacity",
        "25",
        "--outage",
        "5m",
        "--policy",
        "edge,article,ladder",
    ];
    let page = std::fs::read_to_string(docs.join("RETRY.md")).unwrap();
    assert!(page.contains(&format!("waypost plan {} --svg", args.join(" "))), "the page names the command");
    let (code, _, err) = plan(&[args.as_slice(), &["--svg", drawn.to_str().unwrap()]].concat());
    assert_eq!(code, Some(0), "{err}");
    let drawn = std::fs::read_to_string(drawn).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n") && !drawn.contains("NaN"));
    assert_eq!(drawn.matches("<polyline").count(), 6);
    if std::env::var_os("WAYPOST_WRITE_DOCS").is_some() {
        std::fs::write(docs.join("retry.svg"), &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(docs.join("retry.svg")).unwrap();
    // Not to the last pixel: any change of a pause in the core moves every line. What is written there must still be so.
    let (kept, drawn) = (legend(&kept), legend(&drawn));
    println!("kept {kept:?}, drawn {drawn:?}");
    assert_eq!(kept.len(), 3);
    for (kept, drawn) in kept.iter().zip(&drawn) {
        let same =
            kept.0 == drawn.0 && (kept.1 - drawn.1).abs() <= 1.0 && (kept.2 / drawn.2 - 1.0).abs() <= 0.3;
        assert!(same, "docs/retry.svg is not what plan draws: {kept:?}, {drawn:?}; write it anew");
    }
}

/// Policy, per cent dead and peak, as an image says them.
fn legend(svg: &str) -> Vec<(String, f64, f64)> {
    svg.lines()
        .filter(|line| line.contains("% dead"))
        .map(|line| {
            let words = &line[line.find('>').unwrap() + 1..line.rfind("</text>").unwrap()];
            let (name, rest) = words.split_once(": ").unwrap();
            let number = |text: &str| text.split(' ').next().unwrap().parse::<f64>().unwrap();
            (name.to_owned(), number(rest), number(rest.split_once("peak ").unwrap().1))
        })
        .collect()
}
