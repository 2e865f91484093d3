//! Query parameters, and the options in the body of a delete.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use serde::Deserialize;
use serde_json::Value;

use super::Verb;
use crate::defaults::FieldValidation;
use crate::go_json;
use crate::patch::PatchKind;
use crate::status::{Cause, Status};

/// The known query parameters of a request. Unknown ones are ignored, as in the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `labelSelector`.
    pub label_selector: String,
    /// `fieldSelector`.
    pub field_selector: String,
    /// `limit`; 0 for none.
    pub limit: usize,
    /// `continue`.
    pub continue_token: String,
    /// `resourceVersion`; empty for the newest.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub resource_version_match: String,
    /// `watch`.
    pub watch: bool,
    /// `allowWatchBookmarks`.
    pub allow_watch_bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// `timeoutSeconds`; 0 for none.
    pub timeout_seconds: u64,
    /// `dryRun=All`: the request is validated but not written.
    pub dry_run: bool,
    /// `fieldManager`.
    pub field_manager: String,
    /// `force` of an apply.
    pub force: Option<bool>,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// `includeObject`: the objects in the rows of a table.
    pub include_object: String,
    /// An unknown value of `fieldValidation`.
    pub(crate) odd_field_validation: Option<String>,
    /// The options of a delete.
    pub delete: DeleteOptions,
}

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteOptions {
    /// Seconds until a pod is killed. Other resources ignore it.
    pub grace_period_seconds: Option<i64>,
    /// The preconditions of the delete.
    pub preconditions: Option<Preconditions>,
    /// Predecessor of `propagation_policy`.
    pub orphan_dependents: Option<bool>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<String>,
    /// `["All"]`: the request is validated, but the object is not deleted.
    pub dry_run: Vec<String>,
}

/// The object must have these values to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preconditions {
    /// The UID.
    pub uid: Option<String>,
    /// The resourceVersion.
    pub resource_version: Option<String>,
}

/// `FieldManagerMaxLength`
pub(crate) const MAX_MANAGER: usize = 128;

