use std::os::unix::net::UnixDatagram;

use lake::report::TaskOutcome;
use lake::{Error, TableName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

fn clock() -> Clock {
    Clock::manual("2024-05-01T00:00:00Z".parse().expect("a time"))
}

fn lake(folder: &Path) -> Lake {
    Lake::open("./lakehouse", folder, clock(), Default::default()).expect("a lake")
}

fn summary(tasks: Vec<TaskOutcome>) -> RunSummary {
    let (run, spec) = ("r1".to_owned(), "p.yaml".to_owned());
    RunSummary { run, spec, started_at: DateTime::UNIX_EPOCH, elapsed: Duration::ZERO, tasks }
}

#[tokio::test]
async fn a_watch_is_ready_when_it_reaches_its_storage_and_its_last_run_did_not_fail() {
    let folder = tempfile::tempdir().expect("a folder");
    let health = Health::told_to(clock(), None);
    let starting = health.ready().await;
    assert_eq!((starting.is_well, &starting.body["state"]), (false, &"starting".into()));
    health.begins(&lake(folder.path()), Path::new("p.yaml"));
    let begun = health.ready().await;
    assert!(begun.is_well && begun.body["last_run"].is_null(), "{}", begun.body);
    health.runs(true);
    assert_eq!(health.ready().await.body["state"], "running");
    health.ran(&summary(vec![TaskOutcome::failed(TableName::silver("t"), Error::spec("x"), 1, Duration::ZERO)]));
    let failed = health.ready().await;
    assert_eq!((failed.is_well, &failed.body["last_run"]["status"]), (false, &"failed".into()));
    health.ran(&summary(Vec::new()));
    assert!(health.ready().await.is_well);
    std::fs::remove_dir_all(folder.path().join("lakehouse")).expect("removed");
    let gone = health.ready().await;
    assert_eq!((gone.is_well, &gone.body["storage"]["status"]), (false, &"not_reached".into()));
    assert!(health.alive().is_well, "a storage that is away is no reason to start it again");
}

#[tokio::test]
async fn a_loop_that_does_not_turn_is_not_alive() {
    let clock = clock();
    let health = Health::told_to(clock.clone(), None);
    clock.sleep(Duration::from_secs(120)).await;
    assert!(health.alive().is_well);
    clock.sleep(Duration::from_secs(1)).await;
    assert!(!health.alive().is_well);
    health.turned();
    assert!(health.alive().is_well);
}

async fn sent(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a listener");
    stream.write_all(request).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test]
async fn requests_are_answered_whatever_they_are() {
    let health = Health::told_to(Clock::system(), None);
    let address = serve("127.0.0.1:0".parse().expect("an address"), health).await.expect("a listener");
    let text = address.to_string();
    assert!(ask(&text, "/healthz").await.expect("an answer").0);
    let (is_well, body) = ask(&text, "/readyz").await.expect("an answer");
    assert!(!is_well && body.contains("nothing is watched yet"), "{body}");
    ask(&text, "/other").await.expect_err("no such path");
    for (request, status) in [
        (&b"GET /healthz HTTP/1.1\r\n\r\n"[..], "HTTP/1.1 200 OK\r\n"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        (b"\x16\x03\x01\x02\r\n\r\n", "HTTP/1.1 400 "),
    ] {
        let answer = sent(address, request).await;
        assert!(answer.starts_with(status), "{answer}");
    }
    let head = sent(address, b"HEAD /healthz HTTP/1.1\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    let large = [&b"GET /healthz HTTP/1.1\r\nx: "[..], &[b'x'; 8_300]].concat();
    assert!(sent(address, &large).await.starts_with("HTTP/1.1 431 "));
    let taken = serve(address, Health::told_to(Clock::system(), None)).await.expect_err("taken");
    assert!(taken.to_string().contains("cannot be listened at"), "{taken}");
}

#[test]
fn a_supervisor_is_told_and_hears_signs_of_life() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_nonblocking(true).expect("a mode");
    let heard = || {
        let mut buffer = [0; 256];
        let read = socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..read]).into_owned())
    };
    let supervisor = Supervisor::new(path.display().to_string(), Some(Duration::from_secs(4)));
    let health = Health::told_to(Clock::manual(DateTime::UNIX_EPOCH), Some(supervisor));
    assert_eq!(health.turns_within(Duration::from_secs(2)), Duration::from_secs(4) / 3);
    health.begins(&lake(folder.path()), Path::new("p.yaml"));
    assert_eq!(heard().as_deref(), Some("READY=1\nSTATUS=watching"));
    health.turned();
    health.turned();
    assert_eq!((heard().as_deref(), heard()), (Some("WATCHDOG=1"), None), "not more often than is asked for");
    health.stops();
    assert_eq!(heard().as_deref(), Some("STOPPING=1\nSTATUS=stopping"));
    assert_eq!(Health::told_to(clock(), None).turns_within(Duration::from_secs(2)), Duration::from_secs(2));
}

#[cfg(target_os = "linux")]
#[test]
fn a_supervisor_may_listen_at_a_name_without_a_file() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    let name = format!("orchestrator-test-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("a socket");
    Supervisor::new(format!("@{name}"), None).tell("READY=1");
    let mut buffer = [0; 16];
    assert_eq!(socket.recv(&mut buffer).expect("told"), 7);
}
