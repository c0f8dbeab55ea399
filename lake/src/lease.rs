//! Leases: runs that take turns on one storage, from whatever machine.
//!
//! A lease is politeness. Tables are right without it; it keeps runs from doing the same work twice at the same time. So
//! nothing here waits for anything that is uncertain: a holder that has not been heard of is passed over.
//!
//! A slot is a folder of numbered objects, of which the highest counts. It is taken by making the next one where none is,
//! which of several writers one can; its holder says again and again until when it counts, and at the end that it is
//! over. Nothing is ever taken away before a higher one is there, so who looked at an old one comes too late: it finds its
//! number taken, or, when that was removed meanwhile, a higher one beside it.

use std::convert::Infallible;
use std::fs;

use chrono::{DateTime, TimeDelta, Utc};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::names::RunId;

/// The folder of the leases below the storage root.
pub(crate) const FOLDER: &str = "_state/leases";
/// What the names of the slots of runs begin with.
const RUN: &str = "run-";
/// The slot of repairs.
const REPAIR: &str = "repair";
/// How long a lease counts after its holder was last heard of.
const COUNTS_FOR: TimeDelta = TimeDelta::seconds(60);
/// How often a holder is heard of.
const BEAT: std::time::Duration = std::time::Duration::from_secs(15);
/// How often the next number is tried for while others are faster.
const ATTEMPTS_MAX: u32 = 5;

/// Who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The run.
    pub run: String,
    /// What runs: `run`, `repair`, `backfill`.
    pub what: String,
    /// The name of the machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// From when on.
    pub since: DateTime<Utc>,
    /// Tells machines and containers apart, where that can be known.
    machine: Option<String>,
    /// Tells processes apart that have the same number one after the other.
    process: Option<String>,
}

/// One object of a slot.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    holder: Holder,
    counts_until: DateTime<Utc>,
    is_over: bool,
}

/// A lease that is held.
#[derive(Debug)]
pub struct Lease {
    lake: Lake,
    path: Path,
    holder: Holder,
}

/// The answer to who asks for a lease.
#[derive(Debug)]
pub enum Answer {
    /// It is held now.
    Held(Lease),
    /// All are held by others.
    Busy(Vec<Holder>),
}

impl Lease {
    /// Asks for one of `slots` leases to run, for a run by what it is called.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the store fails.
    pub async fn ask(lake: &Lake, slots: u16, run: &RunId, what: &str) -> Result<Answer> {
        let holder = Holder::this(run, what, lake.clock().now());
        let mut others = Vec::new();
        for slot in 1..=slots.max(1) {
            match take(lake, &format!("{RUN}{slot}"), &holder).await? {
                Ok(lease) => return Ok(Answer::Held(lease)),
                Err(other) => others.push(other),
            }
        }
        Ok(Answer::Busy(others))
    }

    /// Asks for the lease to repair, of which there is one: two repairs of a run would both go on where its record ended.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the store fails.
    pub async fn ask_to_repair(lake: &Lake, run: &RunId) -> Result<Answer> {
        let holder = Holder::this(run, "repair", lake.clock().now());
        Ok(match take(lake, REPAIR, &holder).await? {
            Ok(lease) => Answer::Held(lease),
            Err(other) => Answer::Busy(vec![other]),
        })
    }

    /// The leases to run that are held now.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the store fails.
    pub async fn holders(lake: &Lake) -> Result<Vec<Holder>> {
        if lake.alone().is_some() {
            return Ok(Vec::new());
        }
        let listed = lake.root().store().list_with_delimiter(Some(&FOLDER.into())).await?;
        let mut holders = Vec::new();
        let is_run = |slot: &Path| slot.filename().is_some_and(|name| name.starts_with(RUN));
        for slot in listed.common_prefixes.into_iter().filter(is_run) {
            let last = numbers(lake, &slot).await?.into_iter().max().unwrap_or(0);
            let newest = read(lake, &slot, last).await?;
            holders.extend(newest.filter(|entry| entry.counts(lake.clock().now())).map(|entry| entry.holder));
        }
        Ok(holders)
    }

    /// Says again and again that the holder is there, for as long as this is waited for. What cannot be said is no harm.
    pub async fn beat(&self) -> Infallible {
        loop {
            self.lake.clock().beat(BEAT).await;
            if let Err(error) = self.tell(false).await {
                tracing::debug!(%error, "a lease was not renewed");
            }
        }
    }

    /// Gives the lease back. One that cannot be given back runs out by itself.
    pub async fn release(self) {
        if let Err(error) = self.tell(true).await {
            tracing::debug!(%error, "a lease was not given back");
        }
    }