impl Options {
    /// Parses a query.
    pub(crate) fn parse(query: &str) -> Result<Self, Status> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value);
            match &*decode(key) {
                "labelSelector" => options.label_selector = value.into_owned(),
                "fieldSelector" => options.field_selector = value.into_owned(),
                "limit" => options.limit = usize::try_from(integer(&value)?).unwrap_or(0),
                "continue" => options.continue_token = value.into_owned(),
                "resourceVersion" => options.resource_version = value.into_owned(),
                "resourceVersionMatch" => options.resource_version_match = value.into_owned(),
                "watch" => options.watch = boolean(&value),
                "allowWatchBookmarks" => options.allow_watch_bookmarks = boolean(&value),
                "sendInitialEvents" => options.send_initial_events = Some(boolean(&value)),
                "timeoutSeconds" => options.timeout_seconds = u64::try_from(integer(&value)?).unwrap_or(0),
                "dryRun" => options.delete.dry_run.push(value.into_owned()),
                "fieldManager" => options.field_manager = value.into_owned(),
                "force" => options.force = Some(boolean(&value)),
                "fieldValidation" => match &*value {
                    "" | "Warn" => options.field_validation = FieldValidation::Warn,
                    "Ignore" => options.field_validation = FieldValidation::Ignore,
                    "Strict" => options.field_validation = FieldValidation::Strict,
                    _ => options.odd_field_validation = Some(value.into_owned()),
                },
                "includeObject" => options.include_object = value.into_owned(),
                "gracePeriodSeconds" => options.delete.grace_period_seconds = Some(integer(&value)?),
                "orphanDependents" => options.delete.orphan_dependents = Some(boolean(&value)),
                "propagationPolicy" => options.delete.propagation_policy = Some(value.into_owned()),
                _ => {}
            }
        }
        Ok(options)
    }

    /// Parses the body of a delete. It replaces the options in the query.
    pub(crate) fn read_delete_body(&mut self, body: &[u8]) -> Result<(), Status> {
        if body.is_empty() {
            return Ok(());
        }
        let unknown = |why: String| Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"));
        let body = go_json::parse(body).map_err(unknown)?.value;
        if !matches!(body, Value::Null | Value::Object(_)) {
            return Err(unknown(super::no_object(&body)));
        }
        let text = |field: &str, default: &str| match body.get(field).and_then(Value::as_str) {
            None | Some("") => default.to_owned(),
            Some(text) => text.to_owned(),
        };
        let (kind, version) = (text("kind", "DeleteOptions"), text("apiVersion", "v1"));
        if kind != "DeleteOptions" {
            return Err(Status::bad_request(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        self.delete = serde_json::from_value::<Option<DeleteOptions>>(body)
            .map_err(|error| {
                Status::bad_request(format!(
                    "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: {error}"
                ))
            })?
            .unwrap_or_default();
        Ok(())
    }

    /// Runs the server's checks for this verb, and sets `dry_run`. `patch` is the kind of a patch.
    pub(crate) fn complete(&mut self, verb: Verb, patch: Option<PatchKind>) -> Result<(), Status> {
        let (kind, mut causes) = match verb {
            Verb::Get => return Ok(()),
            Verb::List => ("ListOptions", self.list_causes()),
            Verb::Watch => ("ListOptions", self.watch_causes()),
            Verb::Create => ("CreateOptions", self.manager_causes()),
            Verb::Update => ("UpdateOptions", self.manager_causes()),
            Verb::Patch => ("PatchOptions", self.patch_causes(patch)),
            Verb::Delete | Verb::DeleteCollection => ("DeleteOptions", self.delete.causes()),
        };
        if !verb.is_read() {
            if self.delete.dry_run.iter().any(|word| word != "All") {
                causes.push(Cause::not_supported("dryRun", &self.delete.dry_run.clone().into(), &["All"]));
            }
            self.dry_run = !self.delete.dry_run.is_empty();
            if let Some(text) = &self.odd_field_validation {
                let known = ["", "Ignore", "Strict", "Warn"];
                causes.push(Cause::not_supported("fieldValidation", &text.as_str().into(), &known));
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(Status::invalid_kind("meta.k8s.io", kind, "", causes)) }
    }

    /// `ValidatePatchOptions` of apimachinery's `meta/v1/validation`.
    fn patch_causes(&self, kind: Option<PatchKind>) -> Vec<Cause> {
        let mut causes = Vec::new();
        if kind == Some(PatchKind::Apply) {
            if self.field_manager.is_empty() {
                causes.push(Cause::required("fieldManager", "is required for apply patch"));
            }
        } else if self.force.is_some() {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
        causes.extend(self.manager_causes());
        causes
    }

    /// `ValidateFieldManager` of apimachinery's `meta/v1/validation`.
    fn manager_causes(&self) -> Vec<Cause> {
        const FIELD: &str = "fieldManager";
        let mut causes = Vec::new();
        if self.field_manager.len() > MAX_MANAGER {
            causes.push(Cause::too_long(FIELD, MAX_MANAGER));
        }
        for (position, letter) in self.field_manager.char_indices().filter(|(_, letter)| letter.is_control()) {
            let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(letter));
            causes.push(Cause::invalid(FIELD, &self.field_manager.as_str().into(), &detail));
        }
        causes
    }

    /// `ValidateListOptions` of apimachinery's `meta/internalversion/validation`.
    fn list_causes(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let field = "resourceVersionMatch";
        let wanted = self.resource_version_match.as_str();
        if !wanted.is_empty() {
            if self.resource_version.is_empty() {
                causes.push(Cause::forbidden(
                    field,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                causes.push(Cause::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(wanted, "Exact" | "NotOlderThan") {
                causes.push(Cause::not_supported(field, &wanted.into(), &["Exact", "NotOlderThan", ""]));
            }
            if wanted == "Exact" && self.resource_version == "0" {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(Cause::forbidden(field, detail));
            }
        }
        if self.send_initial_events.is_some() {
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        causes
    }

    /// `validateWatchOptions` of apimachinery's `meta/internalversion/validation`.
    fn watch_causes(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let field = "resourceVersionMatch";
        let wanted = self.resource_version_match.as_str();
        if self.send_initial_events.is_some() && wanted != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden(field, detail));
        }
        if !wanted.is_empty() {
            if self.send_initial_events.is_none() {
                let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(Cause::forbidden(field, detail));
            }
            if wanted != "NotOlderThan" {
                causes.push(Cause::not_supported(field, &wanted.into(), &["NotOlderThan"]));
            }
            if !self.continue_token.is_empty() {
                causes.push(Cause::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        causes
    }
}

impl DeleteOptions {
    /// `ValidateDeleteOptions` of apimachinery's `meta/v1/validation`.
    fn causes(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let (Some(policy), Some(_)) = (&self.propagation_policy, self.orphan_dependents) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &policy.as_str().into(), detail));
        }
        if let Some(policy) = &self.propagation_policy
            && !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan")
        {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(Cause::not_supported("propagationPolicy", &policy.as_str().into(), &known));
        }
        causes
    }
}

fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_decode(spaced.as_bytes()).decode_utf8_lossy().into_owned())
}

/// Parses a boolean like the server: everything except these texts is true.
fn boolean(text: &str) -> bool {
    !matches!(text.to_ascii_lowercase().as_str(), "false" | "0")
}

fn integer(text: &str) -> Result<i64, Status> {
    let refuse = |_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    text.parse().map_err(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_query_parameters() {
        let options =
            Options::parse("limit=5&labelSelector=a%3Db%2Cc+in+%28d%29&watch=1&allowWatchBookmarks=false&x=y").unwrap();
        assert_eq!((options.limit, options.label_selector.as_str()), (5, "a=b,c in (d)"));
        assert_eq!((options.watch, options.allow_watch_bookmarks), (true, false));
        assert_eq!(Options::parse("limit=x").unwrap_err().code, 400);
    }

    #[test]
    fn delete_body_replaces_query_options() {
        let mut options = Options::parse("propagationPolicy=Orphan").unwrap();
        let body = br#"{"preconditions":{"uid":"u"},"dryRun":["All"]}"#;
        options.read_delete_body(body).unwrap();
        options.complete(Verb::Delete, None).unwrap();
        assert_eq!((options.delete.propagation_policy, options.dry_run), (None, true));
        assert_eq!(options.delete.preconditions.unwrap().uid.as_deref(), Some("u"));
    }
}
