//! Puts the events of a run in one order: starts tasks when those that they need have ended as they ask for, and there is
//! room; leaves out the others; and tells the observers. The only owner of the run's state.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lake::report::{TaskOutcome, TaskStatus};
use lake::run::{Meter, RunContext, task_span};
use lake::{Clock, Error, TableName};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{Id, JoinError, JoinSet};
use tracing::Instrument;

use super::executor::{Message, STOPPED, Unit, execute};
use super::room::{Room, Share};
use super::run_if::{Decision, Dependency};

/// Something that watches a run: progress for a person, records for the event log.
pub(crate) trait Observer: Send {
    /// The run waits for its turn until others have ended.
    fn waiting(&mut self, others: &str) {
        tracing::info!(others, "the run waits for its turn");
    }
    /// A task is started; its meter counts while it works.
    fn started(&mut self, task: &TableName, meter: &Meter);
    /// An attempt failed and another follows after `wait`.
    fn retrying(&mut self, task: &TableName, attempt: u32, wait: Duration, error: &Error);
    /// A task ended, or was not started.
    fn ended(&mut self, outcome: &TaskOutcome);
    /// The run was asked to stop while `running` tasks were at work.
    fn stopping(&mut self, running: usize);
}

/// Runs all units, side by side as there is room, and returns their outcomes in the order of the units.
///
/// `stop` is a channel on which one message ends the starting of tasks and raises the sign of the context.
pub(crate) async fn dispatch(
    units: Vec<Unit>,
    room: Room,
    context: &RunContext,
    clock: &Clock,
    stop: &mut UnboundedReceiver<()>,
    observers: &mut [&mut dyn Observer],
) -> Vec<TaskOutcome> {
    let order: Vec<TableName> = units.iter().map(|unit| unit.name.clone()).collect();
    let (tell, heard) = mpsc::unbounded_channel();
    let mut dispatcher = Dispatcher {
        room,
        context,
        clock,
        tell,
        waiting: units,
        running: BTreeMap::new(),
        ended: BTreeMap::new(),
        tasks: JoinSet::new(),
        executors: HashMap::new(),
        observers,
    };
    dispatcher.run(heard, stop).await;
    let mut ended = dispatcher.ended;
    order.iter().filter_map(|name| ended.remove(name)).collect()
}

struct Dispatcher<'a, 'o> {
    room: Room,
    context: &'a RunContext,
    clock: &'a Clock,
    tell: UnboundedSender<Message>,
    waiting: Vec<Unit>,
    running: BTreeMap<TableName, Share>,
    ended: BTreeMap<TableName, TaskOutcome>,
    tasks: JoinSet<()>,
    executors: HashMap<Id, TableName>,
    observers: &'a mut [&'o mut dyn Observer],
}

