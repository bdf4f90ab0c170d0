//! Onto the store, back into etcd, and onto the store again through a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::{Value, json};

use crate::bench::{Bench, ETCD, LONG, STORE, Said};
use crate::keys::{self, Keys};
use crate::tally::Tally;
use crate::{cut, polls};

/// What an undo is compared with.
struct OnStore {
    /// The store's revision some time before it.
    revision: i64,
    /// The revision that was copied from etcd.
    copied: i64,
}

/// All of it, on one machine.
pub fn round(bench: &mut Bench, tally: &mut Tally, long: bool) {
    let control = control(bench);
    let on_store = install(bench, tally, control, long);
    undo(bench, tally, &on_store);
    // The manifest that names the store stands already: every boot goes on from there.
    cut::cut(bench, tally, "install", "ready", &[STORE], None);
}

/// How long an API server that is stopped and started was away, and how long its node was not ready, in milliseconds.
fn control(bench: &Bench) -> (u64, u64) {
    let from = bench.now();
    print!("{}", bench.vm.sh("timeout 1500 bash /root/kit/control"));
    bench.settle();
    let polls = bench.polls();
    let figures = (polls::away(&polls, from), polls::not_ready(&polls, from));
    say("control: the manifest out and in", figures);
    figures
}

fn say(what: &str, (away, not_ready): (u64, u64)) {
    println!(
        "{what}: the API server was away for {:.1} s, the node not ready for {:.1} s",
        away as f64 / 1e3,
        not_ready as f64 / 1e3
    );
}

fn install(bench: &Bench, tally: &mut Tally, control: (u64, u64), long: bool) -> OnStore {
    let begun = Instant::now();
    bench.product("verify").well();
    println!("verify took {:.0} s", begun.elapsed().as_secs_f64());
    let manifest = bench.manifest();
    let containers = bench.containers();
    let before = bench.objects();
    let from = bench.now();
    let begun = Instant::now();
    let said = bench.moves("install store");
    println!("install took {:.0} s: {}", begun.elapsed().as_secs_f64(), said.last());
    tally.same(
        "install says that it changed something",
        &said.last()["changed"],
        &json!(true),
    );
    bench.serves();
    tally.same(
        "the API server runs on the store",
        &bench.serves_from().as_str(),
        &STORE,
    );
    let copied = copied(&said);
    let hash = bench.hash(copied);
    bench.settle();
    let polls = bench.polls();
    let figures = (polls::away(&polls, from), polls::not_ready(&polls, from));
    say("install", figures);
    // Kubernetes gives a node 50 s: one that was unlucky by one heartbeat is none that the move has hurt.
    tally.check(
        "the node was not ready no longer than in the control run",
        figures.1 <= control.1 + 60_000,
        || format!("{} ms, control {} ms", figures.1, control.1),
    );
    tally.same(
        "only --etcd-servers has changed in the manifest",
        &bench.manifest(),
        &manifest.replace(ETCD, STORE),
    );
    tally.same(
        "no container was restarted but the control plane's own",
        &bench.containers(),
        &containers,
    );

    compare_objects(tally, "install", &before, &bench.objects(), copied);
    let (_, etcd) = bench.keys(ETCD, copied);
    let acknowledged = bench.acknowledged();
    let (revision, store) = bench.keys(STORE, 0);
    compare_keys(tally, "install", &etcd, &store, copied);
    compare_acknowledged(&acknowledged, tally, "install", &store, copied);
    still(bench, tally, copied, &hash);

    // Some writes that an undo has to carry, beside the writer's.
    bench.vm.sh(
        "kubectl -n filled label configmap n1 round=two --overwrite && kubectl -n filled delete secret n2 && \
         kubectl -n filled create configmap born-on-store --from-literal=where=store",
    );
    if long {
        works(bench, tally, "on-store");
    }
    let status = bench.status();
    tally.same("status says where the data lives", &status["data"], &json!("store"));
    still(bench, tally, copied, &hash);
    OnStore { revision, copied }
}

