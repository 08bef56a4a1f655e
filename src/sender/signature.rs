//! Standard Webhooks signatures: `webhook-signature: v1,<base64>` over `<id>.<timestamp>.<body>`.
//!
//! The sender signs with every configured secret, newest first, so that a receiver can change its secret without
//! losing an event; the scripted receiver verifies with the same code. `whsec_` secrets are HMAC-SHA256 keys, `whsk_`
//! secrets are ed25519 private keys (signature version `v1a`).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustls::SignatureScheme;
use rustls::pki_types::PrivatePkcs8KeyDer;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// The document that turns a bare 32-byte ed25519 seed into PKCS #8 (RFC 8410, section 7): everything before the seed.
const ED25519_PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// Length of that seed.
const ED25519_SEED_BYTES: usize = 32;

/// A signing secret that has been decoded; its Debug shows nothing of it.
#[derive(Clone)]
pub struct SigningKey(Kind);

#[derive(Clone)]
enum Kind {
    Hmac(Hmac<Sha256>),
    Ed25519(Arc<dyn rustls::sign::SigningKey>),
}

/// Why a secret cannot sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// The part after the prefix is not base64.
    #[error("the signing secret is not base64; Standard Webhooks secrets look like whsec_<base64>")]
    NotBase64,
    /// Nothing after the prefix.
    #[error("the signing secret is empty")]
    Empty,
    /// Not an ed25519 private key.
    #[error("the whsk_ secret is not an ed25519 private key of 32 or 64 bytes")]
    NotEd25519,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(***)")
    }
}

impl SigningKey {
    /// Decodes `whsec_<base64>`, `whsk_<base64>` or bare base64 (an HMAC key).
    pub fn parse(secret: &str) -> Result<Self, InvalidSecret> {
        let (private, text) = match secret.trim().strip_prefix("whsk_") {
            Some(rest) => (true, rest),
            None => (false, secret.trim().trim_start_matches("whsec_")),
        };
        let key = STANDARD.decode(text).map_err(|_| InvalidSecret::NotBase64)?;
        if key.is_empty() {
            return Err(InvalidSecret::Empty);
        }
        if private { ed25519(&key) } else { Self::hmac(&key) }
    }

    fn hmac(key: &[u8]) -> Result<Self, InvalidSecret> {
        Hmac::<Sha256>::new_from_slice(key).map(|mac| Self(Kind::Hmac(mac))).map_err(|_| InvalidSecret::Empty)
    }

    /// The header value of one signature, without the version of others.
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let stamp = timestamp_s.to_string();
        match &self.0 {
            Kind::Hmac(mac) => {
                let mut mac = mac.clone();
                for part in [id.as_bytes(), b".", stamp.as_bytes(), b".", body] {
                    mac.update(part);
                }
                format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
            }
            Kind::Ed25519(key) => {
                let content = [id.as_bytes(), b".", stamp.as_bytes(), b".", body].concat();
                let signer = key
                    .choose_scheme(&[SignatureScheme::ED25519])
                    .expect("invariant: the key was loaded as ed25519");
                let signature =
                    signer.sign(&content).expect("invariant: ed25519 signing needs no randomness");
                format!("v1a,{}", STANDARD.encode(signature))
            }
        }
    }

    /// Whether one of the space-separated signatures of a `webhook-signature` header is this key's.
    pub fn verify(&self, header: &str, id: &str, timestamp_s: i64, body: &[u8]) -> bool {
        let expected = self.sign(id, timestamp_s, body);
        header.split(' ').any(|given| given.as_bytes().ct_eq(expected.as_bytes()).into())
    }
}

fn ed25519(key: &[u8]) -> Result<SigningKey, InvalidSecret> {
    // 64 bytes are the seed followed by the public key, as most libraries write them.
    if key.len() != ED25519_SEED_BYTES && key.len() != 2 * ED25519_SEED_BYTES {
        return Err(InvalidSecret::NotEd25519);
    }
    let document = [&ED25519_PKCS8_HEAD, &key[..ED25519_SEED_BYTES]].concat();
    rustls::crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(document))
        .map(|key| SigningKey(Kind::Ed25519(key)))
        .map_err(|_| InvalidSecret::NotEd25519)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_equal_the_published_vectors() {
        let hmac = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(
            hmac.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
        let ed25519 = SigningKey::parse(
            "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==",
        )
        .unwrap();
        assert_eq!(
            ed25519.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#),
            "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
        );
    }

    #[test]
    fn any_listed_signature_verifies_and_a_changed_body_does_not() {
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let header = format!("v1,bm90IHRoaXMgb25l {}", key.sign("id", 5, b"body"));
        assert!(key.verify(&header, "id", 5, b"body"));
        assert!(!key.verify(&header, "id", 5, b"body "));
        assert!(!key.verify(&header, "id", 6, b"body"));
    }

    #[test]
    fn a_secret_that_cannot_sign_is_refused_and_none_is_printed() {
        for (secret, why) in [
            ("whsec_", InvalidSecret::Empty),
            ("whsec_not base64", InvalidSecret::NotBase64),
            ("whsk_AAAA", InvalidSecret::NotEd25519),
        ] {
            assert_eq!(SigningKey::parse(secret).unwrap_err(), why, "{secret}");
        }
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(format!("{key:?}"), "SigningKey(***)");
    }
}
