//! The only source of time: a system clock for runs, a manual one for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;

/// Tells the time and waits. Cheap to clone; clones share one time.
#[derive(Debug, Clone, Default)]
pub struct Clock(Kind);

#[derive(Debug, Clone, Default)]
enum Kind {
    #[default]
    System,
    /// Microseconds since the epoch, moved only by its owner.
    Manual(Arc<AtomicI64>),
}

/// The environment variable that has a program's clock stand at a time, so that tests can go through a year in minutes.
pub const VARIABLE: &str = "LAKE_CLOCK";

impl Clock {
    /// The clock of a program: that of the machine, unless [`VARIABLE`] sets it.
    pub fn of_program() -> Self {
        let set = std::env::var(VARIABLE).ok().and_then(|at| at.parse().ok());
        set.map_or_else(Self::system, Self::manual)
    }

    /// The clock of the machine.
    pub fn system() -> Self {
        Self(Kind::System)
    }

    /// A clock that stands at `start` until it is moved.
    pub fn manual(start: DateTime<Utc>) -> Self {
        Self(Kind::Manual(Arc::new(AtomicI64::new(start.timestamp_micros()))))
    }

    /// The present moment, to the microsecond.
    pub fn now(&self) -> DateTime<Utc> {
        match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine for the time")]
            Kind::System => Utc::now(),
            Kind::Manual(micros) => {
                DateTime::from_timestamp_micros(micros.load(Ordering::SeqCst)).unwrap_or(DateTime::UNIX_EPOCH)
            }
        }
    }

    /// Sets a manual clock, also back; that of the machine goes on.
    pub fn set(&self, at: DateTime<Utc>) {
        if let Kind::Manual(micros) = &self.0 {
            micros.store(at.timestamp_micros(), Ordering::SeqCst);
        }
    }

    /// The present moment in microseconds since the epoch, as Delta timestamps store it.
    pub fn now_micros(&self) -> i64 {
        self.now().timestamp_micros()
    }

    /// The calendar day of the present moment in `zone`.
    pub fn today(&self, zone: Tz) -> NaiveDate {
        self.now().with_timezone(&zone).date_naive()
    }

    /// The moment at which a calendar day begins in `zone`: midnight, or the first moment after it where clocks leap over
    /// midnight. `None` for a day that no clock shows.
    pub fn start_of(day: NaiveDate, zone: Tz) -> Option<DateTime<Utc>> {
        let midnight = day.and_time(NaiveTime::MIN);
        // No zone has ever leapt further than a day.
        let minutes = (0..=24 * 60).map(|minute| midnight + TimeDelta::minutes(minute));
        let first = minutes.filter_map(|at| zone.from_local_datetime(&at).earliest()).next()?;
        Some(first.to_utc())
    }

    /// Waits for the next beat of something that goes on beside the work; for a manual clock that never comes.
    pub async fn beat(&self, every: Duration) {
        match &self.0 {
            Kind::System => self.sleep(every).await,
            Kind::Manual(_) => std::future::pending().await,
        }
    }

    /// Waits; a manual clock moves forward by `duration` instead and returns at once.
    pub async fn sleep(&self, duration: Duration) {
        match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "the one place that waits")]
            Kind::System => tokio::time::sleep(duration).await,
            Kind::Manual(micros) => {
                let step = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
                micros.fetch_add(step, Ordering::SeqCst);
            }
        }
    }
}

/// What comes of some work, unless it takes longer than `limit` by the clock of the machine: what hangs does not care
/// for another.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let clock = Clock::system();
    tokio::select! {
        done = work => Some(done),
        () = clock.sleep(limit) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(DateTime::UNIX_EPOCH);
        assert_eq!(clock.now(), DateTime::UNIX_EPOCH);
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(clock.sleep(Duration::from_secs(2)));
        assert_eq!(clock.now_micros(), 2_000_000);
    }

    #[test]
    fn a_day_begins_at_midnight_of_the_zone_or_right_after_the_gap() {
        let start = |day: &str, zone: Tz| {
            let day = day.parse().expect("a day");
            Clock::start_of(day, zone).expect("a moment").to_rfc3339()
        };
        assert_eq!(start("2024-07-01", chrono_tz::Europe::Lisbon), "2024-06-30T23:00:00+00:00");
        assert_eq!(start("2024-07-01", chrono_tz::Asia::Kolkata), "2024-06-30T18:30:00+00:00");
        // Clocks went from 00:00 to 01:00.
        assert_eq!(start("2024-09-08", chrono_tz::America::Santiago), "2024-09-08T04:00:00+00:00");
        // Samoa had no 30 December 2011: it went on with the 31st.
        assert_eq!(start("2011-12-30", chrono_tz::Pacific::Apia), start("2011-12-31", chrono_tz::Pacific::Apia));
    }

    #[test]
    fn the_day_is_the_day_of_the_zone() {
        let clock = Clock::manual("2024-05-01T03:30:00Z".parse().expect("a time"));
        assert_eq!(clock.today(chrono_tz::UTC).to_string(), "2024-05-01");
        assert_eq!(clock.today(chrono_tz::America::New_York).to_string(), "2024-04-30");
    }
}
