//! The tasks of a project as units of a run: what each needs, takes of the machine, and does.

use std::collections::BTreeSet;
use std::sync::Arc;

use bronze::Told;
use chrono::NaiveDate;
use chrono_tz::Tz;
use futures::FutureExt;
use lake::session::Engine;
use lake::{Lake, TableName};

use super::executor::{Unit, Work};
use super::room::{Room, Share};
use super::{Place, Request};
use crate::spec::{Job, Project, Task};

/// The chosen tasks in an order that can be run, each with those of them that it needs.
pub(super) fn units(project: &Project, place: &Place, request: &Request<'_>) -> Vec<Unit> {
    let chosen = request.chosen;
    let tasks = project.graph.order().filter(|name| chosen.contains(*name)).filter_map(|name| project.task(name));
    let unit = |task: &Task| {
        let share = share(project, task, chosen.len());
        let lake = place.lake.for_task(engine(project, task, share));
        Unit {
            name: task.name.clone(),
            needs: project.graph.needs_within(&task.name, chosen).into_iter().collect(),
            disabled_needs: disabled_needs(project, task, chosen),
            run_if: task.run_if,
            share,
            policy: task.policy,
            written: lake.written().clone(),
            work: match request.anew.contains(&task.name) {
                true => anew(task, place, lake, project.header.timezone),
                false => work(task, place, lake, project.header.timezone, request.date),
            },
        }
    };
    tasks.map(unit).collect()
}

/// What the tasks of a run may take together.
pub(super) fn room(project: &Project) -> Room {
    Room::new(Share { threads: side_by_side(project), memory: project.header.engine.memory.map_or(0, bytes) })
}

/// How many tasks run at the same time when each takes one thread.
fn side_by_side(project: &Project) -> usize {
    let threads = project.header.engine.threads.map(usize::from);
    threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// What a task takes: what the spec says, else a thread, and of the memory as much as any of the tasks that may work
/// beside it.
fn share(project: &Project, task: &Task, tasks: usize) -> Share {
    let usual = project.header.engine.memory.map(bytes).map(|all| all / side_by_side(project).min(tasks).max(1));
    let memory = task.memory.map(bytes).or(usual).unwrap_or(0);
    Share { threads: task.threads.map_or(1, usize::from), memory }
}

/// What the queries of a task may use.
fn engine(project: &Project, task: &Task, share: Share) -> Engine {
    let threads = task.threads.or(project.header.engine.threads).map(usize::from);
    Engine { memory_bytes: (share.memory > 0).then_some(share.memory), threads }
}

fn bytes(size: lake::spec::ByteSize) -> usize {
    usize::try_from(size.as_bytes()).unwrap_or(usize::MAX)
}

/// How many of the tasks that a task needs are not part of the run because the spec says so.
pub(crate) fn disabled_needs(project: &Project, task: &Task, chosen: &BTreeSet<TableName>) -> usize {
    let is_left_out =
        |name: &&TableName| !chosen.contains(*name) && project.task(name).is_some_and(|task| task.disabled);
    project.graph.needs(&task.name).into_iter().filter(is_left_out).count()
}

/// What a task does; `date` is the day that a snapshot records, where it is not the present one.
fn work(task: &Task, place: &Place, lake: Lake, zone: Tz, date: Option<NaiveDate>) -> Work {
    match &task.job {
        Job::Bronze(plan) => {
            let (plan, landing) = (Arc::new(plan.as_ref().clone()), place.landing.clone());
            let (elsewhere, sightings) = (place.elsewhere, place.sightings.get(&plan.table).cloned());
            Arc::new(move |context| {
                let (plan, lake, landing) = (Arc::clone(&plan), lake.clone(), landing.clone());
                let sightings = sightings.clone();
                async move {
                    let told = Told { sightings: sightings.as_ref(), elsewhere };
                    bronze::run(&lake, &landing, &plan, told, &context).await
                }
                .boxed_local()
            })
        }
        Job::Silver(plan) => {
            let plan = Arc::new(plan.as_ref().clone());
            Arc::new(move |context| {
                let (plan, lake) = (Arc::clone(&plan), lake.clone());
                async move { silver::run(&lake, &plan, &context).await }.boxed_local()
            })
        }
        Job::Gold(plan) => {
            let plan = Arc::new(plan.as_ref().clone());
            Arc::new(move |context| {
                let (plan, lake) = (Arc::clone(&plan), lake.clone());
                async move {
                    match (plan.as_ref(), date) {
                        (gold::Plan::Snapshot(plan), Some(date)) => {
                            gold::record(&lake, plan, &context, zone, date).await
                        }
                        (plan, _) => gold::run(&lake, plan, &context, zone).await,
                    }
                }
                .boxed_local()
            })
        }
    }
}

/// What a task does whose table is made anew; one that is not there yet is made as always.
fn anew(task: &Task, place: &Place, lake: Lake, zone: Tz) -> Work {
    match &task.job {
        Job::Silver(plan) => {
            let plan = Arc::new(plan.as_ref().clone());
            Arc::new(move |context| {
                let (plan, lake) = (Arc::clone(&plan), lake.clone());
                async move {
                    match lake.table(&plan.table).await? {
                        Some(_) => silver::rebuild::rebuild(&lake, &plan, None, &context).await,
                        None => silver::run(&lake, &plan, &context).await,
                    }
                }
                .boxed_local()
            })
        }
        Job::Gold(plan) => {
            let plan = Arc::new(match plan.as_ref() {
                gold::Plan::Model(model) => gold::Plan::Model(gold::ModelPlan { rebuild: true, ..model.clone() }),
                snapshot => snapshot.clone(),
            });
            Arc::new(move |context| {
                let (plan, lake) = (Arc::clone(&plan), lake.clone());
                async move { gold::run(&lake, &plan, &context, zone).await }.boxed_local()
            })
        }
        Job::Bronze(_) => work(task, place, lake, zone, None),
    }
}
