//! The driver's name, and the names of what it creates for COSI.
//!
//! A COSI bucket or account can never be mistaken for one of an ObjectBucketClaim, or vice versa. The uid of a claim is
//! a UUID, which contains no dot. The name of a claim's account is `obc-` followed by the namespace and a hyphen, and a
//! namespace contains no dot.

use crate::options::BucketOptions;

/// The maximum length of a driver's name.
const LONGEST: usize = 63;
/// The maximum length of an object's name, and therefore of a bucket or account that COSI requests.
const MAX_NAME: usize = 253;

/// Checks that a text is a driver's name: labels of RFC 1035 separated by dots.
pub(crate) fn driver_name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(u8::is_ascii_lowercase)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    };
    if text.len() <= LONGEST && text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "expected at most {LONGEST} lower case letters, digits, `-` and `.`, and each part between dots begins with a letter, \
             such as s3.example.com"
        ))
    }
}

/// Returns the driver's name: the configured one, or one derived from the provisioner's name.
pub(crate) fn of_options(options: &BucketOptions) -> Result<String, String> {
    if let Some(name) = &options.cosi_driver_name {
        return driver_name(name).map_err(|problem| format!("--cosi-driver-name {name:?}: {problem}"));
    }
    let provisioner = &options.options.provisioner_name;
    let name = match provisioner.split_once('/') {
        Some((domain, name)) => format!("{}.{domain}", name.replace('_', "-")),
        None => provisioner.replace('_', "-"),
    };
    let set = "set --cosi-driver-name";
    driver_name(&name).map_err(|problem| format!("{provisioner:?} gives no name for a COSI driver: {problem}; {set}"))
}

/// Checks that COSI can have requested this name.
pub(super) fn check(what: &str, name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("{what} is required"));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_end = |letter: char| letter.is_ascii_alphanumeric();
    let ends_well = name.starts_with(is_end) && name.ends_with(is_end);
    if name.len() <= MAX_NAME && name.bytes().all(is_plain) && ends_well {
        Ok(())
    } else {
        Err(format!("{what} {name:?} is not possible: expected letters, digits, `-`, `_` and `.`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Account;

    #[test]
    fn driver_names_are_domain_names() {
        let of = |provisioner: &str, name: Option<&str>| {
            let mut options = BucketOptions::new(provisioner);
            options.cosi_driver_name = name.map(str::to_owned);
            of_options(&options)
        };
        assert_eq!(of("example.com/s3", None).unwrap(), "s3.example.com");
        assert_eq!(of("my_store", None).unwrap(), "my-store");
        assert_eq!(of("example.com/s3", Some("aws.example.com")).unwrap(), "aws.example.com");
        let long = format!("example.com/{}", "n".repeat(60));
        for provisioner in ["1.example.com/s3", &long, "example.com/3"] {
            assert!(of(provisioner, None).unwrap_err().contains("--cosi-driver-name"), "{provisioner}");
        }
        for name in ["", "S3", "a..b", "-a", "a-", "a_b", "a/b"] {
            assert!(driver_name(name).is_err(), "{name}");
        }
    }

    /// Searches for names that would collide.
    #[test]
    fn cosi_names_never_collide_with_claim_names() {
        let uid = "00000000-0000-4000-8000-000000000001";
        let accounts = |name| [Account::of_cosi_bucket(name), Account::of_cosi_access(name)];
        let cosi = [accounts(uid), accounts("photos")].concat();
        for (at, one) in cosi.iter().enumerate() {
            for other in &cosi[at + 1..] {
                assert!(one.name != other.name && one.claim.uid != other.claim.uid, "{one:?} {other:?}");
            }
            let (user, name) = (one.name.as_str(), &one.claim.name);
            assert!(one.claim.uid != uid && one.claim.uid.contains('.'));
            // A namespace extends at least to the first hyphen after it, and a dot comes before that.
            let rest = user.strip_prefix("obc-").unwrap();
            assert!(rest.find('.').unwrap() < rest.find('-').unwrap_or(rest.len()), "{user} {name}");
        }
    }

    #[test]
    fn checks_the_names_in_requests() {
        for name in ["bc-00000000-0000-4000-8000-000000000001", "photos.v2", "Photos_2"] {
            assert_eq!(check("name", name), Ok(()));
        }
        assert_eq!(check("name", ""), Err("name is required".to_owned()));
        for name in ["a/b", "../x", ".", "-a", "a b", "a\n", &"n".repeat(254)] {
            assert!(check("name", name).is_err(), "{name}");
        }
    }
}
