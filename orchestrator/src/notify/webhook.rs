//! A webhook: the run as JSON by POST, signed, and tried again while the receiver cannot take it.

use std::time::Duration;

use lake::Clock;
use lake::report::RunSummary;
use lake::spec::Notification;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use reqwest::{Client, StatusCode};
use ring::hmac;

use super::{Event, Told};

/// The wait before the second attempt; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The header of the signature.
const SIGNATURE: &str = "x-signature-256";

/// What an attempt came to.
enum Attempt {
    Done,
    /// It may succeed later.
    Later(String),
    /// It never will.
    Never(String),
}

/// Posts `body` until the receiver takes it, or the attempts are used up.
pub(super) async fn post(
    url: &str,
    receiver: &Notification,
    event: Event,
    summary: &RunSummary,
    body: &str,
    clock: &Clock,
) -> Told {
    let (client, headers) = match prepare(receiver, event, summary, body) {
        Ok(ready) => ready,
        Err(error) => return Told { attempts: 0, error: Some(error) },
    };
    let (mut attempts, mut wait) = (0, FIRST_WAIT);
    loop {
        attempts += 1;
        let error = match attempt(&client, url, &headers, body).await {
            Attempt::Done => return Told { attempts, error: None },
            Attempt::Never(error) => return Told { attempts, error: Some(error) },
            Attempt::Later(error) => error,
        };
        if attempts > receiver.max_retries {
            return Told { attempts, error: Some(error) };
        }
        clock.sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

fn prepare(
    receiver: &Notification,
    event: Event,
    summary: &RunSummary,
    body: &str,
) -> Result<(Client, HeaderMap), String> {
    let mut headers = HeaderMap::new();
    let mut add = |name: &str, value: &str| {
        let parsed = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
        let (header, mut value) = parsed.ok_or_else(|| format!("the header `{name}` cannot be sent"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
        Ok::<_, String>(())
    };
    add(CONTENT_TYPE.as_str(), "application/json")?;
    add(USER_AGENT.as_str(), concat!("orchestrator/", env!("CARGO_PKG_VERSION")))?;
    add("x-event", event.as_str())?;
    add("x-run-id", &summary.run)?;
    if let Some(secret) = &receiver.secret {
        add(SIGNATURE, &signature(secret, body))?;
    }
    for (name, value) in receiver.headers.iter() {
        add(name, value)?;
    }
    let client = Client::builder().timeout(receiver.timeout.as_std()).build();
    Ok((client.map_err(|error| error.to_string())?, headers))
}

async fn attempt(client: &Client, url: &str, headers: &HeaderMap, body: &str) -> Attempt {
    let request = client.post(url).headers(headers.clone()).body(body.to_owned());
    let status = match request.send().await {
        Ok(answer) => answer.status(),
        // The URL may be secret as a whole.
        Err(error) if error.is_builder() => return Attempt::Never(error.without_url().to_string()),
        Err(error) => return Attempt::Later(causes(&error.without_url())),
    };
    match status {
        _ if status.is_success() => Attempt::Done,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Attempt::Later(format!("it answered {status}")),
        _ if status.is_server_error() => Attempt::Later(format!("it answered {status}")),
        _ => Attempt::Never(format!("it answered {status}")),
    }
}

/// An error with what it comes from.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// `sha256=` and the HMAC-SHA256 of the body in hex.
fn signature(secret: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, body.as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_signed_as_others_do_it() {
        // https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
        assert_eq!(
            signature("It's a Secret to Everybody", "Hello, World!"),
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
    }
}
