//! Progress of long work, and its end where the user wants it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quantykube_base::{Progress, Reporter, Unit};
use quantykube_bundle_format::Watcher;

/// Set by INT and TERM.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on INT and TERM end the work in order, so that no temporary file is left. A second one ends it at once.
    pub fn on_signals() -> Stop {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ] {
            // Without a handler the signal ends the process as it always does.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&flag));
            let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
        }
        Stop(flag)
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Shows one piece of work.
pub struct Shown<'a> {
    what: &'static str,
    report: &'a Reporter,
    stop: Stop,
    progress: Option<Progress>,
}

impl<'a> Shown<'a> {
    pub fn new(report: &'a Reporter, what: &'static str, stop: &Stop) -> Shown<'a> {
        Shown {
            what,
            report,
            stop: stop.clone(),
            progress: None,
        }
    }

    /// Says the sum.
    pub fn finish(self) {
        if let Some(progress) = self.progress {
            progress.finish();
        }
    }
}

impl Watcher for Shown<'_> {
    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        let begin = || self.report.progress(self.what, Unit::Bytes, Some(total));
        self.progress.get_or_insert_with(begin).set(done, "");
        match self.stop.is_set() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}
