//! The headers of an attempt. Pure: the same attempt at the same moment gives the same headers.
//!
//! What changes between attempts of one event is `Waypost-Attempt`, and with signing on the timestamp and signature;
//! key, id and body never do (promise P3).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderName, InvalidHeaderValue,
    USER_AGENT,
};

use super::signature::SigningKey;
use crate::clock::rfc3339;
use crate::core::ids::{Device, EventId, EventType, IdempotencyKey};
use crate::core::time::UnixMillis;

/// `User-Agent` of every attempt.
pub const AGENT: &str = concat!("waypost/", env!("CARGO_PKG_VERSION"));
/// Longest value of an informative header: many servers stop at 8 KiB for all headers together.
const VALUE_BYTES_MAX: usize = 1024;
/// Everything that is not visible ASCII, and `%`, so that a value can be decoded again.
const NOT_VISIBLE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// `Idempotency-Key` as a header name.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// `webhook-id`, the event's public id.
pub const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
/// `webhook-timestamp`, Unix seconds of this attempt.
pub const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
/// `webhook-signature`, space-separated.
pub const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// `Waypost-Attempt`, from 1.
pub const ATTEMPT: HeaderName = HeaderName::from_static("waypost-attempt");
/// `Waypost-Device`.
pub const DEVICE: HeaderName = HeaderName::from_static("waypost-device");
/// `Waypost-Event-Type`.
pub const EVENT_TYPE: HeaderName = HeaderName::from_static("waypost-event-type");
/// `Waypost-Accepted-At`, RFC 3339.
pub const ACCEPTED_AT: HeaderName = HeaderName::from_static("waypost-accepted-at");

/// One attempt: what is sent, and the number it has.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Number from 1.
    pub number: u32,
    /// Public id of the event.
    pub id: EventId,
    /// Its wire key.
    pub key: IdempotencyKey,
    /// Who made it.
    pub device: Device,
    /// What it is.
    pub event_type: EventType,
    /// Stamp of acceptance.
    pub accepted_at: UnixMillis,
    /// Exact bytes.
    pub body: Bytes,
}

/// Form of the `Idempotency-Key` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KeyForm {
    /// As it is.
    #[default]
    Bare,
    /// A structured-field string, as the IETF draft wants it.
    Quoted,
}

