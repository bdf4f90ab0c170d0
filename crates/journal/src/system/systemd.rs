//! systemd over D-Bus: `org.freedesktop.systemd1`, as documented in org.freedesktop.systemd1(5).
//!
//! Each call opens its own connection: between two of them hours may pass and the bus may have been started anew.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_stream::StreamExt;
use zbus::{OwnedObjectPath, Variant};

use super::{SystemError, UnitState};

/// systemd's own limits end a job long before; this one is for a manager that has stopped answering.
const JOB_TIMEOUT: Duration = Duration::from_secs(600);

/// Where the links of enabled units are.
const UNIT_FOLDER: &str = "/etc/systemd/system";

/// Name of the link, its kind, and what it pointed to: one change to the links of units.
type Change = (String, String, String);

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
pub(super) trait Manager {
    fn subscribe(&self) -> zbus::Result<()>;
    fn reload(&self) -> zbus::Result<()>;
    fn load_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    fn get_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: &[(&str, Variant<'_>)],
        auxiliary: &[(&str, &[(&str, Variant<'_>)])],
    ) -> zbus::Result<OwnedObjectPath>;
    fn kill_unit(&self, name: &str, whom: &str, signal: i32) -> zbus::Result<()>;
    fn get_unit_file_state(&self, file: &str) -> zbus::Result<String>;
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;
    fn enable_unit_files(&self, files: &[&str], runtime: bool, force: bool) -> zbus::Result<(bool, Vec<Change>)>;
    fn disable_unit_files(&self, files: &[&str], runtime: bool) -> zbus::Result<Vec<Change>>;
    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: OwnedObjectPath, unit: String, result: String) -> zbus::Result<()>;
}

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Unit",
    default_service = "org.freedesktop.systemd1"
)]
pub(super) trait Unit {
    #[zbus(property(emits_changed_signal = "false"))]
    fn active_state(&self) -> zbus::Result<String>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn load_state(&self) -> zbus::Result<String>;
}

pub(super) fn state(name: &str) -> Result<UnitState, SystemError> {
    with_manager(async |manager| {
        let path = manager.load_unit(name).await?;
        let unit = UnitProxy::builder(manager.inner().connection())
            .path(path)
            .build()
            .await?;
        let known = unit.load_state().await? == "loaded";
        let active = unit.active_state().await?;
        let enabled = match known {
            true => manager.get_unit_file_state(name).await? == "enabled",
            false => false,
        };
        let ready = active == "active" || active == "reloading";
        // A unit that waits for its next restart is activating.
        Ok(UnitState {
            known,
            enabled,
            active: ready || active == "activating" || active == "deactivating",
            ready,
        })
    })
    .map_err(SystemError::on("ask systemd for the state of", name))
}

pub(super) fn set_enabled(name: &str, enabled: bool) -> Result<(), SystemError> {
    with_manager(async |manager| {
        let changes = match enabled {
            true => manager.enable_unit_files(&[name], false, false).await?.1,
            false => manager.disable_unit_files(&[name], false).await?,
        };
        if !changes.is_empty() {
            manager.reload().await?;
        }
        Ok(())
    })
    // systemd makes and removes the links, but does not sync them.
    .and_then(|()| {
        link_folders()?
            .iter()
            .try_for_each(|folder| File::open(folder)?.sync_all())
    })
    .map_err(SystemError::on(if enabled { "enable" } else { "disable" }, name))
}

pub(super) fn set_active(name: &str, active: bool) -> Result<(), SystemError> {
    with_manager(async |manager| {
        manager.subscribe().await?;
        let removed = manager.receive_job_removed().await?;
        let job = match active {
            true => {
                // A unit that has failed too often is refused otherwise. One that is not loaded has nothing to forget.
                let _ = manager.reset_failed_unit(name).await;
                manager.start_unit(name, "replace").await?
            }
            false => manager.stop_unit(name, "replace").await?,
        };
        job_done(removed, &job, name).await
    })
    .map_err(SystemError::on(if active { "start" } else { "stop" }, name))
}

/// Waits for the end of a job.
pub(super) async fn job_done(mut removed: JobRemovedStream, job: &OwnedObjectPath, unit: &str) -> zbus::Result<()> {
    let result = tokio::time::timeout(JOB_TIMEOUT, async {
        while let Some(signal) = removed.next().await {
            let signal = signal.args()?;
            if signal.job == *job {
                return Ok(signal.result.clone());
            }
        }
        Err(zbus::Error::Failure("systemd went away".into()))
    });
    match result.await {
        Ok(Ok(result)) if result == "done" => Ok(()),
        Ok(Ok(result)) => Err(zbus::Error::Failure(format!(
            "its job ended with {result:?}; `journalctl -u {unit}` says more"
        ))),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(zbus::Error::Failure(format!(
            "its job has not ended within {} s",
            JOB_TIMEOUT.as_secs()
        ))),
    }
}

pub(super) fn reload() -> Result<(), SystemError> {
    with_manager(async |manager| manager.reload().await).map_err(SystemError::on("reload", "systemd"))
}

/// The folders in which links of enabled units may be.
fn link_folders() -> io::Result<Vec<PathBuf>> {
    let mut folders = vec![PathBuf::from(UNIT_FOLDER)];
    for entry in std::fs::read_dir(Path::new(UNIT_FOLDER))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if (name.ends_with(".wants") || name.ends_with(".requires")) && entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

pub(super) fn with_manager<T>(work: impl AsyncFnOnce(&ManagerProxy<'_>) -> zbus::Result<T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let connection = zbus::Connection::system().await?;
        let manager = ManagerProxy::new(&connection).await?;
        work(&manager).await
    });
    done.map_err(|error| io::Error::other(error.to_string()))
}
