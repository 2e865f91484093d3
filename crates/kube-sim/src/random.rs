//! The random values of an API server, drawn from one seed.

use std::time::Duration;

/// The seeded generator of one cluster.
#[derive(Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns a UID that looks like an RFC 4122 random one.
    pub(crate) fn uid(&mut self) -> String {
        let bits = self.0.u128(..) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
        let (first, second, third) = (bits >> 96, bits >> 80 & 0xffff, bits >> 64 & 0xffff);
        let (fourth, fifth) = (bits >> 48 & 0xffff, bits & 0xffff_ffff_ffff);
        format!("{first:08x}-{second:04x}-{third:04x}-{fourth:04x}-{fifth:012x}")
    }

    /// Returns the suffix for `generateName`: five characters without vowels and look-alikes, like `util/rand.String`.
    pub(crate) fn name_suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(ALPHABET[self.0.usize(..ALPHABET.len())])).collect()
    }

    /// Returns the timeout of a watch without `timeoutSeconds`: 30 to 60 minutes (`--min-request-timeout` times 1 to
    /// 2).
    pub(crate) fn watch_timeout(&mut self) -> Duration {
        Duration::from_secs(1800).mul_f64(1.0 + self.0.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_draws_same_values() {
        let (mut one, mut other) = (Random::new(7), Random::new(7));
        assert_eq!((one.uid(), one.name_suffix()), (other.uid(), other.name_suffix()));
        assert_ne!(one.uid(), Random::new(8).uid());
    }

    #[test]
    fn uids_look_like_random_uuids() {
        let mut random = Random::new(1);
        for _ in 0..100 {
            let uid = random.uid();
            assert_eq!((uid.len(), &uid[14..15]), (36, "4"), "{uid}");
            assert!("89ab".contains(&uid[19..20]), "{uid}");
        }
    }
}
