use chrono::DateTime;
use tracing::Level;

use super::fields::Fields;
use super::lines::Line;
use super::*;

fn line<'a>(target: &'a str, message: &str) -> Line<'a> {
    Line {
        at: DateTime::UNIX_EPOCH,
        level: Level::WARN,
        target,
        message: message.to_owned(),
        run: Some("r1".into()),
        task: Some("silver.orders".into()),
        fields: Fields::default(),
    }
}

#[test]
fn a_line_says_which_run_and_task_it_is_about() {
    assert_eq!(
        line("lake::commit", "tried \"again\"").to_json(),
        "{\"timestamp\":\"1970-01-01T00:00:00.000000Z\",\"level\":\"warn\",\"target\":\"lake::commit\",\
         \"message\":\"tried \\\"again\\\"\",\"run_id\":\"r1\",\"task\":\"silver.orders\"}\n"
    );
    assert_eq!(
        line("lake::commit", "tried again").into_text(false),
        "1970-01-01T00:00:00.000000Z  WARN run_id=r1 task=silver.orders lake::commit: tried again\n"
    );
}

#[test]
fn libraries_are_one_level_quieter_and_silent_by_default() {
    let asked = |verbose, log_level, log_format| LogArgs { verbose, log_level, log_format }.directives();
    let quiet = asked(0, None, LogFormat::Text);
    assert!(quiet.starts_with("off,lake=error,") && quiet.ends_with(",lake::events=off"), "{quiet}");
    assert!(asked(0, None, LogFormat::Json).starts_with("off,lake=info,"));
    assert!(asked(1, None, LogFormat::Text).starts_with("warn,lake=info,"));
    assert!(asked(2, Some(LogLevel::Error), LogFormat::Text).starts_with("info,lake=debug,"), "the louder one counts");
    assert!(asked(0, Some(LogLevel::Off), LogFormat::Json).starts_with("off,lake=off,"));
    assert!(asked(0, Some(LogLevel::Warn), LogFormat::Text).starts_with("error,lake=warn,"));
    assert!(asked(0, Some(LogLevel::Trace), LogFormat::Json).starts_with("debug,lake=trace,"));
    EnvFilter::builder().parse(quiet).expect("directives");
}

#[test]
fn a_secret_is_hidden_before_its_quotes_are_escaped() {
    lake::secrets::hide("quoted\"5ecret", "${QUOTED}");
    let mut fields = Fields::default();
    fields.set("error", "no answer of quoted\"5ecret".into());
    fields.set("task", "quoted\"5ecret".into());
    let json = Line { fields, task: None, ..line("orchestrator", "x") }.to_json();
    assert!(json.contains("\"error\":\"no answer of ${QUOTED}\""), "{json}");
    assert!(json.contains("\"task\":\"quoted\\\"5ecret\""), "names of the spec are no secrets: {json}");
}
