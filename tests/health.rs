//! What a supervisor is told by a watch that runs: by HTTP, and by the protocol of systemd.

#![cfg(unix)]

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::program::{Outcome, path_of};
use crate::support::project::Project;
use crate::support::watching::{IDLE, Watching};

const SPEC: &str = "
name: small
bronze:
  a_feed: {path: a/, format: csv, settle: 0s}
silver:
  a: {source: a_feed, keys: [id], on_cast_error: fail, columns: {id: bigint not null, n: bigint}}
";

fn asked(address: &str, args: &[&str]) -> (Outcome, Value) {
    let mut command = Command::new(path_of("orchestrator"));
    let outcome =
        Outcome::of(command.arg("health").args(["--listen", address]).args(args).output().expect("a program"));
    let body = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
    (outcome, body)
}

#[test]
fn a_watch_tells_whether_it_is_alive_and_ready() {
    let project = Project::new(SPEC);
    project.land("a/1.csv", b"id,n\n1,1\n", None);
    let mut watch = Watching::new(project.start_watch(&["--listen", "127.0.0.1:0"]));
    let line = watch.expect(&["health is told at http://127.0.0.1:"]);
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address").to_owned();
    watch.expect(&[IDLE]);
    let (alive, _) = asked(&address, &[]);
    alive.expect(0);
    let (ready, body) = asked(&address, &["--ready"]);
    ready.expect(0);
    assert_eq!((&body["state"], &body["storage"]["status"]), (&"watching".into(), &"reached".into()));
    assert_eq!((&body["last_run"]["status"], &body["spec"]["status"]), (&"succeeded".into(), &"loaded".into()));

    // A run that fails, and a spec that is refused.
    project.land("a/2.csv", b"id,n\n2,many\n", None);
    watch.expect(&["failed in", "silver.a failed"]);
    watch.expect(&[IDLE]);
    project.respec(&SPEC.replace("keys", "kyes"));
    watch.expect(&["cannot be used"]);
    let (ready, body) = asked(&address, &["--ready"]);
    ready.expect(1);
    assert_eq!((&body["last_run"]["status"], &body["spec"]["status"]), (&"failed".into(), &"refused".into()));
    asked(&address, &[]).0.expect(0);

    // The spec is mended, and what failed goes on.
    project.respec(&SPEC.replace("on_cast_error: fail", "on_cast_error: quarantine"));
    watch.expect(&["the spec has changed: the watch goes on with the new one"]);
    watch.expect(&[IDLE]);
    let (ready, body) = asked(&address, &["--ready"]);
    ready.expect(0);
    assert_eq!(body["spec"]["status"], "loaded");
    watch.end().expect(0);
    assert!(asked(&address, &[]).0.expect(1).stderr.contains("asking 127.0.0.1:"));
}

#[test]
fn a_supervisor_hears_that_a_watch_is_ready_lives_and_stops() {
    let project = Project::new(SPEC);
    let path = project.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let heard = |wanted: &str| {
        let mut buffer = [0; 512];
        loop {
            let read = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{wanted} was never told: {error}"));
            if String::from_utf8_lossy(&buffer[..read]).lines().any(|line| line == wanted) {
                return;
            }
        }
    };
    let child = Command::new(path_of("orchestrator"))
        .current_dir(project.path())
        .arg("watch")
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "1500000")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let watch = Watching::new(child.expect("the program starts"));
    heard("READY=1");
    // Twice: it goes on living while nothing happens.
    heard("WATCHDOG=1");
    heard("WATCHDOG=1");
    let ended = std::thread::spawn(move || watch.end());
    heard("STOPPING=1");
    ended.join().expect("an end").expect(0);
}
