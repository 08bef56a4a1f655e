//! Intake on one core: bytes of a sequence to events, with parse, gate, key and digest.
//!
//! `cargo bench --bench intake`; the figure to reach is 50,000 features of 250 bytes a second.
#![allow(missing_docs)]

use std::fmt::Write as _;
use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use waypost::core::event::{EventMeta, Framing, IntakeSettings, SequenceSplitter, document, prepare};
use waypost::core::ids::EndpointId;
use waypost::core::key::Recipe;
use waypost::core::route::Routes;

/// Lines of about 250 bytes, as a vehicle posts them; `places` decimal places in its coordinates.
fn fleet(lines: u32, places: usize) -> Bytes {
    let mut out = String::new();
    for n in 0..lines {
        let (vehicle, x) = (n % 40, f64::from(n) * 1e-4);
        let (lon, lat) = (13.3 + x.sin() / 10.0, 52.5 + x.cos() / 10.0);
        let (minute, second, speed) = (n / 600 % 60, n / 10 % 60, f64::from(n % 150) / 10.0);
        let properties = format!(
            r#"{{"device_id":"truck-{vehicle:04}","event_type":"position","ts":"2026-03-02T06:{minute:02}:{second:02}.087Z","seq":{n},"speed_mps":{speed},"heading":182,"hdop":2.2}}"#
        );
        let _ = writeln!(
            out,
            r#"{{"type":"Feature","id":"truck-{vehicle:04}/{n}","geometry":{{"type":"Point","coordinates":[{lon:.places$},{lat:.places$}]}},"properties":{properties}}}"#
        );
    }
    out.into()
}

/// A ring of `vertices` positions round a circle.
fn ring(vertices: u32) -> Bytes {
    let position = |n: u32| {
        let angle = f64::from(n % vertices) * std::f64::consts::TAU / f64::from(vertices);
        format!("[{:.7},{:.7}]", 13.0 + angle.cos(), 52.0 + angle.sin())
    };
    let positions: Vec<_> = (0..=vertices).map(position).collect();
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Polygon","coordinates":[[{}]]}},"properties":{{"seq":1}}}}"#,
        positions.join(",")
    )
    .into()
}

fn intake(settings: &IntakeSettings, bytes: &Bytes) -> usize {
    let meta = EventMeta::default();
    let mut splitter = SequenceSplitter::new(Framing::Lines, settings.body_bytes_max);
    let mut kept = 0;
    let mut take = |splitter: &mut SequenceSplitter| {
        for element in splitter {
            let text = element.text.expect("short lines");
            for feature in document(text).expect("JSON") {
                let event = prepare(settings, &feature.expect("a Feature"), &meta).expect("good");
                kept += usize::from(!black_box(event).deliver.is_empty());
            }
        }
    };
    let mut rest = bytes.clone();
    while !rest.is_empty() {
        // What hyper reads at once from a busy connection.
        splitter.push(rest.split_to(rest.len().min(64 << 10)));
        take(&mut splitter);
    }
    splitter.finish();
    take(&mut splitter);
    kept
}

fn bench(c: &mut Criterion) {
    let settings =
        IntakeSettings { routes: Routes::new(vec![EndpointId(1)], Vec::new()), ..IntakeSettings::default() };
    let article = IntakeSettings { recipe: Recipe::Article, ..settings.clone() };
    let mut group = c.benchmark_group("intake");
    for (name, settings, places) in [
        ("event, 7 places", &settings, 7),
        ("event, 14 places", &settings, 14),
        ("article, 7 places", &article, 7),
    ] {
        let bytes = fleet(10_000, places);
        group.throughput(Throughput::Elements(10_000)).sample_size(20);
        group.bench_function(name, |b| b.iter(|| assert_eq!(intake(settings, &bytes), 10_000)));
    }
    let polygon = ring(10_000);
    group.throughput(Throughput::Elements(10_000));
    group.bench_function("polygon of 10,000 vertices", |b| b.iter(|| intake(&settings, &polygon)));
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
