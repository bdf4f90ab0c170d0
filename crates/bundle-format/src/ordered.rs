//! Work on all cores whose results are taken in order, with a bound on how far the workers run ahead.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

struct State<T, E> {
    next_claimed: usize,
    next_taken: usize,
    ready: BTreeMap<usize, Result<T, E>>,
    stopped: bool,
}

struct Shared<T, E> {
    state: Mutex<State<T, E>>,
    changed: Condvar,
}

impl<T, E> Shared<T, E> {
    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// Wakes everyone where a thread ends, also by a panic, so that none waits for it for ever.
struct StopOnDrop<'a, T, E>(&'a Shared<T, E>, bool);

impl<T, E> Drop for StopOnDrop<'_, T, E> {
    fn drop(&mut self) {
        if self.1 || std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// Runs pieces `0..count` on `jobs` threads and takes their results in order on this one. `worker` makes each thread's
/// own function. At most `jobs + spare` pieces are in work or wait at a time: memory is bounded by that. The first
/// error, in order, ends it.
pub(crate) fn ordered<T, E, W>(
    jobs: usize,
    spare: usize,
    count: usize,
    worker: impl Fn() -> W + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E>
where
    T: Send,
    E: Send,
    W: FnMut(usize) -> Result<T, E>,
{
    let jobs = jobs.clamp(1, count.max(1));
    let ahead = jobs + spare.max(1);
    let shared = Shared {
        state: Mutex::new(State {
            next_claimed: 0,
            next_taken: 0,
            ready: BTreeMap::new(),
            stopped: false,
        }),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&shared, true);
        for _ in 0..jobs {
            scope.spawn(|| {
                let _stop = StopOnDrop(&shared, false);
                let mut work = worker();
                loop {
                    let mut state = shared.lock();
                    while !state.stopped && state.next_claimed < count && state.next_claimed >= state.next_taken + ahead
                    {
                        state = shared
                            .changed
                            .wait(state)
                            .unwrap_or_else(|poisoned| poisoned.into_inner());
                    }
                    if state.stopped || state.next_claimed >= count {
                        return;
                    }
                    let piece = state.next_claimed;
                    state.next_claimed += 1;
                    drop(state);
                    let result = work(piece);
                    shared.lock().ready.insert(piece, result);
                    shared.changed.notify_all();
                }
            });
        }
        for piece in 0..count {
            let mut state = shared.lock();
            let result = loop {
                if let Some(result) = state.ready.remove(&piece) {
                    break result;
                }
                assert!(!state.stopped, "a worker panicked");
                state = shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(|poisoned| poisoned.into_inner());
            };
            drop(state);
            take(piece, result?)?;
            shared.lock().next_taken = piece + 1;
            shared.changed.notify_all();
        }
        Ok(())
    })
}

/// Buffers that go from a worker to the taker and back, so that each piece finds memory that is there already.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<Vec<u8>>>);

impl Pool {
    /// A buffer with whatever is left in it.
    pub fn get(&self) -> Vec<u8> {
        self.lock().pop().unwrap_or_default()
    }

    pub fn put(&self, buffer: Vec<u8>) {
        self.lock().push(buffer);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_order_and_the_window_is_kept() {
        for jobs in [1, 2, 7] {
            let (made, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let mut seen = Vec::new();
            ordered(
                jobs,
                1,
                200,
                || {
                    |piece: usize| {
                        let ahead = made.fetch_add(1, Ordering::SeqCst) + 1 - taken.load(Ordering::SeqCst);
                        assert!(ahead <= jobs + 2, "{ahead} ahead with {jobs} jobs");
                        Ok::<_, ()>(piece)
                    }
                },
                |index, piece| {
                    assert_eq!(index, piece);
                    taken.fetch_add(1, Ordering::SeqCst);
                    seen.push(piece);
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(seen, (0..200).collect::<Vec<_>>());
        }
        ordered(3, 1, 0, || |_| Ok::<(), ()>(()), |_, ()| panic!("nothing to take")).unwrap();
    }

    #[test]
    fn the_first_error_in_order_wins() {
        for _ in 0..50 {
            let work = || |piece: usize| if piece >= 5 { Err(piece) } else { Ok(()) };
            assert_eq!(ordered(4, 1, 100, work, |_, ()| Ok(())), Err(5));
            assert_eq!(
                ordered(4, 1, 100, || Ok, |index, _| if index == 3 { Err(3) } else { Ok(()) }),
                Err(3)
            );
        }
    }

    #[test]
    #[should_panic]
    fn a_panic_in_a_worker_is_no_hang() {
        let work = || {
            |piece: usize| {
                if piece == 2 {
                    panic!("on purpose")
                } else {
                    Ok::<(), ()>(())
                }
            }
        };
        let _ = ordered(2, 1, 10, work, |_, ()| Ok(()));
    }
}
