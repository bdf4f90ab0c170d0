//! The checks of `install store`.

use quantykube_journal::Binding;

use crate::checks::{self, Check, api_server, around};
use crate::facts;
use crate::moves::etcd_servers::Error as EtcdServers;
use crate::moves::places;
use crate::moves::store::Ready;

/// Every check, in the order of their subjects; and the node, ready, where all of them allow the move.
/// `architecture` is the bundle's.
pub fn judge(facts: &facts::Store, architecture: &str) -> (Vec<Check>, Option<Ready>) {
    let mut all = checks::of_node(&facts.node);
    all.extend([
        of_architecture(facts, architecture),
        kubeadm(facts),
        etcd_servers(facts),
        etcd_local(facts),
        etcd_client(facts),
        etcd_server(facts),
        around::etcd_users(&facts.etcd_users),
        checks::etcd(&facts.etcd),
        checks::alarms(&facts.etcd),
        checks::members(&facts.etcd),
        foreign_keys(facts),
        port(facts),
        checks::space(&facts.etcd, facts.free_bytes, places::STORE_FOLDER),
        store_file(facts),
        waiting(facts),
        api_server_process(facts),
        api_server_ready(facts),
        around::kubelet_since(&facts.around),
        around::static_pods(&facts.around),
        around::manifest(&facts.around),
        around::kubeadm_work(&facts.around),
        around::file_system(&facts.around),
        around::writable(&facts.around),
        around::sync_time(&facts.around),
        around::memory(&facts.etcd, &facts.around),
        around::selinux(&facts.around),
        around::schedules(&facts.around),
    ]);
    all.extend(settings(facts));
    let ready = all
        .iter()
        .all(|check| check.result.allows())
        .then(|| ready(facts))
        .flatten();
    (all, ready)
}

/// The values behind the checks. `None` only where a check has failed.
fn ready(facts: &facts::Store) -> Option<Ready> {
    let api = api_server(&facts.api_server).ok()?;
    let etcd = facts.etcd.as_ref().ok()?;
    let local_etcd = facts.local_etcd.as_ref().ok()?.as_ref()?;
    let [process] = api.processes.as_slice() else {
        return None;
    };
    Some(Ready {
        binding: Binding {
            machine_id: facts.node.machine_id.clone()?,
            node: facts.node.name.clone()?,
            cluster: format!("{:x}", etcd.status.cluster_id),
        },
        static_pods: facts.node.static_pods.clone().ok()?,
        api_server_argv: api.manifest.argv.clone(),
        api_server: process.clone(),
        endpoint: api.endpoint.clone().ok()?,
        etcd: api.etcd.clone().ok()?,
        client: api.client.clone().ok()?,
        server: local_etcd.server.clone().ok()?,
        settings: local_etcd.settings.clone(),
        store: facts.store.clone().ok()?,
        edit: facts.edit.clone().ok()?,
        number: facts.node.next_number.clone().ok()?,
    })
}

fn of_architecture(facts: &facts::Store, bundle: &str) -> Check {
    match facts.node.architecture == bundle {
        true => Check::pass("architecture", bundle),
        false => Check::fail(
            "architecture",
            format!(
                "the bundle is for {bundle}, this machine is {}",
                facts.node.architecture
            ),
            "bring the bundle that is built for this machine",
        ),
    }
}

fn kubeadm(facts: &facts::Store) -> Check {
    let hint = "a control-plane node made by kubeadm is supported";
    let folder = match &facts.node.static_pods {
        Ok(folder) => folder.display(),
        Err(why) => return Check::fail("kubeadm", why, hint),
    };
    match (&facts.api_server, &facts.local_etcd) {
        (Ok(Some(_)), Ok(_)) => Check::pass("kubeadm", format!("the API server is a static pod in {folder}")),
        (Ok(None), _) => Check::fail(
            "kubeadm",
            format!("{folder} holds no {}", places::API_SERVER_MANIFEST),
            hint,
        ),
        (Err(why), _) | (_, Err(why)) => Check::fail("kubeadm", why, hint),
    }
}