/// A header setting that HTTP cannot carry.
#[derive(Debug, thiserror::Error)]
pub enum InvalidHeader {
    /// The name.
    #[error("`{0}` is not a header name")]
    Name(String, #[source] InvalidHeaderName),
    /// The value; it may be a secret, so it is not shown.
    #[error("the value of header `{0}` has characters that HTTP does not allow")]
    Value(String, #[source] InvalidHeaderValue),
}

/// Headers that every attempt at an endpoint has: ours, then the operator's over them.
pub fn template(extra: &BTreeMap<String, String>) -> Result<HeaderMap, InvalidHeader> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/geo+json"));
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    for (name, value) in extra {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|source| InvalidHeader::Name(name.clone(), source))?;
        let mut value =
            HeaderValue::from_str(value).map_err(|source| InvalidHeader::Value(name.clone(), source))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

/// `Authorization: Bearer …`
pub fn bearer(token: &str) -> Result<HeaderValue, InvalidHeader> {
    sensitive(&format!("Bearer {token}"))
}

/// `Authorization: Basic …`
pub fn basic(user: &str, password: &str) -> Result<HeaderValue, InvalidHeader> {
    sensitive(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

fn sensitive(text: &str) -> Result<HeaderValue, InvalidHeader> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|source| InvalidHeader::Value(AUTHORIZATION.to_string(), source))?;
    value.set_sensitive(true);
    Ok(value)
}

/// All headers of an attempt, on top of the endpoint's [`template`].
pub fn headers(
    template: &HeaderMap,
    attempt: &Attempt,
    form: KeyForm,
    signing: &[SigningKey],
    wall: UnixMillis,
) -> HeaderMap {
    let mut headers = template.clone();
    let id = attempt.id.to_string();
    headers.insert(IDEMPOTENCY_KEY, key_value(&attempt.key, form));
    headers.insert(ATTEMPT, HeaderValue::from(attempt.number));
    headers.insert(DEVICE, visible(attempt.device.as_str()));
    headers.insert(EVENT_TYPE, visible(attempt.event_type.as_str()));
    headers.insert(ACCEPTED_AT, visible(&rfc3339(attempt.accepted_at)));
    if !signing.is_empty() {
        let timestamp_s = wall.0.div_euclid(1_000);
        let signatures: Vec<_> =
            signing.iter().map(|key| key.sign(&id, timestamp_s, &attempt.body)).collect();
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(timestamp_s));
        headers.insert(WEBHOOK_SIGNATURE, visible_with(&signatures.join(" "), CONTROLS));
    }
    headers.insert(WEBHOOK_ID, visible(&id));
    headers
}

fn key_value(key: &IdempotencyKey, form: KeyForm) -> HeaderValue {
    match form {
        // A producer's own key goes out verbatim, so `%` stays as it is here.
        KeyForm::Bare => visible_with(key.as_str(), CONTROLS),
        KeyForm::Quoted => {
            let escaped = key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
            visible_with(&format!("\"{escaped}\""), CONTROLS)
        }
    }
}

/// A header value with everything but visible ASCII percent-encoded, cut at a whole encoded byte.
fn visible(text: &str) -> HeaderValue {
    visible_with(text, NOT_VISIBLE)
}

fn visible_with(text: &str, set: &'static AsciiSet) -> HeaderValue {
    let mut value = String::new();
    for part in percent_encode(text.as_bytes(), set) {
        // A part is one encoded byte or a run of plain ones; a run may be cut anywhere.
        let room = VALUE_BYTES_MAX - value.len();
        if part.len() <= room {
            value.push_str(part);
        } else {
            if !part.starts_with('%') {
                value.push_str(&part[..room]);
            }
            break;
        }
    }
    HeaderValue::try_from(value).expect("invariant: encoded values are ASCII without control characters")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::{Seq, StoreSalt};

    fn attempt(device: &str, key: &str) -> Attempt {
        Attempt {
            number: 3,
            id: EventId::new(1_764_547_200_000, Seq(7), StoreSalt(9)),
            key: key.into(),
            device: device.into(),
            event_type: "feature".into(),
            accepted_at: UnixMillis(1_764_547_200_123),
            body: Bytes::from_static(br#"{"test": 2432232314}"#),
        }
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn an_attempt_has_the_headers_of_the_contract_and_no_others() {
        let template = template(&BTreeMap::new()).unwrap();
        let headers = headers(&template, &attempt("gw-1", "idem:v2:00ff"), KeyForm::Bare, &[], UnixMillis(0));
        let agent = format!("user-agent: waypost/{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            shown(&headers),
            [
                "content-type: application/geo+json",
                "idempotency-key: idem:v2:00ff",
                &agent,
                "waypost-accepted-at: 2025-12-01T00:00:00.123Z",
                "waypost-attempt: 3",
                "waypost-device: gw-1",
                "waypost-event-type: feature",
                "webhook-id: 019ad735-8400-7000-8000-900000000007",
            ]
        );
    }

    #[test]
    fn what_is_not_visible_ascii_is_encoded_and_never_makes_a_second_header() {
        for (device, expected) in [
            ("plain-1", "plain-1"),
            ("Gerät 7", "Ger%C3%A4t%207"),
            ("a\r\nX-Evil: 1", "a%0D%0AX-Evil:%201"),
            ("\u{1b}[2J\0", "%1B[2J%00"),
            ("100%", "100%25"),
            ("", ""),
            ("   ", "%20%20%20"),
        ] {
            assert_eq!(visible(device).to_str().unwrap(), expected, "{device:?}");
        }
        assert_eq!(visible(&"x".repeat(10_000)).len(), VALUE_BYTES_MAX);
        assert_eq!(visible(&"ä".repeat(10_000)).len() % 3, 0, "cut at a whole encoded byte");
    }

    #[test]
    fn keys_go_out_bare_or_as_a_structured_field_string() {
        for (key, form, expected) in [
            ("idem:v2:ab", KeyForm::Bare, "idem:v2:ab"),
            ("idem:v2:ab", KeyForm::Quoted, "\"idem:v2:ab\""),
            ("with \"quotes\" \\ 50%", KeyForm::Bare, "with \"quotes\" \\ 50%"),
            ("with \"quotes\" \\ 50%", KeyForm::Quoted, "\"with \\\"quotes\\\" \\\\ 50%\""),
            ("line\nbreak", KeyForm::Bare, "line%0Abreak"),
        ] {
            assert_eq!(key_value(&key.into(), form).to_str().unwrap(), expected);
        }
    }

    #[test]
    fn both_secrets_sign_during_a_rotation() {
        let keys = [
            SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(),
            SigningKey::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap(),
        ];
        let attempt = attempt("d", "k");
        let headers =
            headers(&HeaderMap::new(), &attempt, KeyForm::Bare, &keys, UnixMillis(1_614_265_330_999));
        assert_eq!(headers[WEBHOOK_TIMESTAMP], "1614265330");
        let signature = headers[WEBHOOK_SIGNATURE].to_str().unwrap();
        assert_eq!(signature.split(' ').count(), 2);
        for key in keys {
            assert!(key.verify(signature, &attempt.id.to_string(), 1_614_265_330, &attempt.body));
        }
    }

    #[test]
    fn an_operator_may_change_the_content_type_but_not_smuggle_a_header() {
        let extra = BTreeMap::from([("Content-Type".to_owned(), "text/plain".to_owned())]);
        assert_eq!(template(&extra).unwrap()[CONTENT_TYPE], "text/plain");
        let extra = BTreeMap::from([("X".to_owned(), "a\r\nY: b".to_owned())]);
        assert!(matches!(template(&extra), Err(InvalidHeader::Value(..))));
        assert_eq!(basic("Aladdin", "open sesame").unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(!format!("{:?}", bearer("geheim").unwrap()).contains("geheim"));
    }
}
