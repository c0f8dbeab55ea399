//! Running many small scenarios on a few threads, and telling all failures at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lake::Clock;

/// Scenarios that run at the same time; each starts processes that use several cores.
const THREADS: usize = 2;

/// Runs every named scenario, prints how each ended, and fails with the list of those that panicked.
pub(crate) fn all<T: Sync>(what: &str, items: &[T], name: impl Fn(&T) -> String + Sync, run: impl Fn(&T) + Sync) {
    assert!(!items.is_empty(), "no {what}");
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let started = Clock::system().now();
                    let ended = catch_unwind(AssertUnwindSafe(|| run(item)));
                    let seconds = (Clock::system().now() - started).as_seconds_f64();
                    let name = name(item);
                    match ended {
                        Ok(()) => println!("{what} {name} ... ok ({seconds:.1} s)"),
                        Err(panic) => {
                            let reason = text_of(&*panic);
                            println!("{what} {name} ... FAILED ({seconds:.1} s)");
                            failures.lock().unwrap().push(format!("{what} {name}: {reason}"));
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {} failed\n\n{}\n", failures.len(), items.len(), failures.join("\n\n"));
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// As many seeds as the environment says, from its `SEED` on.
pub(crate) fn seeds(count: u64, first: u64) -> Vec<u64> {
    let first = number("SEED", first);
    (first..first + count).collect()
}
