//! A command: a program of this machine that gets the run as JSON on stdin.

use std::path::Path;
use std::process::Stdio;

use lake::Clock;
use lake::spec::Notification;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::{Event, Told};

/// The last bytes of what a program that failed said.
const SAID_MAX: usize = 400;

/// Runs the command once.
pub(super) async fn run(receiver: &Notification, folder: &Path, event: Event, body: &str, clock: &Clock) -> Told {
    let Some((program, arguments)) = receiver.command.split_first() else {
        return Told { attempts: 0, error: Some("there is no command".to_owned()) };
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("NOTIFICATION_EVENT", event.as_str());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let error = match command.spawn() {
        Err(error) => Some(format!("it cannot be started: {error}")),
        Ok(child) => tokio::select! {
            end = end(child, body) => end.err(),
            () = clock.sleep(receiver.timeout.as_std()) => Some(format!("it was ended after {}", receiver.timeout)),
        },
    };
    Told { attempts: 1, error }
}

/// Waits for the end of a program that reads `body`, or does not.
async fn end(mut child: Child, body: &str) -> Result<(), String> {
    let stdin = child.stdin.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program that does not want to know closes it.
            let _ = stdin.write_all(body.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    let start = said.char_indices().rev().nth(SAID_MAX).map_or(0, |(at, _)| at);
    let said = if said.is_empty() { String::new() } else { format!(": {}", &said[start..]) };
    Err(format!("it ended with {}{said}", output.status))
}
