//! Path patterns: the path of a volume, derived from the names of its claim.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::error::DirectoryError;
use crate::path::VolumePath;

/// A path with placeholders, such as `${pvc.metadata.namespace}/${pvc.metadata.name}`.
///
/// The pattern is validated when the class is read, so that no part of a claim can lead out of the root: the API server
/// checks the names of namespaces and claims. Only [`with_texts_of_claims`](Self::with_texts_of_claims) allows labels
/// and annotations, whose values are checked for each claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Namespace,
    Claim,
    Volume,
    Label(String),
    Annotation(String),
}

const PLACEHOLDERS: [(&str, Part); 3] = [
    ("pvc.metadata.namespace", Part::Namespace),
    ("pvc.metadata.name", Part::Claim),
    ("pv.metadata.name", Part::Volume),
];

/// The placeholders of nfs-subdir-external-provisioner.
const OF_SUBDIR: [(&str, Part); 2] = [(".PVC.namespace", Part::Namespace), (".PVC.name", Part::Claim)];
const LABEL: &str = ".PVC.labels.";
const ANNOTATION: &str = ".PVC.annotations.";

/// The values of the placeholders for one volume.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The claim's namespace.
    pub namespace: &'a str,
    /// The claim's name.
    pub claim: &'a str,
    /// The volume's name.
    pub volume: &'a str,
    /// The claim's labels.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// The claim's annotations.
    pub annotations: Option<&'a BTreeMap<String, String>>,
}

impl PathPattern {
    /// Returns the path of one volume.
    ///
    /// # Errors
    /// Fails if it is not a valid volume path, for example because two long names form a single directory name.
    pub fn path(&self, names: &Names<'_>) -> Result<VolumePath, DirectoryError> {
        let of_claim = |what: &'static str, all: Option<&BTreeMap<String, String>>, key: &String| {
            let text = all.and_then(|all| all.get(key)).filter(|text| !text.is_empty());
            text.cloned().ok_or_else(|| DirectoryError::MissingMetadata { what, key: key.clone() })
        };
        let text = |part: &Part| match part {
            Part::Text(text) => Ok(text.clone()),
            Part::Namespace => Ok(names.namespace.to_owned()),
            Part::Claim => Ok(names.claim.to_owned()),
            Part::Volume => Ok(names.volume.to_owned()),
            Part::Label(key) => of_claim("label", names.labels, key),
            Part::Annotation(key) => of_claim("annotation", names.annotations, key),
        };
        self.0.iter().map(text).collect::<Result<String, _>>()?.try_into()
    }

    /// Parses a pattern of nfs-subdir-external-provisioner, whose placeholders are `${.PVC.namespace}`, `${.PVC.name}`,
    /// `${.PVC.labels.KEY}` and `${.PVC.annotations.KEY}`, or a pattern with this crate's placeholders.
    ///
    /// Tenants control labels and annotations: their values are checked for each claim, and two claims may have the
    /// same value. The second claim is refused, because the mark of the directory names its owner.
    ///
    /// # Errors
    /// Returns the problem with the pattern.
    pub fn with_texts_of_claims(text: &str) -> Result<Self, String> {
        let pattern = Self::parse(text, |name| {
            let key = |prefix| name.strip_prefix(prefix).filter(|key: &&str| !key.is_empty()).map(str::to_owned);
            let known = OF_SUBDIR.into_iter().find(|(known, _)| *known == name).map(|(_, part)| part);
            known.or_else(|| key(LABEL).map(Part::Label)).or_else(|| key(ANNOTATION).map(Part::Annotation))
        })?;
        let of_claims = pattern.0.iter().any(|part| matches!(part, Part::Label(_) | Part::Annotation(_)));
        let pattern = if of_claims { pattern } else { pattern.ensure_unique()? };
        pattern.ensure_inside()
    }

    /// Returns the annotations of claims that the pattern needs.
    pub fn annotations(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Annotation(key) => Some(key.as_str()),
            _ => None,
        })
    }

    fn parse(text: &str, more: impl Fn(&str) -> Option<Part>) -> Result<Self, String> {
        if text.contains("{{") {
            return Err("Go templates are not supported: write ${pvc.metadata.namespace} instead of {{ .PVC.Namespace }}, \
                        ${pvc.metadata.name} instead of {{ .PVC.Name }}, and ${pv.metadata.name} instead of {{ .PVName }}"
                .to_owned());
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, behind) = after.split_once('}').ok_or("a `${` in it has no `}`")?;
            let known = PLACEHOLDERS.into_iter().find(|(known, _)| *known == name).map(|(_, part)| part);
            let part = known.or_else(|| more(name)).ok_or_else(|| {
                let name: String = name.chars().take(40).collect();
                format!(
                    "`${{{name}}}` is not a placeholder; use ${{pvc.metadata.namespace}}, ${{pvc.metadata.name}} and \
                     ${{pv.metadata.name}}"
                )
            })?;
            parts.extend([Part::Text(before.to_owned()), part]);
            rest = behind;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Self(parts))
    }

    /// Returns the pattern if its paths are inside the root.
    fn ensure_inside(self) -> Result<Self, String> {
        // All names of claims consist of allowed characters, so one example represents them.
        let example = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            _ => "x".to_owned(),
        };
        let path = self.0.iter().map(example).collect::<String>();
        VolumePath::try_from(path).map_err(|error| error.to_string())?;
        Ok(self)
    }

    fn ensure_unique(self) -> Result<Self, String> {
        let has = |part| self.0.contains(&part);
        match (has(Part::Volume), has(Part::Namespace) && has(Part::Claim)) {
            (true, _) => Ok(self),
            (false, true) if self.shows_namespace() => Ok(self),
            (false, true) => {
                Err("two claims could receive one directory, as the claims a/b-c and a-b/c do with `-`: between \
                     ${pvc.metadata.namespace} and ${pvc.metadata.name} the pattern needs `/`, `_` or `.`"
                    .to_owned())
            }
            (false, false) => Err("two claims could receive one directory: it needs ${pv.metadata.name}, or both \
                 ${pvc.metadata.namespace} and ${pvc.metadata.name}"
                .to_owned()),
        }
    }

    /// Returns true if the path shows where the name of the namespace ends: before each claim's name, there is a
    /// character that no namespace name contains.
    fn shows_namespace(&self) -> bool {
        let separates =
            |text: &str| text.contains(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        let ends = |parts: &mut dyn Iterator<Item = &Part>| {
            for part in parts {
                match part {
                    Part::Text(text) if separates(text) => return true,
                    Part::Claim => return false,
                    _ => {}
                }
            }
            true
        };
        let namespaces = self.0.iter().enumerate().filter(|(_, part)| **part == Part::Namespace);
        namespaces.map(|(at, _)| at).any(|at| {
            let (before, after) = (&self.0[..at], &self.0[at + 1..]);
            ends(&mut before.iter().rev()) && ends(&mut after.iter())
        })
    }
}

