//! The rules: their names, what they say, and their checks.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures::FutureExt;

use super::report::RuleResult;
use super::subject::Subject;
use super::verdict::{Broken, Judgement};
use super::{calls, cancellation, names, parameters, runs, storm, unfinished};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Provision,
    Idempotent,
    Separate,
    DeleteGone,
    CancelProvision,
    CancelDelete,
    Abandoned,
    CleanUp,
    FencingToken,
    NothingLeft,
    Capacity,
    Expand,
    ForeignVolume,
    OneName,
    MadeByHand,
    UnknownParameters,
    RefusedParameters,
    Standby,
    Restart,
    TwoReplicas,
    HundredClaims,
    Storm,
}

impl Rule {
    /// All there are, the simpler ones first: what breaks them breaks the later ones too.
    pub(super) const ALL: [Self; 22] = [
        Self::Provision,
        Self::Idempotent,
        Self::Separate,
        Self::DeleteGone,
        Self::CancelProvision,
        Self::CancelDelete,
        Self::Abandoned,
        Self::CleanUp,
        Self::FencingToken,
        Self::NothingLeft,
        Self::Capacity,
        Self::Expand,
        Self::ForeignVolume,
        Self::OneName,
        Self::MadeByHand,
        Self::UnknownParameters,
        Self::RefusedParameters,
        Self::Standby,
        Self::Restart,
        Self::TwoReplicas,
        Self::HundredClaims,
        Self::Storm,
    ];

    /// Its name, which never changes: tests choose by it.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Idempotent => "idempotent",
            Self::Separate => "separate",
            Self::DeleteGone => "delete-gone",
            Self::CancelProvision => "cancel-provision",
            Self::CancelDelete => "cancel-delete",
            Self::Abandoned => "abandoned",
            Self::CleanUp => "clean-up",
            Self::FencingToken => "fencing-token",
            Self::NothingLeft => "nothing-left",
            Self::Capacity => "capacity",
            Self::Expand => "expand",
            Self::ForeignVolume => "foreign-volume",
            Self::OneName => "one-name",
            Self::MadeByHand => "made-by-hand",
            Self::UnknownParameters => "unknown-parameters",
            Self::RefusedParameters => "refused-parameters",
            Self::Standby => "standby",
            Self::Restart => "restart",
            Self::TwoReplicas => "two-replicas",
            Self::HundredClaims => "hundred-claims",
            Self::Storm => "storm",
        }
    }

    const fn says(self) -> &'static str {
        match self {
            Self::Provision => "a request makes one asset and a valid volume",
            Self::Idempotent => "the same request again, also by a new process, finds the same asset and volume",
            Self::Separate => "volumes of different names share nothing",
            Self::DeleteGone => "deleting removes the asset; deleting an absent or incomplete asset succeeds",
            Self::CancelProvision => {
                "after a cancellation at any await, provisioning again makes one asset, and deleting leaves none"
            }
            Self::CancelDelete => "after a cancellation at any await, deleting again removes everything",
            Self::Abandoned => "after a cancellation at any await, an attempt for a deleted claim leaves nothing",
            Self::CleanUp => {
                "after a cancellation at any await, cleaning up again removes everything; cleaning up nothing succeeds"
            }
            Self::FencingToken => {
                "whenever a process loses its fencing token, the next call continues, and nothing is made twice"
            }
            Self::NothingLeft => "an error that reports nothing left behind is true",
            Self::Capacity => "a volume is at least as large as the request",
            Self::Expand => "a volume grows, also when repeated by a new process, and never shrinks",
            Self::ForeignVolume => "deleting a volume that claims to be another one leaves the other alone",
            Self::OneName => "two claims race for one name: neither gets the asset of the other",
            Self::MadeByHand => {
                "an asset that a person created under a volume's name is neither taken over nor removed"
            }
            Self::UnknownParameters => "an unknown parameter is refused, and the claim's event names it",
            Self::RefusedParameters => {
                "bad parameters are refused once, with an event on the claim, and the backend stays untouched"
            }
            Self::Standby => "a standby process reports ready and changes nothing",
            Self::Restart => "with repeated crashes, every claim is bound, nothing is made twice, and nothing is left",
            Self::TwoReplicas => "two processes at once, as in a rolling update, make nothing twice and leave nothing",
            Self::HundredClaims => "a hundred claims at once are all bound, and all deleted",
            Self::Storm => {
                "after faults of the API server and of the machine, every claim and volume reaches its final state"
            }
        }
    }
}

pub(super) async fn judge(rule: Rule, subject: &Subject) -> RuleResult {
    let start = Instant::now();
    let check = async {
        match rule {
            Rule::Provision => calls::provision(subject).await,
            Rule::Idempotent => calls::idempotent(subject).await,
            Rule::Separate => calls::separate(subject).await,
            Rule::DeleteGone => calls::delete_gone(subject).await,
            Rule::CancelProvision => cancellation::provision(subject).await,
            Rule::CancelDelete => cancellation::delete(subject).await,
            Rule::Abandoned => unfinished::abandoned(subject).await,
            Rule::CleanUp => unfinished::clean_up(subject).await,
            Rule::FencingToken => unfinished::fencing_token(subject).await,
            Rule::NothingLeft => unfinished::nothing_left(subject).await,
            Rule::Capacity => calls::capacity(subject).await,
            Rule::Expand => calls::expand(subject).await,
            Rule::ForeignVolume => calls::foreign_volume(subject).await,
            Rule::OneName => names::one_name(subject).await,
            Rule::MadeByHand => names::made_by_hand(subject).await,
            Rule::UnknownParameters => parameters::unknown(subject).await,
            Rule::RefusedParameters => parameters::refused(subject).await,
            Rule::Standby => calls::standby(subject).await,
            Rule::Restart => runs::restart(subject).await,
            Rule::TwoReplicas => runs::two_replicas(subject).await,
            Rule::HundredClaims => runs::hundred_claims(subject).await,
            Rule::Storm => storm::storms(subject).await,
        }
    };
    let judgement = match AssertUnwindSafe(check).catch_unwind().await {
        Ok(Ok(judgement)) => judgement,
        Ok(Err(Broken(seen))) => Judgement::Broken(seen),
        Err(panic) => Judgement::Broken(format!("panicked: {}", panic_text(&*panic))),
    };
    RuleResult::new(rule.id(), rule.says(), judgement, start.elapsed())
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_explained() {
        let page = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/book/pages/reference/conformance.md"
        ))
        .unwrap();
        let sections = page.lines().filter_map(|line| line.strip_prefix("## "));
        let sections: Vec<&str> = sections.filter(|section| !section.starts_with("bucket-")).collect();
        assert_eq!(sections, Rule::ALL.map(Rule::id));
    }
}
