//! The alert rules and the scrape job that the bundle brings: every metric that a rule names is one that a store exports,
//! Prometheus' own promtool takes both files, and each rule fires on its fault and on nothing else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use quantykube_tests::places::root;
use quantykube_tests::{promtool, skipped};

use crate::calls::make::put;
use crate::servers::{Kind, Running, block_on};

/// As the bundle holds them: the golden renderings, which the bundler's tests keep current.
fn rendered(name: &str) -> PathBuf {
    root().join("bundler/golden/manifests").join(name)
}

/// The name and the expression of each rule.
fn rules() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(rendered("prometheus-rules.yaml")).expect("the rules");
    let after = |line: &str, key: &str| line.trim().strip_prefix(key).map(|rest| rest.trim().to_owned());
    let names: Vec<String> = text.lines().filter_map(|line| after(line, "- alert:")).collect();
    let expressions: Vec<String> = text.lines().filter_map(|line| after(line, "expr:")).collect();
    assert_eq!(
        names.len(),
        expressions.len(),
        "each rule has its expression on one line"
    );
    names.into_iter().zip(expressions).collect()
}

/// What an expression asks Prometheus for: every word of it but functions, keywords, labels and what is quoted.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    const KEYWORDS: [&str; 8] = ["and", "or", "unless", "by", "without", "on", "ignoring", "bool"];
    let mut metrics = BTreeSet::new();
    let (mut depth, mut grouping) = (0, false);
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if !(first.is_ascii_alphabetic() || first == '_') {
            match first {
                '{' | '[' => depth += 1,
                '}' | ']' => depth -= 1,
                ')' => grouping = false,
                _ => {}
            }
            // A number may hold letters: they are none of a word.
            let skip = match first.is_ascii_digit() {
                true => rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.'),
                false => Some(first.len_utf8()),
            };
            rest = &rest[skip.unwrap_or(rest.len())..];
            continue;
        }
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        // A function's arguments follow, or how an aggregation groups.
        let calls = ["(", "by ", "without "]
            .iter()
            .any(|next| behind.trim_start().starts_with(next));
        if depth == 0 && !grouping && !calls && !KEYWORDS.contains(&word) {
            metrics.insert(word.to_owned());
        }
        grouping |= ["by", "without", "on", "ignoring"].contains(&word);
    }
    metrics
}

#[test]
fn metrics_are_found_in_expressions() {
    let found = metrics_of(r#"sum by (instance) (rate(a_total{code=~"x|y"}[5m])) > 0.1e3 and b_c{d="e"} / 100 == 0"#);
    let expected: BTreeSet<String> = ["a_total", "b_c"].map(str::to_owned).into();
    assert_eq!(found, expected);
}

/// `up` is Prometheus' own; every other metric must be on the page, with the labels that rules choose by.
#[test]
fn every_metric_of_the_rules_is_exported() {
    let running = Running::fresh(Kind::Store, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        clients.kv.put(put("k", "x")).await.expect("a put");
    });
    let page = running.metrics();
    let exported: BTreeSet<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let rules = rules();
    assert!(rules.len() >= 9, "{rules:?}");
    for (name, expression) in &rules {
        let metrics = metrics_of(expression);
        assert!(!metrics.is_empty(), "{name}: {expression}");
        for metric in metrics.iter().filter(|metric| *metric != "up") {
            assert!(exported.contains(metric.as_str()), "{name} asks for {metric}");
        }
        // The codes and alarms that a rule chooses by are spelled as the page spells them.
        for code in ["DataLoss", "Internal", "ResourceExhausted", "Unavailable"] {
            assert!(!expression.contains(code) || page.contains(&format!("grpc_code=\"{code}\"")));
        }
    }
    for alarm in ["NOSPACE", "CORRUPT"] {
        assert!(page.contains(&format!("quantykube_store_alarm{{alarm=\"{alarm}\"}} 0\n")));
    }
    let scrape = std::fs::read_to_string(rendered("prometheus-scrape.yaml")).expect("the scrape job");
    assert!(
        scrape.contains("job_name: quantykube-store\n"),
        "the job that the rules name"
    );
}

