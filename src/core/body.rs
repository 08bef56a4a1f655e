//! Bodies that lie about their status: receivers that answer errors with 200, and portals that answer in their place.
//!
//! Only the start of a body is known (the sender reads to a bound), so JSON is read as far as it goes: what was seen
//! before the cut counts. Which profile an endpoint needs is its operator's knowledge; the default only refuses web
//! pages.

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::classify::Answer;
use super::policy::BodyCheck;

/// What a body says about a 2xx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Belief {
    /// It is one.
    Delivered,
    /// A web page: somebody else answered.
    Captive,
    /// It carries an error that has a status of its own.
    Status(u16),
    /// It refuses this event for good.
    Refused(&'static str),
    /// It is not a proper answer; trying again may help.
    Doubtful(&'static str),
}

/// Judge a 2xx by its body.
pub fn belief(answer: &Answer, check: BodyCheck) -> Belief {
    if check != BodyCheck::None && answer.content_type == "text/html" {
        return Belief::Captive;
    }
    match check {
        BodyCheck::Default | BodyCheck::None => Belief::Delivered,
        BodyCheck::Json => json(&answer.body),
        BodyCheck::Esri => esri(&answer.body),
        BodyCheck::Wfs => wfs(&answer.body),
        BodyCheck::Sta => sensor_things(&answer.body),
    }
}

/// What the profiles look for in a JSON document.
#[derive(Default)]
struct Seen {
    /// Top level is an object or array.
    structured: bool,
    /// Value of a top-level `error`, unless it is null or false.
    error: Option<Value>,
    /// `"success": false` at the top or in an item of a top-level array.
    unsuccessful: bool,
    /// A string item of a top-level array that begins with `error`.
    error_item: bool,
}

fn json(body: &[u8]) -> Belief {
    match scan(body) {
        Seen { structured: false, .. } => Belief::Doubtful("the answer is not json"),
        Seen { error: Some(error), .. } => declared(&error),
        _ => Belief::Delivered,
    }
}

fn esri(body: &[u8]) -> Belief {
    match scan(body) {
        Seen { structured: false, .. } => Belief::Doubtful("the answer is not json"),
        Seen { error: Some(error), .. } => declared(&error),
        Seen { unsuccessful: true, .. } => Belief::Refused("an edit reports success false"),
        _ => Belief::Delivered,
    }
}

fn sensor_things(body: &[u8]) -> Belief {
    // A single POST answers 201 with an empty body and a Location.
    if body.is_empty() {
        return Belief::Delivered;
    }
    match scan(body) {
        Seen { structured: false, .. } => Belief::Doubtful("the answer is not json"),
        Seen { error: Some(error), .. } => declared(&error),
        Seen { error_item: true, .. } => Belief::Refused("an item reports an error"),
        _ => Belief::Delivered,
    }
}

/// An error object's own code, if it looks like an HTTP status.
fn declared(error: &Value) -> Belief {
    let code = error.get("code").or_else(|| error.get("status"));
    match code.and_then(Value::as_u64) {
        Some(code @ 400..=599) => Belief::Status(code as u16),
        _ => Belief::Doubtful("the answer carries an error"),
    }
}

/// Exception codes that name a fault of the document itself (OWS Common 1.1, WFS 2.0).
const WFS_FINAL: [&str; 6] = [
    "InvalidParameterValue",
    "MissingParameterValue",
    "InvalidValue",
    "OperationParsingFailed",
    "DuplicateStoredQueryIdValue",
    "OptionNotSupported",
];

fn wfs(body: &[u8]) -> Belief {
    let text = String::from_utf8_lossy(body);
    if !text.contains("ExceptionReport") {
        return Belief::Delivered;
    }
    if WFS_FINAL.iter().any(|code| text.contains(code)) {
        Belief::Refused("an exception report refuses the document")
    } else {
        Belief::Doubtful("the answer is an exception report")
    }
}

fn scan(body: &[u8]) -> Seen {
    let mut seen = Seen::default();
    // An error means that the body was cut or is broken; what was seen before it counts.
    let _ = serde_json::Deserializer::from_slice(body).deserialize_any(Scan(&mut seen));
    seen
}

struct Scan<'a>(&'a mut Seen);

