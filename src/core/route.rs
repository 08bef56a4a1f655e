//! Which endpoints get an event.
//!
//! Without a rule every endpoint gets every event. With rules, an endpoint gets what any of its rules matches; an
//! event that no rule matches is a dead letter (`unrouted`), never a silent 202.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::EndpointId;

/// What a newer event does to older ones on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Supersede {
    /// It replaces pending ones of the same device.
    LatestPerDevice,
}

/// Deliveries that belong together: those of one device, or of one device and type on one route. A digest, for it is
/// only compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u64);

/// What an endpoint's rules say of one delivery beyond that it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Terms {
    /// How long after acceptance it is worth sending.
    pub ttl: Option<Duration>,
    /// A newer delivery with the same value replaces it while it is pending.
    pub replaces: Option<Lane>,
    /// Its device: an endpoint that keeps order sends these one after another.
    pub order: Option<Lane>,
    /// Size of its body.
    pub body_bytes: u32,
}

/// One rule: every condition that is set must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Who gets what matches.
    pub endpoint: EndpointId,
    /// Globs (`*`, `?`) on the device; empty: any.
    pub devices: Vec<String>,
    /// Globs on the event type; empty: any.
    pub types: Vec<String>,
    /// `[west, south, east, north]` that the event's extent must touch; west > east crosses the antimeridian. An
    /// event without a place never matches one.
    pub bbox: Option<[f64; 4]>,
    /// How long an event is worth sending.
    pub ttl: Option<Duration>,
    /// Whether newer events replace older ones.
    pub supersede: Option<Supersede>,
}

impl Route {
    /// Everything to `endpoint`.
    pub fn all(endpoint: EndpointId) -> Self {
        Self { endpoint, devices: Vec::new(), types: Vec::new(), bbox: None, ttl: None, supersede: None }
    }

    fn matches(&self, subject: &Subject<'_>) -> bool {
        let any = |globs: &[String], text: &str| {
            globs.is_empty() || globs.iter().any(|glob| glob_matches(glob, text))
        };
        any(&self.devices, subject.device)
            && any(&self.types, subject.event_type)
            && self.bbox.is_none_or(|area| subject.bbox.is_some_and(|extent| touch(area, extent)))
    }
}

/// What rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Who made the event.
    pub device: &'a str,
    /// What it is.
    pub event_type: &'a str,
    /// Where it is.
    pub bbox: Option<[f64; 4]>,
}

/// All endpoints and rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routes {
    endpoints: Vec<EndpointId>,
    routes: Vec<Route>,
}

impl Routes {
    /// Endpoints, and rules between them; without rules every endpoint gets every event.
    pub fn new(endpoints: Vec<EndpointId>, routes: Vec<Route>) -> Self {
        Self { endpoints, routes }
    }

    /// The rules.
    pub fn rules(&self) -> &[Route] {
        &self.routes
    }

    /// Endpoints that get the event, each once, in the order they were configured.
    pub fn endpoints_for(&self, subject: &Subject<'_>) -> Vec<EndpointId> {
        if self.routes.is_empty() {
            return self.endpoints.clone();
        }
        let wanted = |id: &&EndpointId| {
            self.routes.iter().any(|route| route.endpoint == **id && route.matches(subject))
        };
        self.endpoints.iter().filter(wanted).copied().collect()
    }
}

impl Routes {
    /// What the rules say of an event at `endpoint`. Of several that match, the first one speaks.
    pub fn terms(&self, endpoint: EndpointId, subject: &Subject<'_>, body_bytes: usize) -> Terms {
        let mut rules = self.routes.iter().enumerate();
        let rule = rules.find(|(_, route)| route.endpoint == endpoint && route.matches(subject));
        let replaces = rule
            .filter(|(_, route)| route.supersede == Some(Supersede::LatestPerDevice))
            .map(|(number, _)| lane(&(number, subject.device, subject.event_type)));
        Terms {
            ttl: rule.and_then(|(_, route)| route.ttl),
            replaces,
            order: Some(lane(&subject.device)),
            body_bytes: u32::try_from(body_bytes).unwrap_or(u32::MAX),
        }
    }
}

fn lane(of: &impl std::hash::Hash) -> Lane {
    use std::hash::{DefaultHasher, Hasher as _};
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    Lane(hasher.finish())
}