fn etcd_servers(facts: &facts::Store) -> Check {
    let api = match api_server(&facts.api_server) {
        Ok(api) => api,
        Err(why) => return Check::unknown("etcd-servers", why),
    };
    match (&api.etcd, &facts.edit) {
        (Err(error @ EtcdServers::Overrides(_)), _) => Check::fail(
            "etcd-servers",
            error.to_string(),
            "an API server that keeps some kinds in another etcd is not supported",
        ),
        (Err(error), _) => Check::fail(
            "etcd-servers",
            error.to_string(),
            "the manifest must name exactly one etcd",
        ),
        (Ok(_), Err(why)) => Check::fail(
            "etcd-servers",
            why,
            "write it as `- --etcd-servers=https://ADDRESS:PORT` in the manifest",
        ),
        (Ok(url), Ok(_)) => Check::pass("etcd-servers", format!("the API server uses {url}")),
    }
}

fn etcd_local(facts: &facts::Store) -> Check {
    let url = match api_server(&facts.api_server).and_then(|api| api.etcd.clone().map_err(|e| e.to_string())) {
        Ok(url) => url,
        Err(why) => return Check::unknown("etcd-local", why),
    };
    let hint = "an etcd outside of this node (kubeadm's external etcd) is not supported";
    match &facts.local_etcd {
        Err(why) => Check::unknown("etcd-local", why),
        Ok(None) => Check::fail(
            "etcd-local",
            format!("{url} is not kubeadm's: there is no {}", places::ETCD_MANIFEST),
            hint,
        ),
        Ok(Some(etcd)) if etcd.listens.contains(&url) => {
            Check::pass("etcd-local", format!("{url} is this node's own etcd"))
        }
        Ok(Some(etcd)) => Check::fail(
            "etcd-local",
            format!(
                "the API server uses {url}, this node's etcd listens on {}",
                etcd.listens.join(" ")
            ),
            hint,
        ),
    }
}

fn etcd_client(facts: &facts::Store) -> Check {
    match api_server(&facts.api_server) {
        Err(why) => Check::unknown("etcd-client", why),
        Ok(api) => checks::certificates(
            "etcd-client",
            "the API server's certificate for etcd",
            &api.client_good,
            facts.around.now,
            "renew it with `kubeadm certs renew apiserver-etcd-client`",
        ),
    }
}

fn etcd_server(facts: &facts::Store) -> Check {
    match &facts.local_etcd {
        Ok(Some(_)) => checks::certificates(
            "etcd-server",
            "etcd's certificate, which the store will use,",
            &facts.server_good,
            facts.around.now,
            "renew it with `kubeadm certs renew etcd-server`; it must name 127.0.0.1 and ::1",
        ),
        Ok(None) => Check::unknown("etcd-server", format!("there is no {}", places::ETCD_MANIFEST)),
        Err(why) => Check::unknown("etcd-server", why),
    }
}

/// The largest request that the store's file takes for certain, in bytes: it keeps one change in one segment of 8 MiB.
const REQUEST_BYTES_MAX: u64 = 8_000_000;

/// What etcd was set to, and the store takes over. Nothing where there is no etcd of kubeadm's, which has its own check.
fn settings(facts: &facts::Store) -> Option<Check> {
    let etcd = facts.local_etcd.as_ref().ok()?.as_ref()?;
    let wrong = etcd.settings.iter().find_map(|(name, value)| {
        let found = format!("etcd runs with --{name}={value}");
        match *name {
            "max-request-bytes" => match value.parse::<u64>() {
                Ok(bytes) if bytes <= REQUEST_BYTES_MAX => None,
                Ok(_) => Some(format!("{found}, the store takes {REQUEST_BYTES_MAX} at most")),
                Err(_) => Some(format!("{found}, which is no number")),
            },
            "quota-backend-bytes" if value.parse::<i64>().is_err() => Some(format!("{found}, which is no number")),
            _ => None,
        }
    });
    Some(match wrong {
        None => Check::pass("etcd-settings", "the store can take over what etcd was set to"),
        Some(found) => Check::fail(
            "etcd-settings",
            found,
            "change it in etcd's manifest; Kubernetes needs no more than etcd's default",
        ),
    })
}