/// The revision that the move says it has copied.
fn copied(said: &Said) -> i64 {
    let texts = said
        .events
        .iter()
        .filter(|event| event["name"] == "copy")
        .filter_map(|event| event["message"].as_str());
    let number = |text: &str| {
        let rest = text.split("at revision ").nth(1)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let found: Vec<i64> = texts.filter_map(number).collect();
    *found
        .last()
        .unwrap_or_else(|| panic!("the move names no revision: {:?}", said.events))
}

/// etcd keeps what was copied, and counts only the ends of leases.
fn still(bench: &Bench, tally: &mut Tally, copied: i64, hash: &Value) {
    tally.same("etcd's hash at the copied revision", &bench.hash(copied), hash);
    let watch = format!("watch '' --prefix --prev-kv --rev={} --write-out=json", copied + 1);
    let (now, _) = bench.keys(ETCD, copied);
    // Where nothing was counted there is nothing to wait for.
    let text = if now == copied {
        String::new()
    } else {
        bench
            .vm
            .sh(&format!("timeout 20 {}; true", bench.command(ETCD, &watch)))
    };
    let mut ends = 0;
    let mut others = Vec::new();
    let mut revisions = BTreeSet::new();
    for line in text.lines() {
        let Ok(answer) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        for event in answer["Events"].as_array().into_iter().flatten() {
            revisions.insert(event["kv"]["mod_revision"].as_i64());
            let leased = event["prev_kv"]["lease"].as_i64().unwrap_or(0) != 0;
            if event["type"] == json!(1) && leased {
                ends += 1;
            } else {
                others.push(event["kv"]["key"].to_string());
            }
        }
    }
    tally.check(
        &format!(
            "etcd counts only the ends of leases after the copy ({ends} keys in {} revisions)",
            revisions.len()
        ),
        others.is_empty() && now - copied == revisions.len() as i64,
        || {
            format!(
                "etcd is at {now}, {copied} was copied, {} revisions seen, others: {others:?}",
                revisions.len()
            )
        },
    );
}

/// Whether only the status of a pod is another one, written on the store: nodes that were not ready for a while do that.
fn is_status_alone(name: &str, old: &Value, new: &Value, copied: i64) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
        }
        object
    };
    let version = new["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse::<i64>().ok());
    name.contains("/pods/") && version.is_some_and(|version| version > copied) && rest(old) == rest(new)
}

fn compare_objects(
    tally: &mut Tally,
    what: &str,
    before: &BTreeMap<String, Value>,
    now: &BTreeMap<String, Value>,
    copied: i64,
) {
    let as_it_was = |name: &String, old: &Value| match now.get(name) {
        Some(new) => new == old || is_status_alone(name, old, new, copied),
        None => false,
    };
    let wrong: Vec<&String> = before
        .iter()
        .filter(|(name, old)| !as_it_was(name, old))
        .map(|(name, _)| name)
        .collect();
    let come: Vec<&String> = now.keys().filter(|name| !before.contains_key(*name)).collect();
    tally.check(
        &format!(
            "{what}: {} objects as the API server shows them, each with its uid and resourceVersion",
            before.len()
        ),
        wrong.is_empty() && come.is_empty(),
        || {
            let show = |name: &&String| format!("{name}: {:?}, was {:?}", now.get(*name), before.get(*name));
            format!(
                "{} differ: {:?}; come: {come:?}",
                wrong.len(),
                wrong.iter().take(3).map(show).collect::<Vec<_>>()
            )
        },
    );
}

fn compare_keys(tally: &mut Tally, what: &str, before: &Keys, now: &Keys, revision: i64) {
    let compared = keys::compare(before, now, revision);
    tally.check(
        &format!(
            "{what}: {} keys as they were to the byte, {} written since by the cluster itself",
            compared.same, compared.own
        ),
        compared.wrong.is_empty() && compared.same > 300,
        || {
            format!(
                "{} others: {:?}",
                compared.wrong.len(),
                compared.wrong.iter().take(8).collect::<Vec<_>>()
            )
        },
    );
}

/// Every write that was acknowledged is there; one of up to `revision` at its own.
fn compare_acknowledged(
    acknowledged: &BTreeMap<String, i64>,
    tally: &mut Tally,
    what: &str,
    keys: &Keys,
    revision: i64,
) {
    let lost: Vec<&String> = acknowledged
        .iter()
        .filter(|(name, at)| {
            let found = keys.get(&format!("/registry/configmaps/busy/{name}"));
            !found.is_some_and(|kv| kv.modified == **at || **at > revision && kv.modified > **at)
        })
        .map(|(name, _)| name)
        .collect();
    tally.check(
        &format!(
            "{what}: {} acknowledged writes of a busy client are there",
            acknowledged.len()
        ),
        lost.is_empty() && acknowledged.len() > 5,
        || format!("{} are not: {:?}", lost.len(), lost.iter().take(5).collect::<Vec<_>>()),
    );
}

