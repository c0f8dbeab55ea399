//! Files become parts, on threads that may block.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use lake::Error;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::lanes::Load;
use super::{Failed, Reading, failed, guarded};
use crate::append::open::{Fault, OpenFile};
use crate::decode::{Counts, Part, refused};
use crate::ledger::Status;
use crate::spec::BadRecords;

/// Parts of a file that are held back until more come or the file has ended well. A small file that is broken then
/// leaves no rows behind.
const PARTS_HELD: usize = 4;

/// Decoders at most: they find records far faster than lanes encode them.
const DECODERS_MAX: usize = 16;

/// Starts the decoders; each takes the next file until there is none.
pub(super) fn start(pass: &Arc<Reading>, threads: usize, sender: mpsc::Sender<Load>) -> JoinSet<()> {
    let mut decoders = JoinSet::new();
    for _ in 0..threads.min(DECODERS_MAX).min(pass.origins.len()) {
        let (pass, sender, handle) = (Arc::clone(pass), sender.clone(), Handle::current());
        decoders.spawn_blocking(move || {
            loop {
                let index = pass.next.fetch_add(1, Ordering::SeqCst);
                if index >= pass.origins.len() {
                    return;
                }
                if !pass.is_over() {
                    file(&pass, index, &sender, &handle);
                }
                // Also when the reading is over: another decoder may wait for this turn.
                pass.turns.pass(index);
            }
        });
    }
    decoders
}

/// Files have their turns in order: a file's columns join the table when those of all files before it have joined.
pub(super) struct Turns {
    state: Mutex<(Vec<bool>, usize)>,
    moved: Condvar,
}

impl Turns {
    pub(super) fn new(files: usize) -> Self {
        Self { state: Mutex::new((vec![false; files], 0)), moved: Condvar::new() }
    }

    /// Waits until every file before has had its turn.
    fn wait(&self, index: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.moved.wait_while(state, |(_, next)| *next < index);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The file has had its turn, or needs none.
    fn pass(&self, index: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (passed, next) = &mut *state;
        passed[index] = true;
        while passed.get(*next) == Some(&true) {
            *next += 1;
        }
        self.moved.notify_all();
    }
}

/// Reads one file to its end, and notes how it ended.
fn file(pass: &Reading, index: usize, sender: &mpsc::Sender<Load>, handle: &Handle) {
    let mut outlet = Outlet { pass, index, sender, began: false };
    let end = match guarded(|| Ok(decode(&mut outlet, handle))).unwrap_or_else(|error| Err(error.into())) {
        Ok(counts) => Ok(counts),
        Err(Fault::Gone(reason)) => Err(Failed { status: Status::Gone, reason: reason.to_owned() }),
        Err(Fault::Failed(error)) => match failed(error) {
            Ok(failed) => Err(failed),
            Err(error) => return pass.stop(error),
        },
    };
    if end.is_err() && outlet.began {
        pass.spoil();
    }
    pass.end(index, end);
}

fn decode(outlet: &mut Outlet<'_>, handle: &Handle) -> Result<Counts, Fault> {
    let (job, origin) = (&outlet.pass.job, &outlet.pass.origins[outlet.index]);
    let mut file = OpenFile::open(&job.landing, &origin.file, handle)?;
    let mut decoder = file.decoder(&job.plan.format)?;
    let (mut held, mut met) = (Vec::new(), false);
    while let Some(part) = decoder.next_part()? {
        job.ctx.stop.check()?;
        if !std::mem::replace(&mut met, true) {
            outlet.pass.meet(outlet.index, decoder.header())?;
        }
        let fails = job.plan.bad_records == BadRecords::Fail;
        if let Some(reject) = part.rejects().first().filter(|_| fails) {
            return Err(refused(format!("record {}: {}", reject.row_number, reject.reason)).into());
        }
        held.push(part);
        if outlet.began || held.len() > PARTS_HELD {
            held.drain(..).try_for_each(|part| outlet.send(part))?;
        }
    }
    if !met {
        outlet.pass.meet(outlet.index, decoder.header())?;
    }
    file.check_unchanged()?;
    held.drain(..).try_for_each(|part| outlet.send(part))?;
    Ok(decoder.counts())
}

/// Where the parts of one file go.
struct Outlet<'a> {
    pass: &'a Reading,
    index: usize,
    sender: &'a mpsc::Sender<Load>,
    began: bool,
}

impl Outlet<'_> {
    fn send(&mut self, part: Part) -> Result<(), Fault> {
        let load = if self.began {
            Load::Part(self.index, part)
        } else {
            // The first rows of a file bring its columns, in its turn.
            self.pass.turns.wait(self.index);
            self.began = true;
            let rows = self.pass.place(self.index, || part.into_chunk())?;
            self.pass.turns.pass(self.index);
            Load::Rows(self.index, rows)
        };
        let sent = self.sender.blocking_send(load);
        sent.map_err(|_| Error::internal("the rows of a file are not wanted any more").into())
    }
}
