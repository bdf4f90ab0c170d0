//! The writer: takes what is queued, writes it, syncs once, and tells everyone: group commit.
//!
//! Everything that changes the file goes through it in the order it was queued, log and background work alike. The
//! queue's lock is never held over a write or a sync, and a queueing owner makes a system call only when the writer
//! sleeps. After a failed write or sync nothing is written any more: a later sync that succeeds would prove nothing
//! about the pages that failed.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::Failure;
use crate::layout::{MARK_AT, encode_mark};
use crate::{Disk, Durable, Error, Stats};

/// What is called after each sync.
pub type DurableHook = Box<dyn FnMut(Result<Durable, &Error>) + Send>;

/// One thing to do to the file.
#[derive(Debug)]
pub(crate) enum Job {
    /// A frame of the log (with its segment's header before it, if it is the first there).
    Frame {
        /// Offset in the file.
        at: u64,
        bytes: Bytes,
        seq: u64,
        /// The head revision once it is durable.
        revision: i64,
        /// Where the segment ends in the file if its space was never written before, else 0.
        fresh_until: u64,
    },
    /// Anything else that is written.
    Write { at: u64, bytes: Bytes },
}

/// The largest buffer that is gathered before a write; bigger pieces are written as they are.
const GATHER_BYTES: usize = 1 << 20;

/// Syncing what was written into space that is only reserved costs the file system a commit of its own journal, each
/// time; syncing what was written over does not. So a small group that enters such space takes this many zeros along,
/// and the groups after it write over them. A large group has no use for it: its bytes outweigh the journal's.
const ZEROS_AHEAD: u64 = 128 << 10;
const SMALL_GROUP: usize = 16 << 10;

#[derive(Debug, Default)]
struct Queue {
    jobs: Vec<Job>,
    sleeping: bool,
    closing: bool,
}

/// What the owner and the writer share.
pub(crate) struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    done: Condvar,
    seq: AtomicU64,
    revision: AtomicI64,
    /// Number of jobs whose effect is synced.
    jobs_synced: AtomicU64,
    has_failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
    hook: Mutex<Option<DurableHook>>,
    stats: Mutex<Stats>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// What is synced. The revision is read first: it may lag behind the sequence number, never lead.
    pub(crate) fn durable(&self) -> Durable {
        let revision = self.revision.load(Ordering::Acquire);
        let seq = self.seq.load(Ordering::Acquire);
        Durable { seq, revision }
    }

    pub(crate) fn jobs_synced(&self) -> u64 {
        self.jobs_synced.load(Ordering::Acquire)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.has_failed.load(Ordering::Acquire) {
            return Err(self.failure());
        }
        Ok(())
    }

    fn failure(&self) -> Error {
        match &*lock(&self.failure) {
            Some(failure) => failure.error(),
            None => Error::Io {
                what: "writing",
                source: std::io::Error::other("the writer has ended"),
            },
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        lock(&self.stats).clone()
    }

    pub(crate) fn count_checkpoint(&self) {
        lock(&self.stats).checkpoints += 1;
    }

    pub(crate) fn set_hook(&self, hook: DurableHook) {
        *lock(&self.hook) = Some(hook);
    }

    fn fail(&self, what: &'static str, error: &std::io::Error) {
        *lock(&self.failure) = Some(Failure::new(what, error));
        self.has_failed.store(true, Ordering::Release);
        lock(&self.queue).jobs.clear();
        if let Some(hook) = lock(&self.hook).as_mut() {
            hook(Err(&self.failure()));
        }
        self.done.notify_all();
    }
}

/// The writing side: what is left of a group when it is written.
struct Hand {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    buffer: Vec<u8>,
    buffer_at: u64,
    written: u64,
    /// Where in the file zeros were written ahead of the log.
    zeroed: std::ops::Range<u64>,
}