impl Dispatcher<'_, '_> {
    async fn run(&mut self, mut heard: UnboundedReceiver<Message>, stop: &mut UnboundedReceiver<()>) {
        loop {
            self.settle();
            if self.running.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                Some(message) = heard.recv() => self.take(message),
                Some(ended) = self.tasks.join_next() => self.joined(ended),
                Some(()) = stop.recv() => self.stop(),
            }
        }
    }

    /// Leaves out what is not run and starts what can run now, until neither is left.
    fn settle(&mut self) {
        while let Some((position, outcome)) = self.next_left_out() {
            self.waiting.remove(position);
            self.end(outcome);
        }
        let mut position = 0;
        while position < self.waiting.len() {
            let unit = &self.waiting[position];
            if self.has_ended_needs(unit) && self.room.take(unit.share) {
                let unit = self.waiting.remove(position);
                self.start(unit);
            } else {
                position += 1;
            }
        }
    }

    fn has_ended_needs(&self, unit: &Unit) -> bool {
        unit.needs.iter().all(|need| self.ended.contains_key(need))
    }

    /// A waiting task that is not run, and why.
    fn next_left_out(&self) -> Option<(usize, TaskOutcome)> {
        self.waiting.iter().enumerate().find_map(|(position, unit)| Some((position, self.left_out(unit)?)))
    }

    /// The outcome of a task that is not run: the run was stopped, or what it depends on did not end as it asks for.
    fn left_out(&self, unit: &Unit) -> Option<TaskOutcome> {
        let name = || unit.name.clone();
        if self.context.stop.is_raised() {
            return Some(TaskOutcome::skipped(name(), STOPPED));
        }
        if !self.has_ended_needs(unit) {
            return None;
        }
        let needs = unit.needs.iter().filter_map(|need| self.ended.get(need));
        let disabled = std::iter::repeat_n(Dependency::Disabled, unit.disabled_needs);
        let dependencies: Vec<Dependency> = needs.map(dependency).chain(disabled).collect();
        match unit.run_if.decide(&dependencies) {
            Decision::Run => None,
            Decision::Excluded(because) => Some(TaskOutcome::excluded(name(), because)),
            Decision::UpstreamFailed => Some(TaskOutcome::skipped(name(), self.failed_need(unit))),
        }
    }

    /// What a task depends on that failed, or was skipped for such a reason.
    fn failed_need(&self, unit: &Unit) -> String {
        let ended = |status| {
            let same = |need: &&TableName| self.ended.get(*need).is_some_and(|outcome| outcome.status == status);
            unit.needs.iter().find(same)
        };
        let failed = ended(TaskStatus::Failed).map(|need| format!("{need} failed"));
        let skipped = || ended(TaskStatus::Skipped).map(|need| format!("{need} was skipped"));
        failed.or_else(skipped).unwrap_or_else(|| "what it depends on failed".to_owned())
    }

    fn start(&mut self, unit: Unit) {
        let context = self.context.for_task();
        self.running.insert(unit.name.clone(), unit.share);
        for observer in self.observers.iter_mut() {
            observer.started(&unit.name, &context.meter);
        }
        let name = unit.name.clone();
        let (clock, tell, runtime) = (self.clock.clone(), self.tell.clone(), Handle::current());
        // A thread for each task: what a layer does between two waits may take long and holds up nobody else.
        let span = task_span(&name);
        let executor =
            self.tasks.spawn_blocking(move || runtime.block_on(execute(unit, context, clock, tell).instrument(span)));
        self.executors.insert(executor.id(), name);
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Retrying { task, attempt, wait, error } => {
                for observer in self.observers.iter_mut() {
                    observer.retrying(&task, attempt, wait, &error);
                }
            }
            Message::Ended { outcome } => {
                self.leave(&outcome.task);
                self.end(*outcome);
            }
        }
    }

    /// An executor is gone; one that panicked has sent no end.
    fn joined(&mut self, ended: Result<(), JoinError>) {
        let Err(panic) = ended else { return };
        let Some(task) = self.executors.get(&panic.id()).filter(|task| self.running.contains_key(*task)).cloned()
        else {
            return;
        };
        self.leave(&task);
        let error = Error::internal(format!("the task broke down: {panic}"))
            .hint("this is a fault of the program, please report it with the run's log");
        self.end(TaskOutcome::failed(task, error, 1, Duration::ZERO));
    }

    fn stop(&mut self) {
        self.context.stop.raise();
        for observer in self.observers.iter_mut() {
            observer.stopping(self.running.len());
        }
    }

    /// A task has left the machine.
    fn leave(&mut self, task: &TableName) {
        if let Some(share) = self.running.remove(task) {
            self.room.give(share);
        }
    }

    fn end(&mut self, outcome: TaskOutcome) {
        for observer in self.observers.iter_mut() {
            observer.ended(&outcome);
        }
        self.ended.insert(outcome.task.clone(), outcome);
    }
}

fn dependency(outcome: &TaskOutcome) -> Dependency {
    match outcome.status {
        TaskStatus::Succeeded | TaskStatus::UpToDate => Dependency::Succeeded,
        TaskStatus::Failed | TaskStatus::Skipped => Dependency::Failed,
        TaskStatus::Excluded => Dependency::Excluded,
    }
}
