//! Secrets come from the environment or from files, and are found in nothing that the programs write.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::support::program::{Outcome, path_of};
use crate::support::project::{Project, files_below};

/// A secret that no other text holds.
const SECRET: &str = "pla17ed-5ecret-0f-te5t5";
/// Another one, in a file.
const FROM_FILE: &str = "fi1e-5ecret-0f-te5t5";

const SPEC: &str = r#"name: secrets
bronze: {orders: {path: orders/, format: csv, settle: 0s}}
silver:
  orders:
    source: orders
    keys: [id]
    sequence_by: [id]
    columns: {id: bigint not null, amount: "decimal(18,2)"}
notifications:
  on_failure:
    - webhook: "http://127.0.0.1:PORT/${HOOK_TOKEN}"
      secret: "${file:signing.key}"
      headers: {Authorization: "Bearer ${HOOK_TOKEN}"}
      max_retries: 2
  on_success:
    - command: [sh, -c, "cat > told.json; exit 0"]
  on_quarantine:
    - command: [sh, -c, "echo cannot use ${HOOK_TOKEN} >&2; exit 3"]
"#;

/// Answers these statuses in turn, and keeps each request.
fn listen(statuses: &'static [u16]) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    let answers = std::thread::spawn(move || {
        let of = |status: &u16| {
            let (mut stream, _) = listener.accept().expect("a request");
            let request = read_request(&mut stream);
            write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").expect("answered");
            request
        };
        statuses.iter().map(of).collect()
    });
    (port, answers)
}

fn read_request(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        let read = stream.read(&mut buffer).expect("a request");
        assert!(read > 0, "the request is cut: {text}");
        request.extend_from_slice(&buffer[..read]);
    }
}

fn project(port: u16) -> Project {
    let project = Project::new(&SPEC.replace("PORT", &port.to_string()));
    fs::write(project.path().join("signing.key"), format!("{FROM_FILE}\n")).expect("a key");
    project
}

fn orchestrator(project: &Project, args: &[&str], token: Option<&str>) -> Outcome {
    let mut command = Command::new(path_of("orchestrator"));
    command
        .current_dir(project.path())
        .args(args)
        .env("NO_PROXY", "127.0.0.1")
        .env_remove("HOOK_TOKEN")
        .env_remove("RUST_LOG");
    if let Some(token) = token {
        command.env("HOOK_TOKEN", token);
    }
    Outcome::of(command.output().expect("a program"))
}

/// Fails when a secret stands in an output, or in a file below the lake.
fn assert_hidden(project: &Project, outcomes: &[&Outcome]) {
    for outcome in outcomes {
        for secret in [SECRET, FROM_FILE] {
            assert!(!outcome.stdout.contains(secret) && !outcome.stderr.contains(secret), "{}", outcome.story());
        }
    }
    let mut searched = 0;
    for file in files_below(&project.path().join("lakehouse")) {
        let content = fs::read(&file).expect("a file");
        for secret in [SECRET, FROM_FILE] {
            let is_there = content.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!is_there, "{secret} stands in {}", file.display());
        }
        searched += 1;
    }
    assert!(searched > 5, "{searched} files of the lake");
}

#[test]
fn a_missing_secret_is_told_with_its_line_before_anything_is_run() {
    let project = project(1);
    fs::remove_file(project.path().join("signing.key")).expect("no key");
    for command in ["validate", "run"] {
        let outcome = orchestrator(&project, &[command], None);
        assert_eq!(outcome.code, Some(2), "{}", outcome.story());
        for text in ["`HOOK_TOKEN` is not set", "pipelines.yaml:11:", "the file `signing.key`", "pipelines.yaml:12:"] {
            assert!(outcome.stderr.contains(text), "`{text}` is not told: {}", outcome.story());
        }
    }
}

#[test]
fn receivers_are_told_and_secrets_stay_hidden() {
    let (port, answers) = listen(&[503, 204]);
    let project = project(port);
    project.land("orders/1.csv", b"id,amount\n1,10.00\n2,much\n", None);
    let first = orchestrator(&project, &["run", "--output", "json"], Some(SECRET));
    assert_eq!(first.code, Some(0), "a receiver that fails changes nothing: {}", first.story());
    assert!(first.stderr.contains("notifications.on_quarantine[0] could not be told"), "{}", first.story());
    assert!(first.stderr.contains("cannot use ${HOOK_TOKEN}"), "{}", first.story());
    let told: Value = serde_json::from_slice(&fs::read(project.path().join("told.json")).expect("told")).expect("JSON");
    assert_eq!((&told["event"], &told["pipeline"]), (&"success".into(), &"secrets".into()));
    assert_eq!(told["run"]["quarantined"], 1);
    // A file that is refused is a failure.
    project.land("orders/2.csv", b"id,id\n1,2\n", None);
    let second = orchestrator(&project, &["run"], Some(SECRET));
    assert_eq!(second.code, Some(1), "{}", second.story());
    let requests = answers.join().expect("requests");
    assert_eq!(requests.len(), 2, "the first answer was 503, so it was sent again");
    let (head, body) = requests[1].split_once("\r\n\r\n").expect("a request");
    assert!(head.starts_with(&format!("POST /{SECRET} ")), "{head}");
    assert!(head.to_lowercase().contains(&format!("authorization: bearer {SECRET}")), "{head}");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, FROM_FILE.as_bytes());
    let tag: String =
        ring::hmac::sign(&key, body.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(head.to_lowercase().contains(&format!("x-signature-256: sha256={tag}")), "{head}");
    let told: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(told["event"], "failure");
    let log = orchestrator(
        &project,
        &[
            "query",
            "SELECT kind, message, details FROM _state.event_log WHERE kind LIKE 'notification%'",
            "--output",
            "json",
        ],
        Some(SECRET),
    );
    let dump = orchestrator(&project, &["runs", "--output", "json"], Some(SECRET));
    assert_hidden(&project, &[&first, &second, &log, &dump]);
}

#[test]
fn a_receiver_that_is_not_there_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    drop(listener);
    let project = project(port);
    let spec = fs::read_to_string(project.path().join("pipelines.yaml")).expect("a spec");
    project.respec(&spec.replace("max_retries: 2", "max_retries: 0"));
    project.land("orders/2.csv", b"id,id\n1,2\n", None);
    let outcome = orchestrator(&project, &["-vv", "run", "--output", "json"], Some(SECRET));
    assert_eq!(outcome.code, Some(1), "{}", outcome.story());
    assert!(outcome.stderr.contains("notifications.on_failure[0] could not be told"), "{}", outcome.story());
    assert!(!outcome.stderr.contains(SECRET), "{}", outcome.story());
}
