//! Whom to tell how a run ended: `notifications` of the spec.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

use super::map::Map;
use super::path::SpecPath;
use super::problems::{Problem, Problems};
use super::scalars::Duration;

/// Whom to tell how a run ended.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Notifications {
    /// When a task failed or was skipped, or a file was refused.
    pub on_failure: Vec<Notification>,
    /// When a run changed something and nothing failed.
    pub on_success: Vec<Notification>,
    /// When records went into quarantine.
    pub on_quarantine: Vec<Notification>,
}

/// One receiver: a `webhook` or a `command`.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Notification {
    /// A URL that gets the run as JSON by POST.
    pub webhook: Option<String>,
    /// Signs the body: the header `X-Signature-256` is `sha256=` and the HMAC-SHA256 in hex. From the environment or a file.
    pub secret: Option<String>,
    /// Headers beside those of the program: `Authorization: "Bearer ${TOKEN}"`.
    pub headers: Map<String>,
    /// A program and its arguments, which gets the same JSON on stdin, in the folder of the spec.
    pub command: Vec<String>,
    /// The longest that one attempt may take. Default 10s.
    pub timeout: Duration,
    /// Attempts after the first one of a webhook that does not answer, or answers that it cannot now. Default 3.
    #[schemars(range(max = 20))]
    pub max_retries: u32,
}

impl Default for Notification {
    fn default() -> Self {
        Self {
            webhook: None,
            secret: None,
            headers: Map::default(),
            command: Vec::new(),
            timeout: Duration::from_secs(10),
            max_retries: 3,
        }
    }
}

impl fmt::Debug for Notification {
    /// Names what there is, and shows nothing of it: all of it may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.webhook.is_some() { "webhook" } else { "command" };
        f.debug_struct("Notification").field("kind", &kind).finish_non_exhaustive()
    }
}

/// Refuses receivers that are none, and secrets that stand in the spec.
pub(super) fn check(notifications: &Notifications, problems: &mut Problems) {
    let Notifications { on_failure, on_success, on_quarantine } = notifications;
    let at = SpecPath::of(["notifications"]);
    for (key, list) in [("on_failure", on_failure), ("on_success", on_success), ("on_quarantine", on_quarantine)] {
        for (index, one) in list.iter().enumerate() {
            let path = at.key(key).index(index);
            if !problems.any_below(&path) {
                check_one(one, &path, problems);
            }
        }
    }
}

fn check_one(one: &Notification, path: &SpecPath, problems: &mut Problems) {
    match (&one.webhook, one.command.is_empty()) {
        (None, true) => {
            let hint = "for example: {webhook: \"https://…\"} or {command: [notify-send, pipeline]}";
            problems.add(Problem::at(path, "a notification needs a `webhook` or a `command`").hint(hint));
        }
        (Some(_), false) => {
            let problem = Problem::at(path, "`webhook` and `command` both say whom to tell");
            problems.add(problem.hint("write two notifications"));
        }
        (Some(url), true) if !["https://", "http://"].iter().any(|scheme| url.starts_with(scheme)) => {
            let problem = Problem::at(&path.key("webhook"), format!("`{url}` is no URL of a webhook"));
            problems.add(problem.hint("it begins with `https://` or `http://`"));
        }
        _ => {}
    }
    if one.webhook.is_none() && !one.command.is_empty() {
        for (key, _) in
            [("secret", one.secret.is_some()), ("headers", !one.headers.is_empty())].iter().filter(|(_, is)| *is)
        {
            problems.add(Problem::of_key(&path.key(*key), format!("`{key}` says nothing about a `command`")));
        }
    }
    let secret = path.key("secret");
    let is_told = problems.text().is_some_and(|text| text.is_expanded(&secret));
    if one.secret.is_some() && !is_told {
        let problem = Problem::of_key(&secret, "a secret must not stand in the spec");
        problems.add(
            problem.hint("take it from the environment or a file: `\"${WEBHOOK_SECRET}\"`, `\"${file:secret.txt}\"`"),
        );
    }
}