    async fn tell(&self, is_over: bool) -> Result<()> {
        let counts_until = self.lake.clock().now() + COUNTS_FOR;
        let entry = Entry { holder: self.holder.clone(), counts_until, is_over };
        // Who came later has made a higher one and removed this, which then comes again: the higher one counts.
        self.lake.root().store().put(&self.path, entry.to_bytes()?.into()).await?;
        Ok(())
    }
}

impl Holder {
    fn this(run: &RunId, what: &str, since: DateTime<Utc>) -> Self {
        let pid = std::process::id();
        Self {
            run: run.to_string(),
            what: what.to_owned(),
            host: host(),
            pid,
            since,
            machine: machine(),
            process: process(pid),
        }
    }

    /// True when it is known that the process is not there any more.
    fn is_gone(&self) -> bool {
        self.machine.is_some()
            && self.machine == machine()
            && self.process.is_some()
            && self.process != process(self.pid)
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { run, host, pid, since, .. } = self;
        write!(f, "run {run} (process {pid} on {host}, since {})", since.format("%H:%M:%S UTC"))
    }
}

impl Entry {
    fn counts(&self, now: DateTime<Utc>) -> bool {
        !self.is_over && now < self.counts_until && !self.holder.is_gone()
    }

    fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::internal("a lease cannot be written").with_source(error))
    }
}

/// Takes a slot, or says who holds it.
async fn take(lake: &Lake, slot: &str, holder: &Holder) -> Result<Result<Lease, Holder>> {
    let folder = Path::from(format!("{FOLDER}/{slot}"));
    for attempt in 1.. {
        let numbers = numbers(lake, &folder).await?;
        let last = numbers.iter().max().copied().unwrap_or(0);
        if let Some(entry) = read(lake, &folder, last).await?
            && (entry.counts(lake.clock().now()) || attempt > ATTEMPTS_MAX)
        {
            return Ok(Err(entry.holder));
        }
        match claim(lake, &folder, &numbers, holder).await? {
            Some(lease) => return Ok(Ok(lease)),
            None if attempt <= ATTEMPTS_MAX => {}
            None => {
                let message = "another run was faster each time a lease was asked for";
                return Err(Error::new(ErrorKind::Store, message));
            }
        }
    }
    Err(Error::internal("the loop for a lease ended without an answer"))
}

