//! Steps that only wait: until a process is gone, until a program succeeds.

use std::time::Duration;

use super::programs::Limit;
use super::{Context, Trouble, failed, programs, seconds};
use crate::plan::Process;

const POLL: Duration = Duration::from_millis(100);
/// How long what is ending may take to end before its file is given back all the same: the kubelet's grace, and some.
const SETTLES_WITHIN: Duration = Duration::from_secs(35);
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

pub(super) fn gone(
    context: &mut Context<'_>,
    process: &Process,
    timeout_s: u32,
    term_after_s: Option<u32>,
    quiet_ms: u32,
) -> Result<(), Trouble> {
    let began = context.system.now();
    let quiet = Duration::from_millis(quiet_ms.into());
    let mut last_seen = began;
    let mut asked = Vec::new();
    loop {
        let found = context.system.processes(process)?;
        let now = context.system.now();
        let stands = found.is_empty() && context.system.group_stands(process)?;
        if stands {
            last_seen = now;
        } else if found.is_empty() {
            if now - last_seen >= quiet {
                return Ok(());
            }
        } else {
            last_seen = now;
            if term_after_s.is_some_and(|after| now - began >= seconds(after)) {
                for pid in &found {
                    if !asked.contains(pid) {
                        context
                            .observer
                            .line(context.step, &format!("asking process {} to end", pid.pid));
                        context.system.terminate(*pid)?;
                        asked.push(*pid);
                    }
                }
            }
        }
        if now - began >= seconds(timeout_s) && stands {
            return failed(format!(
                "{} has ended, but {} is still there after {timeout_s} s: something of its pod goes on",
                process.program,
                process.group.as_deref().unwrap_or(std::path::Path::new("")).display()
            ));
        }
        if now - began >= seconds(timeout_s) {
            let pids: Vec<String> = found.iter().map(|pid| pid.pid.to_string()).collect();
            return failed(format!(
                "{} has not ended within {timeout_s} s: process {}",
                process.program,
                pids.join(", ")
            ));
        }
        if context.heed.heeds(context.system.interrupt()) {
            return Err(Trouble::Interrupted);
        }
        context.system.sleep(POLL);
    }
}

/// Gives a process that may be ending the time to end, with all of its pod. One that stays is no error.
pub(super) fn settle(context: &mut Context<'_>, process: &Process) -> Result<(), Trouble> {
    let end = context.system.now() + SETTLES_WITHIN;
    while context.system.now() < end
        && (context.system.group_stands(process)? || !context.system.processes(process)?.is_empty())
    {
        if context.heed.heeds(context.system.interrupt()) {
            return Err(Trouble::Interrupted);
        }
        context.system.sleep(POLL);
    }
    Ok(())
}

pub(super) fn probe(context: &mut Context<'_>, argv: &[String], timeout_s: u32) -> Result<(), Trouble> {
    let end = context.system.now() + seconds(timeout_s);
    loop {
        let left = end.saturating_sub(context.system.now()).max(POLL);
        let Err((message, exit)) = programs::call(context, argv, Limit::Within(left), context.heed)? else {
            return Ok(());
        };
        if context.system.now() + BETWEEN_TRIES >= end {
            return Err(Trouble::Failed {
                message: format!("not within {timeout_s} s: {message}"),
                exit,
            });
        }
        if context.heed.heeds(context.system.interrupt()) {
            return Err(Trouble::Interrupted);
        }
        context.system.sleep(BETWEEN_TRIES);
    }
}