impl Hand {
    fn flush(&mut self) -> std::io::Result<()> {
        if !self.buffer.is_empty() {
            self.disk.write_at(self.buffer_at, &self.buffer)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    fn gather(&mut self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        let follows = at == self.buffer_at + self.buffer.len() as u64;
        if !follows || self.buffer.len() + bytes.len() > GATHER_BYTES {
            self.flush()?;
        }
        if bytes.len() > GATHER_BYTES / 2 {
            self.flush()?;
            self.disk.write_at(at, bytes)?;
            self.written += bytes.len() as u64;
            return Ok(());
        }
        if self.buffer.is_empty() {
            self.buffer_at = at;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn write(&mut self, jobs: &[Job]) -> std::io::Result<()> {
        for job in jobs {
            match job {
                Job::Frame { at, bytes, .. } | Job::Write { at, bytes } => self.gather(*at, bytes)?,
            }
        }
        if let Some(Job::Frame { fresh_until, .. }) = jobs.last() {
            self.write_ahead(*fresh_until);
        }
        self.flush()
    }

    /// Adds zeros behind the log's last frame, which ends the buffer, if the file's space there was never written.
    fn write_ahead(&mut self, fresh_until: u64) {
        let end = self.buffer_at + self.buffer.len() as u64;
        let small = (1..=SMALL_GROUP).contains(&self.buffer.len());
        if small && end < fresh_until && !self.zeroed.contains(&end) {
            self.zeroed = self.buffer_at..fresh_until.min(end + ZEROS_AHEAD);
            self.buffer.resize((self.zeroed.end - self.buffer_at) as usize, 0);
        }
    }

    /// Writes and syncs a group and tells it. False once it has failed.
    fn commit(&mut self, jobs: &[Job]) -> bool {
        self.written = 0;
        self.buffer.clear();
        if let Err(error) = self.write(jobs) {
            self.shared.fail("writing the store file", &error);
            return false;
        }
        let started = Instant::now();
        if let Err(error) = self.disk.sync_data() {
            self.shared.fail("syncing the store file", &error);
            return false;
        }
        {
            let mut stats = lock(&self.shared.stats);
            stats.add_sync(started.elapsed());
            stats.bytes_written += self.written;
        }
        let mut frames = false;
        for job in jobs {
            if let Job::Frame { seq, revision, .. } = job {
                self.shared.seq.store(*seq, Ordering::Release);
                self.shared.revision.store(*revision, Ordering::Release);
                frames = true;
            }
        }
        self.shared.jobs_synced.fetch_add(jobs.len() as u64, Ordering::AcqRel);
        if frames && let Some(hook) = lock(&self.shared.hook).as_mut() {
            hook(Ok(self.shared.durable()));
        }
        true
    }

    /// Leaves the evidence that everything written so far was synced.
    fn mark(&mut self) -> bool {
        let mark = encode_mark(self.shared.durable().seq);
        if let Err(error) = self.disk.write_at(MARK_AT, &mark) {
            self.shared.fail("writing the store file's mark", &error);
            return false;
        }
        true
    }
}

/// The owner's end of the writer.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    queued: u64,
    hand: Option<Hand>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the writer. `threaded` false: nothing happens before [`Writer::pump`], for tests that want an order.
    pub(crate) fn start(
        disk: Arc<dyn Disk>,
        durable: Durable,
        threaded: bool,
        idle: Duration,
    ) -> Result<Writer, Error> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
            seq: AtomicU64::new(durable.seq),
            revision: AtomicI64::new(durable.revision),
            jobs_synced: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            hook: Mutex::new(None),
            stats: Mutex::new(Stats::new()),
        });
        let hand = Hand {
            shared: Arc::clone(&shared),
            disk,
            buffer: Vec::new(),
            buffer_at: 0,
            written: 0,
            zeroed: 0..0,
        };
        if !threaded {
            return Ok(Writer {
                shared,
                queued: 0,
                hand: Some(hand),
                thread: None,
            });
        }
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || run(hand, idle))
            .map_err(Error::io("starting the writer thread"))?;
        Ok(Writer {
            shared,
            queued: 0,
            hand: None,
            thread: Some(thread),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Queues jobs in order and gives the ticket of the last: its effect is synced once [`Shared::jobs_synced`] has
    /// reached it.
    pub(crate) fn queue(&mut self, jobs: impl IntoIterator<Item = Job>) -> u64 {
        let mut queue = lock(&self.shared.queue);
        let before = queue.jobs.len();
        queue.jobs.extend(jobs);
        self.queued += (queue.jobs.len() - before) as u64;
        let wake = mem::take(&mut queue.sleeping);
        drop(queue);
        if wake {
            self.shared.wake.notify_one();
        }
        self.queued
    }

    /// The ticket of the last job queued.
    pub(crate) fn ticket(&self) -> u64 {
        self.queued
    }

    /// Waits until all that is queued is synced.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.pump();
        let mut queue = lock(&self.shared.queue);
        loop {
            self.shared.check()?;
            if self.shared.jobs_synced() >= self.queued {
                return Ok(());
            }
            queue = self.shared.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Without a thread: writes and syncs what is queued as one group.
    pub(crate) fn pump(&mut self) {
        let Some(hand) = &mut self.hand else {
            return;
        };
        let jobs = mem::take(&mut lock(&self.shared.queue).jobs);
        if !jobs.is_empty() && self.shared.check().is_ok() {
            hand.commit(&jobs);
        }
    }

    /// Writes and syncs what is queued, leaves the mark, and ends.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        if let Some(thread) = self.thread.take() {
            lock(&self.shared.queue).closing = true;
            self.shared.wake.notify_one();
            let ended = thread.join();
            self.shared.check()?;
            return ended.map_err(|_| self.shared.failure());
        }
        self.pump();
        self.shared.check()?;
        if let Some(mut hand) = self.hand.take() {
            hand.mark();
        }
        self.shared.check()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A store that was not closed still ends its thread; an error has been told to the hook.
        if self.thread.is_some() {
            let _ = self.close();
        }
    }
}

fn run(mut hand: Hand, idle: Duration) {
    let shared = Arc::clone(&hand.shared);
    let mut jobs = Vec::new();
    let mut marked = shared.durable().seq;
    loop {
        let mut queue = lock(&shared.queue);
        while queue.jobs.is_empty() && !queue.closing {
            queue.sleeping = true;
            let unmarked = shared.durable().seq > marked;
            if !unmarked {
                queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (woken, timeout) = shared
                .wake
                .wait_timeout(queue, idle)
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            if timeout.timed_out() && queue.jobs.is_empty() && !queue.closing {
                queue.sleeping = false;
                drop(queue);
                marked = shared.durable().seq;
                if !hand.mark() {
                    return;
                }
                queue = lock(&shared.queue);
            }
        }
        queue.sleeping = false;
        mem::swap(&mut queue.jobs, &mut jobs);
        drop(queue);
        if jobs.is_empty() {
            // Closing: the mark is for the next start; nothing acknowledged depends on it.
            hand.mark();
            return;
        }
        if !hand.commit(&jobs) {
            return;
        }
        jobs.clear();
        // Taken so that a waiter between its check and its wait is not missed.
        drop(lock(&shared.queue));
        shared.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;
    use std::sync::mpsc;

    fn frame(at: u64, seq: u64) -> Job {
        Job::Frame {
            at,
            bytes: Bytes::from(vec![seq as u8; 8]),
            seq,
            revision: seq as i64 * 10,
            fresh_until: 0,
        }
    }

    #[test]
    fn a_small_group_in_fresh_space_takes_zeros_along_once() {
        let disk = SimDisk::new();
        disk.allocate(0, 1 << 20).unwrap();
        disk.write_at(0, &[0xee; 1 << 20]).unwrap();
        let mut writer = start(&disk, false);
        let fresh = |at, len, fresh_until| Job::Frame {
            at,
            bytes: Bytes::from(vec![1; len]),
            seq: 1,
            revision: 1,
            fresh_until,
        };
        let mut write = |job| {
            let before = writer.shared().stats().bytes_written;
            writer.queue([job]);
            writer.flush().unwrap();
            writer.shared().stats().bytes_written - before
        };
        let ahead = ZEROS_AHEAD;
        assert_eq!(write(fresh(0, 512, 0)), 512, "written before");
        assert_eq!(write(fresh(512, 512, 1 << 20)), 512 + ahead);
        assert_eq!(write(fresh(1024, 512, 1 << 20)), 512, "zeros are there");
        let border = ahead + 1024 - 512;
        assert_eq!(write(fresh(border, 1024, 1 << 20)), 1024 + ahead, "across their end");
        let large = SMALL_GROUP + 512;
        assert_eq!(write(fresh(400 << 10, large, 1 << 20)), large as u64);
        assert_eq!(
            write(fresh((1 << 20) - 1024, 512, 1 << 20)),
            1024,
            "never beyond the segment"
        );
        let bytes = disk.bytes();
        assert_eq!(bytes[1024 + 512..border as usize], vec![0; border as usize - 1536]);
        let end = (border + 1024 + ahead) as usize;
        assert_eq!((bytes[end - 1], bytes[end]), (0, 0xee));
    }

    fn start(disk: &SimDisk, threaded: bool) -> Writer {
        let durable = Durable { seq: 0, revision: 0 };
        Writer::start(Arc::new(disk.clone()), durable, threaded, Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_group_is_one_write_and_one_sync() {
        let disk = SimDisk::new();
        let mut writer = start(&disk, false);
        writer.queue([frame(0, 1), frame(8, 2)]);
        writer.queue([frame(16, 3)]);
        assert_eq!(writer.shared().durable().seq, 0);
        writer.flush().unwrap();
        assert_eq!((disk.writes(), disk.syncs()), (1, 1));
        assert_eq!(writer.shared().durable(), Durable { seq: 3, revision: 30 });
        assert_eq!(disk.bytes()[..24], [[1; 8], [2; 8], [3; 8]].concat());
    }

    #[test]
    fn after_a_failed_sync_nothing_is_acknowledged_and_the_hook_hears_it_once() {
        let disk = SimDisk::new();
        disk.fail_at(1, 5);
        let mut writer = start(&disk, true);
        let (tell, told) = mpsc::channel();
        writer.shared().set_hook(Box::new(move |durable| {
            tell.send(durable.map_err(|error| error.to_string())).unwrap();
        }));
        writer.queue([frame(0, 1)]);
        let error = writer.flush().unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. } if source.raw_os_error() == Some(5)),
            "{error}"
        );
        assert!(disk.fired());
        writer.queue([frame(8, 2)]);
        assert!(writer.flush().is_err());
        assert!(writer.close().is_err());
        assert_eq!(writer.shared().durable().seq, 0);
        let heard: Vec<_> = told.try_iter().collect();
        assert_eq!(heard, [Err("syncing the store file failed".to_owned())]);
        assert_eq!(disk.syncs(), 1, "no second sync");
    }

    #[test]
    fn the_thread_tells_what_is_durable_and_close_waits() {
        let disk = SimDisk::new();
        let mut writer = start(&disk, true);
        let (tell, told) = mpsc::channel();
        writer
            .shared()
            .set_hook(Box::new(move |durable| tell.send(durable.unwrap()).unwrap()));
        for seq in 1..=100 {
            writer.queue([frame(seq * 8, seq)]);
        }
        writer.close().unwrap();
        let heard: Vec<_> = told.try_iter().collect();
        assert_eq!(
            heard.last(),
            Some(&Durable {
                seq: 100,
                revision: 1000
            })
        );
        assert!(heard.is_sorted_by_key(|durable| durable.seq));
        assert_eq!(disk.after_crash(crate::CrashKind::LoseAll)[800..], [100; 8]);
    }
}
