//! The cookie that names the endpoint of a session, so that nobody but us can write one, nor read the address in it.
//!
//! ```text
//! base64url( 1 | endpoint: 8 bytes | begun: 4 bytes | seen: 4 bytes | tag: 16 bytes )      44 characters
//! ```
//!
//! Times are seconds of Unix time. The tag is the first half of HMAC-SHA256 over the cluster's name and all before it. The
//! endpoint is written as 8 bytes of HMAC-SHA256 over its name: a plain hash of an address could be found by trying
//! them all. Instances with the same secret and the same cluster understand each other's cookies.

use aws_lc_rs::{constant_time, hmac};
use model::cookie;
use model::persistence::Secret;

use super::session::Dates;
use crate::cluster::EndpointPlan;
use crate::hash::FastMap;

const VERSION: u8 = 1;
const BODY: usize = 17;
const TAG: usize = 16;
const WHOLE: usize = BODY + TAG;

/// Signs and verifies the cookies of one cluster.
pub(super) struct Signer {
    /// The first signs.
    keys: Box<[SignerKey]>,
    /// What the first key calls the endpoints, by place.
    called: Box<[[u8; 8]]>,
    cluster: Box<[u8]>,
}

struct SignerKey {
    key: hmac::Key,
    /// Places of endpoints by what this key calls them.
    places: FastMap<u64, u32>,
}

/// What a genuine cookie says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Place of the endpoint; `None`: it is not in the cluster.
    pub(super) endpoint: Option<u32>,
    pub(super) dates: Dates,
    /// It was signed by a secret that signs no more.
    pub(super) is_of_old_secret: bool,
}

impl Signer {
    pub(super) fn new(cluster: &str, secrets: &[Secret], endpoints: &[EndpointPlan]) -> Self {
        let cluster: Box<[u8]> = cluster.as_bytes().into();
        let call = |key: &hmac::Key, plan: &EndpointPlan| {
            let parts = [b"endpoint\0", &cluster[..], b"\0", plan.endpoint.name.as_str().as_bytes()];
            first::<8>(&mac(key, &parts))
        };
        let key = |secret: &Secret| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &secret.0);
            let places = endpoints.iter().zip(0..).map(|(plan, place)| (u64::from_be_bytes(call(&key, plan)), place));
            SignerKey { places: places.collect(), key }
        };
        let keys: Box<[SignerKey]> = secrets.iter().map(key).collect();
        let called = keys.iter().take(1).flat_map(|key| endpoints.iter().map(|plan| call(&key.key, plan))).collect();
        Self { keys, called, cluster }
    }

    /// Appends the value of a cookie for the endpoint at this place.
    pub(super) fn sign(&self, endpoint: usize, dates: Dates, out: &mut Vec<u8>) {
        let (Some(signing), Some(called)) = (self.keys.first(), self.called.get(endpoint)) else { return };
        let mut whole = [0; WHOLE];
        whole[0] = VERSION;
        whole[1..9].copy_from_slice(called);
        whole[9..13].copy_from_slice(&dates.begun.to_be_bytes());
        whole[13..BODY].copy_from_slice(&dates.seen.to_be_bytes());
        let tag = self.tag(&signing.key, &whole[..BODY]);
        whole[BODY..].copy_from_slice(&tag);
        cookie::encode(&whole, out);
    }

    /// What a cookie says, if it is one of ours for this cluster.
    pub(super) fn verify(&self, value: &[u8]) -> Option<Shown> {
        let whole: [u8; WHOLE] = cookie::decode(value)?;
        let (body, tag) = whole.split_at(BODY);
        if body[0] != VERSION {
            return None;
        }
        let fits = |key: &SignerKey| constant_time::verify_slices_are_equal(&self.tag(&key.key, body), tag).is_ok();
        let place = self.keys.iter().position(fits)?;
        let number = |at: usize| u32::from_be_bytes(first(&body[at..]));
        Some(Shown {
            endpoint: self.keys[place].places.get(&u64::from_be_bytes(first(&body[1..]))).copied(),
            dates: Dates { begun: number(9), seen: number(13) },
            is_of_old_secret: place > 0,
        })
    }

    fn tag(&self, key: &hmac::Key, body: &[u8]) -> [u8; TAG] {
        first(&mac(key, &[b"session\0", &self.cluster, b"\0", body]))
    }
}

fn mac(key: &hmac::Key, parts: &[&[u8]]) -> [u8; 32] {
    let mut signing = hmac::Context::with_key(key);
    for part in parts {
        signing.update(part);
    }
    first(signing.sign().as_ref())
}

/// The first `N` bytes, of which there are as many.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}
