//! Puts the events of a run in one order: starts tasks whose needs ended well, skips those whose needs did not, and
//! tells the observers. The only owner of the run's state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use lake::report::{TaskOutcome, TaskStatus};
use lake::run::{Meter, RunContext};
use lake::{Clock, Error, TableName};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{Id, JoinError, JoinSet};

use super::executor::{Message, Unit, execute};

/// Something that watches a run: progress for a person, records for the event log.
pub(crate) trait Observer: Send {
    /// A task is started; its meter counts while it works.
    fn started(&mut self, task: &TableName, meter: &Meter);
    /// An attempt failed and another follows after `wait`.
    fn retrying(&mut self, task: &TableName, attempt: u32, wait: Duration, error: &Error);
    /// A task ended, or was skipped.
    fn ended(&mut self, outcome: &TaskOutcome);
    /// The run was asked to stop while `running` tasks were at work.
    fn stopping(&mut self, running: usize);
}

/// Runs all units, at most `limit` side by side, and returns their outcomes in the order of the units.
///
/// `stop` is a channel on which one message ends the starting of tasks and raises the sign of the context.
pub(crate) async fn dispatch(
    units: Vec<Unit>,
    limit: usize,
    context: &RunContext,
    clock: &Clock,
    stop: UnboundedReceiver<()>,
    observers: &mut [&mut dyn Observer],
) -> Vec<TaskOutcome> {
    let order: Vec<TableName> = units.iter().map(|unit| unit.name.clone()).collect();
    let (tell, heard) = mpsc::unbounded_channel();
    let mut dispatcher = Dispatcher {
        limit: limit.max(1),
        context,
        clock,
        tell,
        waiting: units,
        running: BTreeSet::new(),
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
    limit: usize,
    context: &'a RunContext,
    clock: &'a Clock,
    tell: UnboundedSender<Message>,
    waiting: Vec<Unit>,
    running: BTreeSet<TableName>,
    ended: BTreeMap<TableName, TaskOutcome>,
    tasks: JoinSet<()>,
    executors: HashMap<Id, TableName>,
    observers: &'a mut [&'o mut dyn Observer],
}

impl Dispatcher<'_, '_> {
    async fn run(&mut self, mut heard: UnboundedReceiver<Message>, mut stop: UnboundedReceiver<()>) {
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

    /// Skips what cannot run any more and starts what can run now, until neither is left.
    fn settle(&mut self) {
        while let Some(position) = self.waiting.iter().position(|unit| self.obstacle(unit).is_some()) {
            let unit = self.waiting.remove(position);
            let because = self.obstacle(&unit).unwrap_or_default();
            self.end(TaskOutcome::skipped(unit.name, because));
        }
        while self.running.len() < self.limit {
            let ready = |unit: &Unit| unit.needs.iter().all(|need| self.ended.contains_key(need));
            let Some(position) = self.waiting.iter().position(ready) else { break };
            let unit = self.waiting.remove(position);
            self.start(unit);
        }
    }

    /// Why a waiting task cannot run any more: the run was stopped, or a task that it needs failed or was skipped.
    fn obstacle(&self, unit: &Unit) -> Option<String> {
        if self.context.stop.is_raised() {
            return Some("the run was stopped".to_owned());
        }
        let ended = |status| {
            let same = |need: &&TableName| self.ended.get(*need).is_some_and(|outcome| outcome.status == status);
            unit.needs.iter().find(same)
        };
        let failed = ended(TaskStatus::Failed).map(|need| format!("{need} failed"));
        failed.or_else(|| ended(TaskStatus::Skipped).map(|need| format!("{need} was skipped")))
    }

    fn start(&mut self, unit: Unit) {
        let context = self.context.for_task();
        self.running.insert(unit.name.clone());
        for observer in self.observers.iter_mut() {
            observer.started(&unit.name, &context.meter);
        }
        let name = unit.name.clone();
        let (clock, tell, runtime) = (self.clock.clone(), self.tell.clone(), Handle::current());
        // A thread for each task: what a layer does between two waits may take long and holds up nobody else.
        let executor = self.tasks.spawn_blocking(move || runtime.block_on(execute(unit, context, clock, tell)));
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
                self.running.remove(&outcome.task);
                self.end(*outcome);
            }
        }
    }

    /// An executor is gone; one that panicked has sent no end.
    fn joined(&mut self, ended: Result<(), JoinError>) {
        let Err(panic) = ended else { return };
        let Some(task) = self.executors.get(&panic.id()).filter(|task| self.running.contains(*task)).cloned() else {
            return;
        };
        self.running.remove(&task);
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

    fn end(&mut self, outcome: TaskOutcome) {
        for observer in self.observers.iter_mut() {
            observer.ended(&outcome);
        }
        self.ended.insert(outcome.task.clone(), outcome);
    }
}
