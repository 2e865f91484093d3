//! Explains a claim that does not exist, from events and quotas.

use serde_json::Value;

use crate::CommandContext;
use crate::answer::Answer;
use crate::common::{EventSummary, SHOWN, newest_first};
use crate::object::{at, name};
use crate::reader::{EVENT, QUOTA};

pub(super) async fn explain(context: &CommandContext<'_>, claim: &str, subject: String) -> Answer {
    let mut answer = Answer::new(subject, "does not exist");
    let events = context.reader.list(&EVENT, context.namespace, ("", "")).await.unwrap_or_default();
    // Controllers that create claims record an event when they fail, and so does the scheduler when a pod needs one.
    // Other events may contain the claim's name as an ordinary word, or concern an earlier claim.
    let names = [
        format!("create Claim {claim} "),
        format!("persistentvolumeclaims \"{claim}\""),
        format!("persistentvolumeclaim \"{claim}\""),
    ];
    let mentions =
        |recorded: &EventSummary| recorded.warning && names.iter().any(|name| recorded.message.contains(name));
    let mut recorded: Vec<EventSummary> = events.iter().map(EventSummary::read).filter(mentions).collect();
    newest_first(&mut recorded);
    let now = context.environment.now();
    answer.events.extend(recorded.iter().take(SHOWN).map(|event| event.line(now)));
    let full = full_quotas(context).await;
    if recorded.iter().any(|event| event.message.contains("exceeded quota")) {
        answer.state = "does not exist, because a quota refuses it".to_owned();
        answer.why = vec!["The API server refused it. A provisioner never sees such a claim.".to_owned()];
        answer.remedy = vec!["delete unused claims".to_owned(), "administrator: or raise the ResourceQuota".to_owned()];
    } else {
        if recorded.is_empty() {
            answer.why = vec![format!("No event in namespace {} reports that its creation failed.", context.namespace)];
        }
        answer.remedy = vec!["create it, or correct the name or the namespace (-n)".to_owned()];
    }
    for quota in full {
        answer.add_fact("Quota", quota);
    }
    answer
}

/// Returns the storage quotas that are used up.
async fn full_quotas(context: &CommandContext<'_>) -> Vec<String> {
    let quotas = context.reader.list(&QUOTA, context.namespace, ("", "")).await.unwrap_or_default();
    let mut full = Vec::new();
    for quota in &quotas {
        let Some(limits) = at(quota, &["status", "hard"]).as_object() else { continue };
        for (resource, hard) in limits {
            let of_storage = resource.contains("persistentvolumeclaims") || resource.contains("requests.storage");
            let used = at(quota, &["status", "used", resource]);
            if of_storage && reaches(used, hard) {
                let plain = |amount: &Value| amount.as_str().unwrap_or("?").to_owned();
                full.push(format!("{} allows {} {resource}, and {} are used", name(quota), plain(hard), plain(used)));
            }
        }
    }
    full
}

fn reaches(used: &Value, hard: &Value) -> bool {
    let amount = |value: &Value| kube_provisioner::quantity::parse_bytes(value.as_str()?).ok();
    amount(used).zip(amount(hard)).is_some_and(|(used, hard)| used >= hard)
}