/// Takes a slot that had these objects, none of which counts; `None` when another has taken it since.
async fn claim(lake: &Lake, folder: &Path, numbers: &[u64], holder: &Holder) -> Result<Option<Lease>> {
    let store = lake.root().store();
    let number = numbers.iter().max().copied().unwrap_or(0) + 1;
    let path = object(folder, number);
    let counts_until = lake.clock().now() + COUNTS_FOR;
    let entry = Entry { holder: holder.clone(), counts_until, is_over: false };
    let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match store.put_opts(&path, entry.to_bytes()?.into(), create).await {
        Ok(_) => {}
        Err(object_store::Error::AlreadyExists { .. }) => return Ok(None),
        // A store that cannot make an object only where none is: then two may run side by side.
        Err(object_store::Error::NotImplemented { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    // The number may have been taken and removed since the slot was looked at: a higher one is there then.
    if self::numbers(lake, folder).await?.into_iter().any(|other| other > number) {
        let _ = store.delete(&path).await;
        return Ok(None);
    }
    for old in numbers {
        // What stays is no harm: it is not the highest.
        let _ = store.delete(&object(folder, *old)).await;
    }
    Ok(Some(Lease { lake: lake.clone(), path, holder: holder.clone() }))
}

/// What an object of a slot says; `None` when there is none, or it says nothing.
async fn read(lake: &Lake, folder: &Path, number: u64) -> Result<Option<Entry>> {
    if number == 0 {
        return Ok(None);
    }
    match lake.root().store().get(&object(folder, number)).await {
        Ok(found) => Ok(serde_json::from_slice(&found.bytes().await?).ok()),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The numbers of the objects of a slot, from 1 on.
async fn numbers(lake: &Lake, folder: &Path) -> Result<Vec<u64>> {
    let files: Vec<_> = lake.root().store().list(Some(folder)).try_collect().await?;
    let number = |path: &Path| path.filename()?.strip_suffix(".json")?.parse().ok();
    Ok(files.iter().filter_map(|file| number(&file.location)).collect())
}

fn object(folder: &Path, number: u64) -> Path {
    folder.clone().join(format!("{number:020}.json"))
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_else(|| "this machine".to_owned())
}

/// This start of this machine, and the processes that see one another there.
fn machine() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let processes = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), processes.display()))
}

/// When a process was started, in the kernel's own count; `None` when there is no such process.
fn process(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_dead = matches!(fields.next(), Some("Z" | "X"));
    fields.nth(18).filter(|_| !is_dead).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::location::Root;

    struct Place {
        _folder: tempfile::TempDir,
        lake: Lake,
    }

    fn place() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::open(folder.path().to_str().expect("UTF-8"), folder.path()).expect("a root");
        let clock = Clock::manual("2024-05-01T10:15:00Z".parse().expect("a time"));
        Place { lake: Lake::new(root, clock, Default::default()), _folder: folder }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
    }

    async fn ask(lake: &Lake, slots: u16) -> Result<Lease, Vec<String>> {
        let run = RunId::new(lake.clock());
        match Lease::ask(lake, slots, &run, "run").await.expect("an answer") {
            Answer::Held(lease) => Ok(lease),
            Answer::Busy(others) => Err(others.into_iter().map(|other| other.run).collect()),
        }
    }

    #[test]
    fn a_slot_is_held_by_one_until_it_is_given_back() {
        let Place { lake, _folder } = place();
        block_on(async {
            let first = ask(&lake, 1).await.expect("a lease");
            assert_eq!(ask(&lake, 1).await.expect_err("busy"), std::slice::from_ref(&first.holder.run));
            assert_eq!(Lease::holders(&lake).await.expect("holders"), std::slice::from_ref(&first.holder));
            let second = ask(&lake, 2).await.expect("another slot");
            assert_eq!(ask(&lake, 2).await.expect_err("busy").len(), 2);
            first.release().await;
            let third = ask(&lake, 2).await.expect("the first slot");
            assert_eq!(Lease::holders(&lake).await.expect("holders").len(), 2);
            second.release().await;
            third.release().await;
            assert_eq!(Lease::holders(&lake).await.expect("holders"), []);
        });
    }

    #[test]
    fn a_holder_that_is_not_heard_of_is_passed_over_and_cannot_come_back() {
        let Place { lake, _folder } = place();
        block_on(async {
            let silent = ask(&lake, 1).await.expect("a lease");
            lake.clock().sleep(std::time::Duration::from_secs(59)).await;
            assert!(ask(&lake, 1).await.is_err());
            silent.tell(false).await.expect("a beat");
            lake.clock().sleep(std::time::Duration::from_secs(59)).await;
            assert!(ask(&lake, 1).await.is_err(), "it was heard of");
            lake.clock().sleep(std::time::Duration::from_secs(1)).await;
            let next = ask(&lake, 1).await.expect("it has run out");
            silent.release().await;
            assert_eq!(ask(&lake, 1).await.expect_err("busy"), std::slice::from_ref(&next.holder.run));
        });
    }

    #[test]
    fn who_looked_long_ago_does_not_take_a_number_that_was_taken_and_removed() {
        let Place { lake, _folder } = place();
        block_on(async {
            let first = ask(&lake, 1).await.expect("a lease");
            first.release().await;
            let folder = Path::from(format!("{FOLDER}/run-1"));
            let seen = numbers(&lake, &folder).await.expect("numbers");
            // Meanwhile the next two have come, and one of them has gone.
            ask(&lake, 1).await.expect("a lease").release().await;
            let third = ask(&lake, 1).await.expect("a lease");
            assert!(claim(&lake, &folder, &seen, &this()).await.expect("an answer").is_none());
            assert_eq!(Lease::holders(&lake).await.expect("holders"), std::slice::from_ref(&third.holder));
            assert_eq!(numbers(&lake, &folder).await.expect("numbers").len(), 1);
            // What the one who was passed over still says is of no account.
            third.release().await;
            ask(&lake, 1).await.expect("it was given back");
        });
    }

    #[test]
    fn of_many_that_ask_at_once_one_gets_a_slot() {
        let Place { lake, _folder } = place();
        block_on(async {
            for round in 0..10 {
                let asked = futures::future::join_all((0..8).map(|_| ask(&lake, 1))).await;
                let mut held: Vec<Lease> = asked.into_iter().filter_map(Result::ok).collect();
                assert_eq!(held.len(), 1, "in round {round}");
                // In turn it is given back, and runs out.
                match held.pop().filter(|_| round % 2 == 0) {
                    Some(lease) => lease.release().await,
                    None => lake.clock().sleep(std::time::Duration::from_secs(61)).await,
                }
            }
        });
    }

    #[test]
    fn a_process_that_is_gone_holds_nothing() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let gone = Holder { pid: child.id(), process: process(child.id()), ..this() };
        assert!(!gone.is_gone());
        child.kill().expect("a kill");
        child.wait().expect("an end");
        assert!(gone.is_gone() || gone.process.is_none());
        let elsewhere = Holder { machine: Some("another".to_owned()), ..gone };
        assert!(!elsewhere.is_gone(), "nobody knows");
        assert!(!this().is_gone());
    }

    fn this() -> Holder {
        let clock = Clock::manual(DateTime::UNIX_EPOCH);
        Holder::this(&RunId::new(&clock), "run", clock.now())
    }
}