impl<'de> Visitor<'de> for Scan<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object or array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.structured = true;
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "error" => {
                    let error: Value = map.next_value()?;
                    if !matches!(error, Value::Null | Value::Bool(false)) {
                        self.0.error = Some(error);
                    }
                }
                "success" => self.0.unsuccessful |= map.next_value::<Value>()? == Value::Bool(false),
                name if name.ends_with("Results") => {
                    let items: Value = map.next_value()?;
                    self.0.unsuccessful |= items
                        .as_array()
                        .is_some_and(|items| items.iter().any(|item| item["success"] == Value::Bool(false)));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.structured = true;
        while let Some(item) = items.next_element::<Value>()? {
            self.0.unsuccessful |= item["success"] == Value::Bool(false);
            self.0.error_item |= item
                .as_str()
                .is_some_and(|text| text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(profile: BodyCheck, content_type: &str, body: &str, expected: &Belief) {
        let answer = Answer {
            status: 200,
            content_type: content_type.to_owned(),
            body: body.as_bytes().to_vec(),
            ..Answer::default()
        };
        assert_eq!(&belief(&answer, profile), expected, "{profile:?} {content_type} {body}");
    }

    #[test]
    fn a_web_page_is_not_a_delivery() {
        for profile in [BodyCheck::Default, BodyCheck::Json, BodyCheck::Esri, BodyCheck::Wfs, BodyCheck::Sta]
        {
            check(profile, "text/html", "<html>log in</html>", &Belief::Captive);
        }
        check(BodyCheck::None, "text/html", "<html>ok</html>", &Belief::Delivered);
        check(BodyCheck::Default, "text/plain", "ok", &Belief::Delivered);
        check(BodyCheck::Default, "", "", &Belief::Delivered);
    }

    #[test]
    fn json_errors_inside_a_200() {
        let json = BodyCheck::Json;
        check(json, "application/json", r#"{"ok":true}"#, &Belief::Delivered);
        check(json, "application/json", r#"{"error":null}"#, &Belief::Delivered);
        check(json, "application/json", r#"{"error":"x"}"#, &Belief::Doubtful("the answer carries an error"));
        check(json, "application/json", r#"{"error":{"code":503}}"#, &Belief::Status(503));
        check(json, "application/json", "ok", &Belief::Doubtful("the answer is not json"));
        check(json, "application/json", r#"{"error":{"code":429},"rest":[1,2,"#, &Belief::Status(429));
        check(json, "application/json", r#"{"items":[1,2,"#, &Belief::Delivered);
    }

    #[test]
    fn esri_reports_errors_with_200() {
        let esri = BodyCheck::Esri;
        let body = r#"{"error":{"code":498,"message":"Invalid token","details":[]}}"#;
        check(esri, "application/json", body, &Belief::Status(498));
        let refused = Belief::Refused("an edit reports success false");
        let body = r#"{"addResults":[{"success":true},{"success":false,"error":{"code":1000}}]}"#;
        check(esri, "application/json", body, &refused);
        check(esri, "application/json", r#"{"success":false}"#, &refused);
        check(esri, "application/json", r#"[{"success":false}]"#, &refused);
        check(esri, "application/json", r#"{"addResults":[{"success":true}]}"#, &Belief::Delivered);
    }

    #[test]
    fn wfs_and_sensor_things() {
        let wfs = |body: &str, expected: &Belief| check(BodyCheck::Wfs, "text/xml", body, expected);
        wfs("<wfs:TransactionResponse/>", &Belief::Delivered);
        wfs(
            r#"<ows:ExceptionReport><ows:Exception exceptionCode="InvalidParameterValue"/>"#,
            &Belief::Refused("an exception report refuses the document"),
        );
        wfs(
            r#"<ExceptionReport><Exception exceptionCode="NoApplicableCode"/>"#,
            &Belief::Doubtful("the answer is an exception report"),
        );
        let sta = |body: &str, expected: &Belief| check(BodyCheck::Sta, "application/json", body, expected);
        sta("", &Belief::Delivered);
        sta(r#"["https://x/Observations(1)"]"#, &Belief::Delivered);
        sta(r#"["https://x/1","error: unknown datastream"]"#, &Belief::Refused("an item reports an error"));
    }
}
