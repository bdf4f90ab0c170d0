//! The checks of `undo store`. The API server need not answer.

use crate::checks::{self, Check, api_server, around};
use crate::facts;
use crate::moves::places;
use crate::moves::undo_store::Ready;

/// Every check; and the node, ready, where all of them allow the move.
pub fn judge(facts: &facts::UndoStore) -> (Vec<Check>, Option<Ready>) {
    let mut all = checks::of_node(&facts.node);
    all.extend([
        identity_same(facts),
        etcd_servers(facts),
        waiting(facts),
        around::static_pods(&facts.around),
        around::manifest(&facts.around),
        around::kubeadm_work(&facts.around),
        around::etcd_users(&facts.etcd_users),
        checks::etcd(&facts.etcd),
        cluster(facts),
        no_alarm(facts),
        checks::members(&facts.etcd),
        store_file(facts),
        api_server_process(facts),
    ]);
    let ready = all
        .iter()
        .all(|check| check.result.allows())
        .then(|| ready(facts))
        .flatten();
    (all, ready)
}

fn ready(facts: &facts::UndoStore) -> Option<Ready> {
    let api = api_server(&facts.api_server).ok()?;
    Some(Ready {
        installed: facts.node.installed.clone().ok()??,
        api_server_argv: api.manifest.argv.clone(),
        api_server: api.processes.first().cloned(),
        endpoint: api.endpoint.clone().ok()?,
        client: api.client.clone().ok()?,
        edit: facts.edit.clone().ok()?,
        number: facts.node.next_number.clone().ok()?,
    })
}

fn identity_same(facts: &facts::UndoStore) -> Check {
    let Ok(Some(installed)) = &facts.node.installed else {
        return Check::unknown("machine", "no install of the store is in force");
    };
    match facts.node.machine_id.as_deref() == Some(&installed.binding.machine_id) {
        true => Check::pass("machine", format!("the one of journal {}", installed.id)),
        false => Check::fail(
            "machine",
            format!(
                "journal {} is of machine {}",
                installed.id, installed.binding.machine_id
            ),
            "a journal is undone on the machine that it was written on",
        ),
    }
}

fn etcd_servers(facts: &facts::UndoStore) -> Check {
    let api = match api_server(&facts.api_server) {
        Ok(api) => api,
        Err(why) => {
            return Check::fail(
                "etcd-servers",
                why,
                "put the API server's manifest back into the kubelet's folder",
            );
        }
    };
    let Ok(Some(installed)) = &facts.node.installed else {
        return Check::unknown("etcd-servers", "no install of the store is in force");
    };
    match (&api.etcd, &facts.edit) {
        (Err(error), _) => Check::fail(
            "etcd-servers",
            error.to_string(),
            "the manifest must name exactly the store",
        ),
        (Ok(url), _) if *url == installed.etcd => Check::fail(
            "etcd-servers",
            format!("the API server's manifest names etcd ({url}) again, but the data lives in the store"),
            format!(
                "take the manifest out of the kubelet's folder, write {} in it and put it back",
                installed.store
            ),
        ),
        (Ok(url), _) if *url != installed.store => Check::fail(
            "etcd-servers",
            format!(
                "the API server's manifest names {url}, the store is at {}",
                installed.store
            ),
            "write the store's address into it",
        ),
        (Ok(_), Err(why)) => Check::fail(
            "etcd-servers",
            why,
            "write it as `- --etcd-servers=https://ADDRESS:PORT` in the manifest",
        ),
        (Ok(url), Ok(_)) => Check::pass("etcd-servers", format!("the API server uses the store at {url}")),
    }
}

fn waiting(facts: &facts::UndoStore) -> Check {
    match (facts.waiting, &facts.node.installed) {
        (true, Ok(Some(installed))) => Check::fail(
            "waiting",
            format!("{} exists", installed.waiting.display()),
            "the API server's manifest would wait there; move that file away",
        ),
        _ => Check::pass("waiting", "the manifest has a place to wait"),
    }
}

fn cluster(facts: &facts::UndoStore) -> Check {
    let (Ok(Some(installed)), Ok(etcd)) = (&facts.node.installed, &facts.etcd) else {
        return Check::unknown("cluster", "etcd does not answer");
    };
    let found = format!("{:x}", etcd.status.cluster_id);
    match found == installed.binding.cluster {
        true => Check::pass("cluster", format!("etcd's cluster is still {found}")),
        false => Check::fail(
            "cluster",
            format!(
                "etcd's cluster is {found}, the store was copied from {}",
                installed.binding.cluster
            ),
            "bring back the etcd that the store was copied from",
        ),
    }
}

/// An etcd with an alarm takes no writes.
fn no_alarm(facts: &facts::UndoStore) -> Check {
    match &facts.etcd {
        Ok(etcd) if !etcd.status.alarms.is_empty() => Check::fail(
            "alarms",
            format!("etcd has set {}", etcd.status.alarms.join(" ")),
            "make room in it (compact, defragment, or raise its quota) and disarm the alarm with etcdctl alarm disarm",
        ),
        Ok(_) => Check::pass("alarms", "etcd has no alarm set"),
        Err(_) => Check::unknown("alarms", "etcd does not answer"),
    }
}

fn store_file(facts: &facts::UndoStore) -> Check {
    match facts.store_file {
        true => Check::pass("store-file", places::STORE_FILE),
        false => Check::fail(
            "store-file",
            format!("{} is missing", places::STORE_FILE),
            "without it nothing can be copied back; find where it went",
        ),
    }
}

fn api_server_process(facts: &facts::UndoStore) -> Check {
    match api_server(&facts.api_server).map(|api| api.processes.len()) {
        Err(why) => Check::unknown("api-server-process", why),
        Ok(0) => Check::pass("api-server-process", "the API server does not run"),
        Ok(1) => Check::pass("api-server-process", "one"),
        Ok(several) => Check::fail(
            "api-server-process",
            format!("{several} processes"),
            "stop the ones that the kubelet did not start",
        ),
    }
}