/// Controllers, scheduler, kubelet and events work: a new Deployment gets a running pod.
fn works(bench: &Bench, tally: &mut Tally, name: &str) {
    bench.settle();
    let begun = Instant::now();
    bench.vm.sh(&format!(
        "kubectl -n filled create deployment {name} --image=registry.example.com/sleeper:1 --dry-run=client -o json | \
         jq '.spec.template.spec += {{terminationGracePeriodSeconds: 1, automountServiceAccountToken: false}} | \
         .spec.template.spec.containers[0].imagePullPolicy = \"Never\"' | kubectl create --validate=false -f -"
    ));
    bench.vm.until(
        "the Deployment has a running pod",
        &format!("kubectl -n filled wait --for=condition=Available deployment/{name} --timeout=120s"),
        LONG,
    );
    let took = begun.elapsed().as_secs_f64();
    tally.check(
        &format!("{name}: a new Deployment has a running pod ({took:.0} s)"),
        true,
        String::new,
    );
    let events = bench.vm.sh(&format!(
        "kubectl -n filled get events -o name --field-selector involvedObject.name={name} | wc -l"
    ));
    tally.check(&format!("{name}: an event tells of it"), events.trim() != "0", || {
        "none".to_owned()
    });
    bench.vm.sh(&format!(
        "kubectl -n filled delete deployment {name} --cascade=foreground --timeout=900s"
    ));
}

fn undo(bench: &Bench, tally: &mut Tally, on_store: &OnStore) {
    let manifest = bench.manifest();
    let containers = bench.containers();
    let from = bench.now();
    let begun = Instant::now();
    let said = bench.moves("undo store");
    println!("undo took {:.0} s: {}", begun.elapsed().as_secs_f64(), said.last());
    // etcd is compacted at the revision that ended the copy: what it held then can be read although it goes on.
    let copied_back = bench.compacted_at();
    let (_, then) = bench.keys(ETCD, copied_back);
    bench.serves();
    tally.same("the API server runs on etcd", &bench.serves_from().as_str(), &ETCD);
    tally.same(
        "undo: only --etcd-servers has changed in the manifest",
        &bench.manifest(),
        &manifest.replace(STORE, ETCD),
    );
    bench.settle();
    let polls = bench.polls();
    say("undo", (polls::away(&polls, from), polls::not_ready(&polls, from)));
    tally.same(
        "undo: no container was restarted but the control plane's own",
        &bench.containers(),
        &containers,
    );
    let acknowledged = bench.acknowledged();
    let (revision, etcd) = bench.keys(ETCD, 0);
    tally.check("undo: etcd is past the store", revision > on_store.revision, || {
        format!("etcd {revision}, store {}", on_store.revision)
    });
    let (closed, store) = bench.closed_store();
    let compared = keys::compare_back(&store, &then, on_store.copied, closed);
    tally.check(
        &format!(
            "undo: of the store's keys {} are as they were before the move, {} have its bytes and a later revision than its last, {closed}",
            compared.same, compared.own
        ),
        compared.wrong.is_empty() && compared.same > 300 && compared.own > 10 && closed >= on_store.revision,
        || {
            format!(
                "{} others: {:?}",
                compared.wrong.len(),
                compared.wrong.iter().take(8).collect::<Vec<_>>()
            )
        },
    );
    compare_acknowledged(&acknowledged, tally, "undo", &etcd, on_store.copied);
    let ours = etcd.keys().filter(|key| key.contains("quantykube")).count();
    tally.same("undo: no key of ours is left", &ours, &0);
    works(bench, tally, "on-etcd");
    let back = polls::went_back(&bench.polls());
    tally.check("no client saw a resourceVersion go back", back.is_none(), || {
        back.clone().unwrap_or_default()
    });
    tally.same("status says etcd", &bench.status()["data"], &json!("etcd"));
}
