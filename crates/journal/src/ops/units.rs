//! The state of a systemd unit.

use super::{Context, Trouble, failed};
use crate::state::Before;

pub(super) fn bring(context: &mut Context<'_>, name: &str, enabled: bool, active: bool) -> Result<(), Trouble> {
    let state = context.system.unit(name)?;
    if !state.known {
        return failed(format!("systemd knows no unit {name}"));
    }
    // Also where it is so already: a crash may have come before it was durable.
    context.system.set_enabled(name, enabled)?;
    if active && !state.ready || !active && state.active {
        context.system.set_active(name, active)?;
    }
    Ok(())
}

pub(super) fn restore(context: &mut Context<'_>, name: &str, before: &Before) -> Result<(), Trouble> {
    let Before::Unit { state: old } = before else {
        return Ok(());
    };
    let state = context.system.unit(name)?;
    if !state.known {
        // Its file is gone: it cannot be enabled, and what still runs of it can only be stopped.
        if state.active && !old.active {
            context.system.set_active(name, false)?;
        }
        return Ok(());
    }
    if old.active && !state.ready || !old.active && state.active {
        context.system.set_active(name, old.active)?;
    }
    Ok(context.system.set_enabled(name, old.enabled)?)
}
