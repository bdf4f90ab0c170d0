//! The power goes in the middle of a move, and nobody is there.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, LONG};
use crate::keys::Keys;
use crate::tally::Tally;

/// Starts a move, ends the machine as soon as the step `place` has begun, boots it, and waits until no move is open and
/// the API server is ready. Then it must serve from one of `sides`, with everything that was acknowledged. Returns after
/// how many seconds of power the API server was ready; `plain` is the same of a boot without a move.
pub fn cut(bench: &mut Bench, tally: &mut Tally, verb: &str, place: &str, sides: &[&str], plain: Option<f64>) -> f64 {
    let what = format!("{verb} cut off at {place}");
    let said_before = bench.vm.events().len();
    bench.start_product(&format!("{verb} store"));
    let begun = Instant::now();
    loop {
        let events = bench.vm.events();
        let said = &events[said_before..];
        if names(said, "step").any(|name| name == place) {
            break;
        }
        assert!(
            names(said, "result").next().is_none() && names(said, "error").next().is_none() && begun.elapsed() < LONG,
            "{what}: the step was not seen: {said}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    bench.vm.cut();
    let said = bench.vm.events()[said_before..].to_owned();
    tally.check(
        &format!("{what}: the power went in time"),
        !said.contains("\"event\":\"result\""),
        || said.clone(),
    );
    let acknowledged = bench.acknowledged();

    let begun = Instant::now();
    bench.vm.power_on();
    let scripts = begun.elapsed().as_secs_f64();
    bench.serves();
    let ready = begun.elapsed().as_secs_f64();
    let mut status = bench.status();
    while status["openMove"] != Value::Null && begun.elapsed() < LONG {
        assert!(status["needsPerson"] != Value::Bool(true), "{what}: {status}");
        std::thread::sleep(Duration::from_secs(3));
        status = bench.status();
    }
    tally.same(&format!("{what}: no move is open"), &status["openMove"], &Value::Null);
    let closed = begun.elapsed().as_secs_f64();
    bench.serves();
    let side = bench.serves_from();
    tally.check(
        &format!("{what}: it serves from where it should"),
        sides.contains(&side.as_str()),
        || side.clone(),
    );
    let (_, keys) = bench.keys(&side, 0);
    let lost = lost(&acknowledged, &keys);
    tally.check(
        &format!("{what}: all {} acknowledged writes are served", acknowledged.len()),
        lost.is_empty() && !acknowledged.is_empty(),
        || format!("{lost:?} are not"),
    );
    let journal = status["journals"]
        .as_array()
        .and_then(|all| all.last())
        .cloned()
        .unwrap_or_default();
    let ratio = plain.map_or(String::new(), |plain| {
        format!(", {:.2} times a plain boot", ready / plain)
    });
    println!(
        "{what}: {} {}; scripts ran {scripts:.0} s after the power was on, the API server was ready after {ready:.0} s{ratio}, \
         the move was over after {closed:.0} s",
        journal["id"], journal["status"]
    );
    ready
}

/// The names of the events of one kind.
fn names<'a>(said: &'a str, kind: &'a str) -> impl Iterator<Item = String> + 'a {
    said.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(move |event| event["event"] == kind)
        .map(|event| event["name"].as_str().unwrap_or_default().to_owned())
}

fn lost<'a>(acknowledged: &'a std::collections::BTreeMap<String, i64>, keys: &Keys) -> Vec<&'a String> {
    let there = |name: &str| keys.contains_key(&format!("/registry/configmaps/busy/{name}"));
    acknowledged.keys().filter(|name| !there(name)).collect()
}