/// Whether `glob` covers all of `text`: `*` any run of characters, `?` any one. Time is at most the product of both
/// lengths, whatever the pattern.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let mut pattern = glob.chars();
    let mut rest = text.chars();
    // Where to go on if what follows the last star does not fit: the star takes one more character.
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let mut after = rest.clone();
        match (pattern.next(), after.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                retry = Some((pattern.clone(), rest.clone()));
                continue;
            }
            (Some('?'), Some(_)) => {
                rest = after;
                continue;
            }
            (Some(wanted), Some(found)) if wanted == found => {
                rest = after;
                continue;
            }
            _ => {}
        }
        let Some((star, taken)) = &mut retry else {
            return false;
        };
        if taken.next().is_none() {
            return false;
        }
        pattern = star.clone();
        rest = taken.clone();
    }
}

/// Whether two extents share a point; `area` may cross the antimeridian (west > east).
pub fn touch(area: [f64; 4], extent: [f64; 4]) -> bool {
    let [west, south, east, north] = area;
    let [left, bottom, right, top] = extent;
    let across = if west <= east { left <= east && right >= west } else { right >= west || left <= east };
    across && bottom <= north && top >= south
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointId = EndpointId(1);
    const B: EndpointId = EndpointId(2);

    fn subject<'a>(device: &'a str, event_type: &'a str, bbox: Option<[f64; 4]>) -> Subject<'a> {
        Subject { device, event_type, bbox }
    }

    #[test]
    fn without_rules_everyone_gets_everything() {
        let routes = Routes::new(vec![A, B], Vec::new());
        assert_eq!(routes.endpoints_for(&subject("d", "t", None)), [A, B]);
    }

    #[test]
    fn rules_select_by_device_type_and_place() {
        let routes = Routes::new(
            vec![A, B],
            vec![
                Route { devices: vec!["truck-*".into()], ..Route::all(B) },
                Route { types: vec!["alarm".into()], ..Route::all(B) },
                Route { bbox: Some([170.0, -20.0, -170.0, 0.0]), ..Route::all(A) },
            ],
        );
        let fiji = Some([179.0, -17.0, 179.5, -16.0]);
        assert_eq!(routes.endpoints_for(&subject("truck-7", "alarm", fiji)), [A, B]);
        assert_eq!(routes.endpoints_for(&subject("truck-7", "position", None)), [B]);
        assert_eq!(routes.endpoints_for(&subject("bus-7", "position", fiji)), [A]);
        assert_eq!(routes.endpoints_for(&subject("bus-7", "position", Some([13.0, 52.0, 13.0, 52.0]))), []);
        assert_eq!(routes.endpoints_for(&subject("bus-7", "position", None)), []);
    }

    #[test]
    fn globs_cover_the_whole_text() {
        for (glob, text, want) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("truck-?", "truck-7", true),
            ("truck-?", "truck-17", false),
            ("*-7", "truck-17-7", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("ä?", "äö", true),
            ("a**", "a", true),
        ] {
            assert_eq!(glob_matches(glob, text), want, "{glob} on {text}");
        }
        assert!(!glob_matches(&"a*".repeat(50), &"a".repeat(49)));
        assert!(!glob_matches(&format!("{}b", "a*".repeat(50)), &"a".repeat(2_000)));
    }

    #[test]
    fn the_first_rule_that_matches_sets_the_terms() {
        let minute = Some(Duration::from_mins(1));
        let supersede = Some(Supersede::LatestPerDevice);
        let routes = Routes::new(
            vec![A, B],
            vec![
                Route { types: vec!["ping".into()], ttl: minute, supersede, ..Route::all(A) },
                Route::all(A),
                Route::all(B),
            ],
        );
        let terms =
            |endpoint, device, event_type| routes.terms(endpoint, &subject(device, event_type, None), 7);
        let ping = terms(A, "boat-1", "ping");
        assert_eq!((ping.ttl, ping.replaces.is_some(), ping.body_bytes), (minute, true, 7));
        assert_eq!(terms(A, "boat-1", "ping"), ping);
        assert_ne!(terms(A, "boat-2", "ping").replaces, ping.replaces);
        assert_ne!(terms(A, "boat-2", "ping").order, ping.order);
        assert_eq!((terms(A, "boat-1", "alarm").ttl, terms(A, "boat-1", "alarm").replaces), (None, None));
        assert_eq!((terms(B, "boat-1", "ping").ttl, terms(B, "boat-1", "ping").replaces), (None, None));
    }
}