impl Default for PathPattern {
    /// The default is the volume's name.
    fn default() -> Self {
        Self(vec![Part::Volume])
    }
}

impl FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, |_| None)?.ensure_unique()?.ensure_inside()
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match (part, PLACEHOLDERS.iter().find(|(_, known)| known == part)) {
                (_, Some((name, _))) => write!(f, "${{{name}}}")?,
                (Part::Text(text), None) => f.write_str(text)?,
                (Part::Label(key), None) => write!(f, "${{{LABEL}{key}}}")?,
                (Part::Annotation(key), None) => write!(f, "${{{ANNOTATION}{key}}}")?,
                (_, None) => {}
            }
        }
        Ok(())
    }
}

kube_provisioner::deserialize_from_str!(PathPattern);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: Names<'static> =
        Names { namespace: "shop", claim: "data.db", volume: "pvc-1", labels: None, annotations: None };

    fn rendered(pattern: &str) -> Result<String, String> {
        let pattern: PathPattern = pattern.parse()?;
        pattern.path(&NAMES).map(String::from).map_err(|error| error.to_string())
    }

    #[test]
    fn replaces_placeholders_with_names() {
        for (pattern, path) in [
            ("${pv.metadata.name}", "pvc-1"),
            ("${pvc.metadata.namespace}/${pvc.metadata.name}", "shop/data.db"),
            ("team-a/${pvc.metadata.namespace}_${pvc.metadata.name}", "team-a/shop_data.db"),
            ("${pvc.metadata.namespace}-${pvc.metadata.name}-${pv.metadata.name}", "shop-data.db-pvc-1"),
            ("${pvc.metadata.namespace}.${pvc.metadata.name}", "shop.data.db"),
            ("${pvc.metadata.name}.${pvc.metadata.namespace}", "data.db.shop"),
            ("${pvc.metadata.namespace}/x-${pvc.metadata.namespace}-${pvc.metadata.name}", "shop/x-shop-data.db"),
        ] {
            assert_eq!(rendered(pattern).unwrap(), path);
            assert_eq!(pattern.parse::<PathPattern>().unwrap().to_string(), pattern);
        }
        assert_eq!(PathPattern::default().to_string(), "${pv.metadata.name}");
    }

    #[test]
    fn refuses_patterns_that_lead_out_or_are_not_unique() {
        for pattern in [
            "",
            "data",
            "/${pv.metadata.name}",
            "../${pv.metadata.name}",
            "${pv.metadata.name}/..",
            "${pvc.metadata.annotations.path}/${pv.metadata.name}",
            "${.PVC.annotations.nfs.io/path}",
            "{{ .PVC.Namespace }}/{{ .PVC.Name }}",
            "${pvc.metadata.labels['x']}",
            "${pvc.metadata.name}",
            "${pvc.metadata.namespace}",
            "${pvc.metadata.namespace}-${pvc.metadata.name}",
            "${pvc.metadata.namespace}${pvc.metadata.name}",
            "${pvc.metadata.name}-x-${pvc.metadata.namespace}",
            "${pvc.metadata.name}_${pvc.metadata.namespace}-${pvc.metadata.name}",
            "${pv.metadata.name",
            "${}${pv.metadata.name}",
            "${pv.metadata.name}/${",
            "$${pv.metadata.name}",
        ] {
            assert!(rendered(pattern).is_err(), "{pattern:?}");
        }
    }

    #[test]
    fn explains_how_to_rewrite_a_refused_pattern() {
        let refused = "{{ .PVC.Namespace }}/{{ .PVC.Name }}".parse::<PathPattern>().unwrap_err();
        assert!(refused.starts_with("Go templates are not supported: write ${pvc.metadata.namespace}"), "{refused}");
        let refused = "${pvc.metadata.namespace}-${pvc.metadata.name}".parse::<PathPattern>().unwrap_err();
        assert!(refused.contains("a/b-c and a-b/c"), "{refused}");
    }

    #[test]
    fn refuses_names_that_are_too_long_in_combination() {
        let pattern: PathPattern = "${pvc.metadata.namespace}_${pvc.metadata.name}".parse().unwrap();
        let (namespace, claim) = ("n".repeat(63), "c".repeat(253));
        let names = Names { namespace: &namespace, claim: &claim, volume: "pvc-1", labels: None, annotations: None };
        let refused = pattern.path(&names).unwrap_err().to_string();
        assert!(refused.contains("255 bytes") && refused.contains("create the claim with a shorter name"), "{refused}");
    }

    /// Tries all short patterns, and claims whose names contain the characters allowed in names.
    #[test]
    fn claims_never_share_a_path() {
        const TOKENS: [&str; 7] = ["x", "-", "_", "/", ".", "${pvc.metadata.namespace}", "${pvc.metadata.name}"];
        let (namespaces, claims) =
            (["a", "b", "a-a", "a-b"], ["a", "b", "a-a", "a-b", "b-a", "a.a", "a.b", "x", "a-x"]);
        let (mut patterns, mut accepted) = (vec![String::new()], 0);
        for _ in 0..4 {
            patterns = patterns.iter().flat_map(|one| TOKENS.map(|token| format!("{one}{token}"))).collect();
            for pattern in patterns.iter().filter_map(|text| text.parse::<PathPattern>().ok()) {
                accepted += 1;
                let mut paths = BTreeMap::new();
                for (namespace, claim) in
                    namespaces.iter().flat_map(|one| claims.iter().map(move |other| (*one, *other)))
                {
                    if let Ok(path) = pattern.path(&Names { namespace, claim, ..NAMES }) {
                        let other = paths.insert(path, (namespace, claim));
                        assert_eq!(other, None, "{pattern} of {namespace}/{claim}");
                    }
                }
            }
        }
        assert!(accepted > 50, "{accepted}");
    }

    proptest! {
        #[test]
        fn no_pattern_leads_out_of_the_root(pattern in "(\\PC|[./~$]|\\$\\{pv\\.metadata\\.name\\}|\\.\\./){0,8}") {
            if let Ok(path) = rendered(&pattern) {
                prop_assert!(path.split('/').all(|name| !name.is_empty() && !name.starts_with('.')), "{path}");
            }
        }
    }
}
