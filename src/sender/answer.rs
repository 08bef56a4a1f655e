//! The parts of an answer that decisions need, from its headers.

use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use crate::core::classify::{Answer, RateLimit};

/// `RateLimit` of draft-ietf-httpapi-ratelimit-headers.
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// Longest Retry-After value that is looked at: an HTTP date has 29 characters.
const RETRY_AFTER_BYTES_MAX: usize = 64;
/// More Retry-After fields than this are a mistake of the receiver; policy sees that there were several.
const RETRY_AFTER_FIELDS_MAX: usize = 4;

/// An answer without its body.
pub fn head(status: u16, headers: &HeaderMap) -> Answer {
    Answer {
        status,
        retry_after: retry_after(headers),
        date_unix_s: headers.get(DATE).and_then(text).and_then(http_date_unix_s),
        rate_limit: headers.get(RATE_LIMIT).and_then(text).and_then(rate_limit),
        content_type: headers.get(CONTENT_TYPE).and_then(text).map(media_type).unwrap_or_default(),
        body: Vec::new(),
    }
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

fn retry_after(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(RETRY_AFTER)
        .iter()
        .take(RETRY_AFTER_FIELDS_MAX)
        .map(|value| {
            let bytes = value.as_bytes();
            String::from_utf8_lossy(&bytes[..bytes.len().min(RETRY_AFTER_BYTES_MAX)]).into_owned()
        })
        .collect()
}

fn media_type(value: &str) -> String {
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Unix seconds of `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date_unix_s(value: &str) -> Option<i64> {
    jiff::fmt::rfc2822::parse(value).ok().map(|zoned| zoned.timestamp().as_second())
}

/// `"name";r=N;t=S`, of several the one with least left. Anything malformed: as if the field were not there.
fn rate_limit(value: &str) -> Option<RateLimit> {
    value
        .split(',')
        .map(|item| {
            let parameter = |name: &str| {
                item.split(';').find_map(|part| part.trim().strip_prefix(name)?.trim().parse().ok())
            };
            Some(RateLimit { remaining: parameter("r=")?, reset_s: parameter("t=").unwrap_or(0) })
        })
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .min_by_key(|limit| limit.remaining)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_keeps_what_decisions_need() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("retry-after", "120"),
            ("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT"),
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("content-type", "Text/HTML; charset=utf-8"),
            ("ratelimit", "\"default\";r=0;t=30"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let answer = head(429, &headers);
        assert_eq!(answer.retry_after, ["120", "Fri, 31 Dec 1999 23:59:59 GMT"]);
        assert_eq!(answer.date_unix_s, Some(784_111_777));
        assert_eq!(answer.content_type, "text/html");
        assert_eq!(answer.rate_limit, Some(RateLimit { remaining: 0, reset_s: 30 }));
    }

    #[test]
    fn malformed_fields_are_as_good_as_absent() {
        for value in ["", "r", "r=-1", "\"a\";r=x;t=3", "\"a\";t=3", "\"a\";r=5;t=1,nonsense"] {
            assert_eq!(rate_limit(value), None, "{value}");
        }
        assert_eq!(rate_limit("\"a\";r=5;t=1, \"b\";r=2;t=9"), Some(RateLimit { remaining: 2, reset_s: 9 }));
        assert_eq!(http_date_unix_s("yesterday"), None);
    }
}
