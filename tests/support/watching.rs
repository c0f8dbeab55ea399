//! `orchestrator watch` while it runs: what it has told so far, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use lake::Clock;

use super::program::Outcome;

/// How long a line is waited for, at most.
const PATIENCE: Duration = Duration::from_secs(120);
/// What is told when nothing is on its way.
pub(crate) const IDLE: &str = "waiting for files";

/// A watch that runs.
pub(crate) struct Watching {
    child: Child,
    told: Arc<(Mutex<Told>, Condvar)>,
    stderr: Option<JoinHandle<()>>,
    stdout: Option<JoinHandle<String>>,
    /// Lines that were waited for already.
    read: usize,
}

#[derive(Default)]
struct Told {
    lines: Vec<String>,
    is_over: bool,
}

impl Watching {
    pub(crate) fn new(mut child: Child) -> Self {
        let told: Arc<(Mutex<Told>, Condvar)> = Arc::default();
        let stderr = BufReader::new(child.stderr.take().expect("stderr"));
        let mut stdout = child.stdout.take().expect("stdout");
        let hearer = Arc::clone(&told);
        let stderr = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                hearer.0.lock().expect("lines").lines.push(line);
                hearer.1.notify_all();
            }
            hearer.0.lock().expect("lines").is_over = true;
            hearer.1.notify_all();
        });
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("UTF-8 output");
            text
        });
        Self { child, told, stderr: Some(stderr), stdout: Some(stdout), read: 0 }
    }

    /// Waits for a line that holds all of `texts`, after those that were waited for before.
    pub(crate) fn expect(&mut self, texts: &[&str]) -> String {
        let mut told = self.told.0.lock().expect("lines");
        let (clock, begun) = (Clock::system(), Clock::system().now());
        loop {
            let found = told.lines[self.read..].iter().position(|line| texts.iter().all(|text| line.contains(text)));
            if let Some(position) = found {
                let line = told.lines[self.read + position].clone();
                self.read += position + 1;
                return line;
            }
            let (held, waited) = self.told.1.wait_timeout(told, PATIENCE).expect("lines");
            told = held;
            let story = || told.lines.join("\n");
            // Other lines may come all the time.
            let is_late = waited.timed_out() || (clock.now() - begun).to_std().unwrap_or_default() > PATIENCE;
            assert!(!is_late, "{texts:?} was never told; the watch said\n{}", story());
            assert!(!told.is_over || told.lines.len() > self.read, "the watch is over; it said\n{}", story());
        }
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.told.0.lock().expect("lines").lines.clone()
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks the watch to end, as a supervisor does, and waits for it.
    pub(crate) fn end(self) -> Outcome {
        let asked = std::process::Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        assert!(asked.expect("kill starts").success(), "the watch is not there");
        self.over()
    }

    /// Waits for the end.
    pub(crate) fn over(mut self) -> Outcome {
        let code = self.child.wait().expect("an end").code();
        self.stderr.take().expect("once").join().expect("stderr");
        let stdout = self.stdout.take().expect("once").join().expect("stdout");
        Outcome { line: "orchestrator watch".to_owned(), code, stdout, stderr: self.lines().join("\n") }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