fn foreign_keys(facts: &facts::Store) -> Check {
    let Ok(etcd) = &facts.etcd else {
        return Check::unknown("foreign-keys", "etcd does not answer");
    };
    match etcd.foreign.count {
        0 => Check::pass(
            "foreign-keys",
            format!("{} keys, all of the API server", etcd.status.keys),
        ),
        count => Check::fail(
            "foreign-keys",
            foreign(etcd, count),
            "another program keeps its data in this etcd; it must move elsewhere first",
        ),
    }
}

/// The keys of others by their owners, as far as those are known, and the first few by name.
fn foreign(etcd: &facts::etcd::Etcd, count: u64) -> String {
    let known: u64 = etcd.owners.iter().map(|(_, keys)| keys).sum();
    let mut owners: Vec<String> = etcd
        .owners
        .iter()
        .map(|(owner, keys)| format!("{keys} of {owner}"))
        .collect();
    match count.saturating_sub(known) {
        0 => {}
        rest if owners.is_empty() => owners.push(format!("{rest} of programs that are not known")),
        rest => owners.push(format!("{rest} of others")),
    }
    format!(
        "{count} keys are not the API server's: {}; the first are {}",
        owners.join(", "),
        etcd.foreign.first.join(" ")
    )
}

fn port(facts: &facts::Store) -> Check {
    let store = match &facts.store {
        Ok(store) => store,
        Err(why) => return Check::unknown("port", why),
    };
    match facts.ports_taken.as_slice() {
        [] => Check::pass("port", format!("{store} and {} are free", places::STORE_METRICS)),
        taken => Check::fail(
            "port",
            taken
                .iter()
                .map(|(at, why)| format!("{at}: {why}"))
                .collect::<Vec<_>>()
                .join(", "),
            "stop what listens there (ss -ltnp shows it)",
        ),
    }
}

fn store_file(facts: &facts::Store) -> Check {
    match facts.store_file {
        false => Check::pass("store-file", format!("{} does not exist yet", places::STORE_FILE)),
        true => Check::fail(
            "store-file",
            format!("{} exists, and no install says so", places::STORE_FILE),
            "find out what it holds; if nothing that is needed, move it away",
        ),
    }
}

fn waiting(facts: &facts::Store) -> Check {
    match &facts.waiting {
        None => Check::pass("waiting", "the manifest has a place to wait"),
        Some(path) => Check::fail(
            "waiting",
            format!("{} exists", path.display()),
            "the API server's manifest would wait there; move that file away",
        ),
    }
}

fn api_server_process(facts: &facts::Store) -> Check {
    let api = match api_server(&facts.api_server) {
        Ok(api) => api,
        Err(why) => return Check::unknown("api-server-process", why),
    };
    match api.processes.as_slice() {
        [one] => Check::pass("api-server-process", format!("process {}", one.pid)),
        [] => Check::fail(
            "api-server-process",
            "no process was started with the manifest's --etcd-servers, --secure-port and --advertise-address",
            "wait until the kubelet has started it, or see why it does not",
        ),
        several => Check::fail(
            "api-server-process",
            format!(
                "{} processes: {}",
                several.len(),
                several.iter().map(|p| p.pid.to_string()).collect::<Vec<_>>().join(" ")
            ),
            "stop the ones that the kubelet did not start",
        ),
    }
}

fn api_server_ready(facts: &facts::Store) -> Check {
    match api_server(&facts.api_server) {
        Err(why) => Check::unknown("api-server", why),
        Ok(api) => match &api.ready {
            Ok(()) => Check::pass(
                "api-server",
                api.endpoint
                    .as_ref()
                    .map_or("ready".to_owned(), |endpoint| format!("ready at {}", endpoint.address)),
            ),
            Err(why) => Check::fail("api-server", why, "a move begins only with a cluster that works"),
        },
    }
}
