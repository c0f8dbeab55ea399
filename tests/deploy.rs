//! What `deploy/` starts: its command lines and variables are those that the programs know.

use std::fs;
use std::process::Command;

use crate::support::program::{Outcome, path_of, workspace};

fn file(name: &str) -> String {
    fs::read_to_string(workspace().join("deploy").join(name)).expect("a file of deploy/")
}

/// Runs `orchestrator` where there is no spec, and returns how it ended.
fn started(args: &[&str]) -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(path_of("orchestrator"));
    command.current_dir(folder.path()).args(args).env("PIPELINES_SPEC", "missing.yaml").env_remove("PIPELINES_LISTEN");
    Outcome::of(command.output().expect("the program starts"))
}

/// The variables of the program that a text sets.
fn variables(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    let mut names: Vec<String> = words.filter(|word| word.starts_with("PIPELINES_")).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn the_unit_starts_what_the_program_knows() {
    let unit = file("orchestrator.service");
    let lines: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("ExecStart=")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let args: Vec<&str> =
        lines[0].strip_prefix("/usr/local/bin/orchestrator ").expect("the program").split(' ').collect();
    let outcome = started(&args).expect(2);
    assert!(outcome.stderr.contains("missing.yaml") && !outcome.stderr.contains("Usage:"), "{}", outcome.story());
    let wrong = started(&["watch", "--no-such-option"]).expect(2);
    assert!(wrong.stderr.contains("Usage:"), "{}", wrong.story());
}

#[test]
fn variables_are_those_of_the_program() {
    let help = started(&["watch", "--help"]).expect(0).stdout;
    for name in ["orchestrator.service", "Containerfile"] {
        let set = variables(&file(name));
        assert!(set.len() > 1, "{set:?}");
        for variable in set {
            assert!(help.contains(&format!("[env: {variable}=")), "{name} sets {variable}, which is none of\n{help}");
        }
    }
}

#[test]
fn the_container_is_asked_how_it_is_by_a_command_that_there_is() {
    let container = file("Containerfile");
    let words = |start: &str| {
        let line = container.lines().map(str::trim_start).find_map(|line| line.strip_prefix(start)).expect("a line");
        let list = &line[line.find('[').expect("a list")..];
        serde_json::from_str::<Vec<String>>(list).expect("a JSON list of words")
    };
    assert_eq!((words("ENTRYPOINT "), words("CMD ")), (vec!["orchestrator".to_owned()], vec!["watch".to_owned()]));
    let check = words("HEALTHCHECK ");
    assert_eq!(check[0], "orchestrator");
    let mut args: Vec<&str> = check[1..].iter().map(String::as_str).collect();
    // Nobody listens there.
    args.extend(["--listen", "127.0.0.1:1"]);
    let outcome = started(&args).expect(1);
    assert!(outcome.stderr.contains("asking 127.0.0.1:1"), "{}", outcome.story());
    assert!(container.contains("\nUSER 10001:10001\n"), "it does not run as root");
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("systemd-analyze is not there: the unit was not verified");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let unit = folder.path().join("orchestrator.service");
    let program = path_of("orchestrator").display().to_string();
    fs::write(&unit, file("orchestrator.service").replace("/usr/local/bin/orchestrator", &program)).expect("a unit");
    let verified = Command::new("systemd-analyze").arg("verify").arg(&unit).output().expect("systemd-analyze");
    let verified = Outcome::of(verified).expect(0);
    let ours: Vec<&str> = verified.stderr.lines().filter(|line| line.contains("orchestrator.service")).collect();
    assert_eq!(ours, Vec::<&str>::new(), "{}", verified.story());
    let exposed = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=20", "--no-pager"])
        .arg(&unit)
        .output();
    Outcome::of(exposed.expect("systemd-analyze")).expect(0);
}
