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
            Self::Provision => "a request makes one asset and a volume that can be saved",
            Self::Idempotent => "the same request again, also by a new process, finds the same asset and volume",
            Self::Separate => "volumes of different names never meet",
            Self::DeleteGone => "deleting removes the asset; deleting what is gone or half made succeeds",
            Self::CancelProvision => "cut off at any await, provisioning again makes one asset, and deleting none",
            Self::CancelDelete => "cut off at any await, deleting again removes everything",
            Self::Abandoned => "cut off at any await, an attempt whose claim goes leaves nothing",
            Self::CleanUp => "cut off at any await, cleaning up again removes everything; nothing there is success",
            Self::FencingToken => "whenever its right to act ends, the next call goes on, and nothing is made twice",
            Self::NothingLeft => "who says that nothing is left has left nothing",
            Self::Capacity => "a volume is at least as large as was asked for",
            Self::Expand => "a volume grows, also again and by a new process, and never shrinks",
            Self::ForeignVolume => "deleting a volume that says it is another leaves the other alone",
            Self::OneName => "of two claims that want one name at once, none gets what is the other's",
            Self::MadeByHand => "what somebody makes by hand under a volume's name is neither taken nor removed",
            Self::UnknownParameters => "a parameter that nobody knows is refused, and the claim's user told its name",
            Self::RefusedParameters => "bad parameters are refused once, the claim's user told, the backend untouched",
            Self::Standby => "a process that waits for its turn says that it is ready, and changes nothing",
            Self::Restart => "killed again and again, it binds every claim, makes nothing twice and leaves nothing",
            Self::TwoReplicas => "two at once, as while one replaces the other, make nothing twice and leave nothing",
            Self::HundredClaims => "a hundred claims at once are all bound, and all removed",
            Self::Storm => "whatever the API server and the machine do, all comes right when they calm down",
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
