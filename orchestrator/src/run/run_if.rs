//! When a task runs by what became of the tasks it depends on: the conditions of Databricks jobs, with their meaning.

use schemars::JsonSchema;
use serde::Deserialize;

/// The condition under which a task is run once all its dependencies have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunIf {
    /// All succeeded.
    #[default]
    AllSuccess,
    /// All have ended, whatever became of them.
    AllDone,
    /// None failed, and at least one was run.
    NoneFailed,
    /// At least one succeeded.
    AtLeastOneSuccess,
    /// All failed.
    AllFailed,
    /// At least one failed.
    AtLeastOneFailed,
}

/// What became of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dependency {
    /// It was run and ended well, whether it had anything to do or not.
    Succeeded,
    /// It failed, or was not run because something before it failed.
    Failed,
    /// Its condition asked for a failure that did not come. That counts as a success.
    Excluded,
    /// The spec says not to run it. That counts as a success.
    Disabled,
}

/// What is done with a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is run.
    Run,
    /// It is not run, and counts as failed for those that depend on it.
    UpstreamFailed,
    /// It is not run, and counts as successful; the reason.
    Excluded(&'static str),
}

impl RunIf {
    /// What is done with a task whose dependencies have ended so. A task of which none belongs to the run is run.
    pub(crate) fn decide(self, dependencies: &[Dependency]) -> Decision {
        let of = |wanted: Dependency| dependencies.iter().filter(|dependency| **dependency == wanted).count();
        let (all, failed, succeeded) = (dependencies.len(), of(Dependency::Failed), of(Dependency::Succeeded));
        if all == 0 {
            return Decision::Run;
        }
        if of(Dependency::Excluded) == all {
            return Decision::Excluded("all that it depends on was excluded");
        }
        let unless_upstream_failed = |is_met: bool| if is_met { Decision::Run } else { Decision::UpstreamFailed };
        match self {
            Self::AllDone => Decision::Run,
            Self::AllSuccess => unless_upstream_failed(failed == 0),
            Self::AtLeastOneSuccess => unless_upstream_failed(failed < all),
            Self::NoneFailed if failed > 0 => Decision::UpstreamFailed,
            Self::NoneFailed if succeeded > 0 => Decision::Run,
            Self::NoneFailed => Decision::Excluded("nothing that it depends on was run"),
            Self::AllFailed if failed == all => Decision::Run,
            Self::AllFailed => Decision::Excluded("not all that it depends on failed"),
            Self::AtLeastOneFailed if failed > 0 => Decision::Run,
            Self::AtLeastOneFailed => Decision::Excluded("nothing that it depends on failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Dependency::{Disabled, Excluded, Failed, Succeeded};
    use super::*;

    const ALL: [RunIf; 6] = [
        RunIf::AllSuccess,
        RunIf::AllDone,
        RunIf::NoneFailed,
        RunIf::AtLeastOneSuccess,
        RunIf::AllFailed,
        RunIf::AtLeastOneFailed,
    ];

    /// `r` run, `u` upstream failed, `e` excluded; in the order of `ALL`.
    fn verdicts(dependencies: &[Dependency]) -> String {
        let letter = |run_if: RunIf| match run_if.decide(dependencies) {
            Decision::Run => 'r',
            Decision::UpstreamFailed => 'u',
            Decision::Excluded(_) => 'e',
        };
        ALL.into_iter().map(letter).collect()
    }

    #[test]
    fn conditions_mean_what_databricks_says() {
        let cases: [(&[Dependency], &str); 10] = [
            (&[], "rrrrrr"),
            (&[Succeeded, Succeeded], "rrrree"),
            (&[Succeeded, Failed], "ururer"),
            (&[Failed, Failed], "uruurr"),
            (&[Succeeded, Excluded], "rrrree"),
            (&[Failed, Excluded], "ururer"),
            (&[Excluded, Excluded], "eeeeee"),
            (&[Disabled, Disabled], "rreree"),
            (&[Disabled, Failed], "ururer"),
            (&[Disabled, Succeeded], "rrrree"),
        ];
        for (dependencies, expected) in cases {
            assert_eq!(verdicts(dependencies), expected, "{dependencies:?}");
        }
    }
}
