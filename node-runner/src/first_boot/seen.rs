//! Looks at the node for the decision, and notes how far kubeadm has come.

use std::path::Path;

use quantykube_base::Failure;
use quantykube_journal::system::{Meta, SystemError};
use quantykube_journal::{Journals, System};

use super::{Cluster, Init, Open, Role, Seen, outcome};
use crate::facts::Known;
use crate::moves::places;
use crate::moves::store::NAME;

/// What a node has that joined a cluster, or was made one.
const KUBELET: &str = "/etc/kubernetes/kubelet.conf";
/// What, of these, only a control-plane node has; kubeadm writes them before any manifest.
const CONTROL_PLANE: [&str; 2] = ["/etc/kubernetes/admin.conf", "/etc/kubernetes/pki/ca.key"];
/// The container runtime's socket, as containerd's packages have it.
const RUNTIME: &str = "/run/containerd/containerd.sock";
const BEGUN: &str = "init-begun";
const DONE: &str = "init-done";

/// Looks. `manifest` is where the API server's would be; `ready` asks the API server that it names.
///
/// # Errors
/// A journal or a folder that cannot be read.
pub fn look(
    system: &dyn System,
    journals: &Journals,
    manifest: &Path,
    role: Role,
    kubeadm: bool,
    ready: &mut dyn FnMut() -> Known<()>,
) -> Result<Seen, Failure> {
    let there = |path: &Path| -> Result<bool, Failure> { Ok(system.look(path).map_err(|e| failure(&e))?.is_some()) };
    let open = journals.open_move(system).map_err(|error| error.failure())?;
    let installed = journals.in_force(system, NAME).map_err(|error| error.failure())?;
    let mut control_plane = false;
    for path in CONTROL_PLANE {
        control_plane |= there(Path::new(path))?;
    }
    let cluster = match there(manifest)? {
        true => Cluster::ControlPlane(ready()),
        false if control_plane => Cluster::Rising,
        false if there(Path::new(KUBELET))? => Cluster::Worker,
        false => Cluster::None,
    };
    let noted = |name: &str| there(&Path::new(places::FIRST_BOOT).join(name));
    let init = match (noted(DONE)?, noted(BEGUN)?) {
        (true, _) => Init::Done,
        (false, true) => Init::Begun,
        (false, false) if kubeadm => Init::Asked,
        (false, false) => Init::NotAsked,
    };
    Ok(Seen {
        role,
        cluster,
        init,
        runtime: there(Path::new(RUNTIME))?,
        installed: installed.map(|journal| journal.id),
        open: open.map(|journal| Open {
            id: journal.id,
            stuck: journal.stuck,
        }),
        refusals: 0,
        late: false,
    })
}

/// Notes, durably, that `kubeadm init` begins, or that it ended well.
///
/// # Errors
/// As the machine's.
pub fn note_init(system: &mut dyn System, ended: bool) -> Result<(), SystemError> {
    outcome::folders(system)?;
    let folder = Path::new(places::FIRST_BOOT);
    let path = folder.join(if ended { DONE } else { BEGUN });
    if system.look(&path)?.is_none() {
        system.create(&path, b"", &Meta::mode(0o600))?;
        system.sync(&path)?;
    }
    system.sync_dir(folder)
}

/// A node that cannot be looked at.
pub fn failure(error: &SystemError) -> Failure {
    Failure::new(quantykube_base::Exit::Failed, "first-boot", error.full())
}