/// Every fault that there is a rule for, at once.
const FAULTS: &[(&str, &str)] = &[
    (r#"up{job="quantykube-store"}"#, "0x40"),
    (r#"quantykube_store_alarm{alarm="NOSPACE"}"#, "1x40"),
    ("etcd_mvcc_db_total_size_in_use_in_bytes", "90x40"),
    ("etcd_server_quota_backend_bytes", "100x40"),
    (r#"etcd_disk_wal_fsync_duration_seconds_bucket{le="0.512"}"#, "0x40"),
    (r#"etcd_disk_wal_fsync_duration_seconds_bucket{le="1.024"}"#, "0+60x40"),
    (r#"etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"}"#, "0+60x40"),
    ("etcd_debugging_mvcc_slow_watcher_total", "3x40"),
    ("etcd_debugging_mvcc_current_revision", "200000+100x40"),
    ("etcd_debugging_mvcc_compact_revision", "10x40"),
    (r#"grpc_server_handled_total{grpc_code="Internal"}"#, "0+60x40"),
    (r#"process_open_fds{job="quantykube-store"}"#, "90x40"),
    (r#"process_max_fds{job="quantykube-store"}"#, "100x40"),
    (
        r#"process_cpu_seconds_total{job="quantykube-store"}"#,
        "5 0 5 0 5 0 5 0 5x30",
    ),
];

/// A store that does well, without a quota.
const HEALTH: &[(&str, &str)] = &[
    (r#"up{job="quantykube-store"}"#, "1x40"),
    (r#"quantykube_store_alarm{alarm="NOSPACE"}"#, "0x40"),
    ("etcd_mvcc_db_total_size_in_use_in_bytes", "90x40"),
    ("etcd_server_quota_backend_bytes", "0x40"),
    (r#"etcd_disk_wal_fsync_duration_seconds_bucket{le="0.016"}"#, "0+60x40"),
    (r#"etcd_disk_wal_fsync_duration_seconds_bucket{le="0.512"}"#, "0+60x40"),
    (r#"etcd_disk_wal_fsync_duration_seconds_bucket{le="1.024"}"#, "0+60x40"),
    (r#"etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"}"#, "0+60x40"),
    ("etcd_debugging_mvcc_slow_watcher_total", "0x40"),
    ("etcd_debugging_mvcc_current_revision", "200000+100x40"),
    ("etcd_debugging_mvcc_compact_revision", "10+500x40"),
    (r#"grpc_server_handled_total{grpc_code="OK"}"#, "0+6000x40"),
    (r#"process_open_fds{job="quantykube-store"}"#, "90x40"),
    (r#"process_max_fds{job="quantykube-store"}"#, "1000x40"),
    (r#"process_cpu_seconds_total{job="quantykube-store"}"#, "5+1x40"),
];

/// A test of promtool's: what fires after half an hour of these series, one value a minute.
fn scenario(series: &[(&str, &str)], firing: &[&str]) -> String {
    let mut text = "  - interval: 1m\n    input_series:\n".to_owned();
    for (name, values) in series {
        let name = match name.split_once('{') {
            Some((name, labels)) => format!("{name}{{instance=\"n\",{labels}"),
            None => format!("{name}{{instance=\"n\"}}"),
        };
        text += &format!("      - series: '{name}'\n        values: '{values}'\n");
    }
    text += "    promql_expr_test:\n      - eval_time: 35m\n";
    text += "        expr: count by (alertname) (ALERTS{alertstate=\"firing\"})\n        exp_samples:\n";
    for alert in firing {
        text += &format!("          - {{labels: '{{alertname=\"{alert}\"}}', value: 1}}\n");
    }
    text
}

fn run(promtool: &Path, folder: &Path, args: &[&str]) {
    let output = Command::new(promtool)
        .current_dir(folder)
        .args(args)
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {args:?}:\n{text}");
}

#[test]
fn prometheus_takes_the_rules_and_each_fires_on_its_fault() {
    let Some(promtool) = promtool() else {
        return skipped(
            "prometheus_takes_the_rules_and_each_fires_on_its_fault",
            "no promtool: scripts/peers debian-prometheus could not bring it",
        );
    };
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["prometheus-rules.yaml", "prometheus-scrape.yaml"] {
        std::fs::copy(rendered(name), folder.path().join(name)).expect("a copy");
    }
    run(&promtool, folder.path(), &["check", "rules", "prometheus-rules.yaml"]);
    // The scrape job is a whole configuration by itself.
    run(&promtool, folder.path(), &["check", "config", "prometheus-scrape.yaml"]);
    let rules = rules();
    let names: Vec<&str> = rules.iter().map(|(name, _)| name.as_str()).collect();
    let head = "rule_files: [prometheus-rules.yaml]\nevaluation_interval: 1m\ntests:\n";
    let scenarios = scenario(FAULTS, &names) + &scenario(HEALTH, &[]);
    std::fs::write(folder.path().join("tests.yaml"), head.to_owned() + &scenarios).expect("a file");
    run(&promtool, folder.path(), &["test", "rules", "tests.yaml"]);
}
