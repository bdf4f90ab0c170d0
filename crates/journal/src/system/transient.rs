//! A transient unit: a program that systemd runs beside whoever asked for it, so that it outlives them.
//!
//! `StartTransientUnit` of org.freedesktop.systemd1(5). The unit is forgotten as soon as it has ended, however it ended: a
//! failed one would leave the machine "degraded".

use std::io;
use std::time::Duration;

use zbus::Variant;

use super::systemd::{self, UnitProxy};

/// What a unit runs and how often it is started anew.
#[derive(Clone, Debug)]
pub struct Transient<'a> {
    /// Its name, with the suffix `.service`.
    pub name: &'a str,
    /// One line for people.
    pub description: &'a str,
    /// Program (absolute) and arguments. Anyone on the machine can read them.
    pub argv: &'a [String],
    /// How often it may start within [`Transient::within`], the first start included.
    pub starts: u32,
    /// See [`Transient::starts`].
    pub within: Duration,
    /// How long it has after TERM, when it is stopped.
    pub stop_timeout: Duration,
}

/// Whether a start was one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Begun {
    /// The program runs.
    Started,
    /// A unit of that name is there already.
    Exists,
}

/// Starts a unit and waits until its program was executed. It is started anew when it is killed or ends otherwise than by
/// an exit code of its own.
pub fn start(unit: &Transient<'_>) -> io::Result<Begun> {
    match start_as(unit, "exec") {
        // "Invalid Type setting: exec", from a systemd before 240. A program that cannot be executed then ends the unit
        // at once.
        Err(error) if error.to_string().contains("Type") => start_as(unit, "simple"),
        other => other,
    }
}

fn start_as(unit: &Transient<'_>, kind: &str) -> io::Result<Begun> {
    let command = vec![(unit.argv[0].clone(), unit.argv.to_vec(), false)];
    let micros = |time: Duration| Variant::U64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let properties: Vec<(&str, Variant<'_>)> = vec![
        ("Description", unit.description.into()),
        ("Type", kind.into()),
        ("ExecStart", command.into()),
        ("Restart", "on-abnormal".into()),
        ("RestartUSec", micros(Duration::from_millis(500))),
        ("StartLimitIntervalUSec", micros(unit.within)),
        ("StartLimitBurst", unit.starts.into()),
        ("CollectMode", "inactive-or-failed".into()),
        // TERM is for the program alone: it ends what it has started itself.
        ("KillMode", "mixed".into()),
        ("TimeoutStopUSec", micros(unit.stop_timeout)),
        ("OOMScoreAdjust", (-900i32).into()),
    ];
    systemd::with_manager(async |manager| {
        manager.subscribe().await?;
        let removed = manager.receive_job_removed().await?;
        let job = match manager.start_transient_unit(unit.name, "fail", &properties, &[]).await {
            Ok(job) => job,
            Err(zbus::Error::MethodError(name, ..)) if name.as_str() == "org.freedesktop.systemd1.UnitExists" => {
                return Ok(Begun::Exists);
            }
            Err(error) => return Err(error),
        };
        systemd::job_done(removed, &job, unit.name).await?;
        Ok(Begun::Started)
    })
}

/// Whether a unit runs, starts, stops or waits for its next start.
pub fn is_active(name: &str) -> io::Result<bool> {
    systemd::with_manager(async |manager| {
        // Loading it would make one that is gone come back, empty.
        let path = match manager.get_unit(name).await {
            Ok(path) => path,
            Err(zbus::Error::MethodError(error, ..)) if error.as_str() == "org.freedesktop.systemd1.NoSuchUnit" => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let unit = UnitProxy::builder(manager.inner().connection())
            .path(path)
            .build()
            .await?;
        Ok(!matches!(unit.active_state().await?.as_str(), "inactive" | "failed"))
    })
}

/// Sends a signal to the main process of a unit.
pub fn signal(name: &str, signal: i32) -> io::Result<()> {
    systemd::with_manager(async |manager| manager.kill_unit(name, "main", signal).await)
}
