//! Sees the network come and go, so that a held endpoint is probed when the uplink is back and not a minute later.

use std::time::Duration;

/// How often the kernel's route tables are looked at: two small reads.
pub(super) const POLL_EVERY: Duration = Duration::from_secs(2);
/// Bytes of a route table that are compared; a gateway's has a few lines.
const TABLE_BYTES_MAX: usize = 64 * 1024;

/// The kernel's routes, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Routes {
    v4: Option<String>,
    v6: Option<String>,
}

impl Routes {
    /// Reads them now; a table that cannot be read counts as absent.
    pub async fn read() -> Self {
        Self { v4: table("/proc/net/route").await, v6: table("/proc/net/ipv6_route").await }
    }

    /// Whether `next` is a change. The first reading is none.
    pub fn changed_to(&self, next: &Routes) -> bool {
        *self != Self::default() && self != next
    }
}

/// The part of a table that says where packets go; use counts change all the time.
async fn table(path: &str) -> Option<String> {
    let text = tokio::fs::read_to_string(path).await.ok()?;
    let lines = text.lines().map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.len() {
            11 => [fields[0], fields[1], fields[2], fields[7]].join(" "), // v4: interface, destination, gateway, mask
            10 => [fields[0], fields[1], fields[4], fields[9]].join(" "), // v6: destination, prefix, next hop, interface
            _ => String::new(),
        }
    });
    let mut kept: String = lines.collect::<Vec<_>>().join("\n");
    kept.truncate(TABLE_BYTES_MAX);
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_comes_or_goes_is_a_change_and_the_first_reading_is_none() {
        let routes = |v4: &str| Routes { v4: Some(v4.to_owned()), v6: None };
        let (down, up) = (routes("lo"), routes("lo\nwwan0 default"));
        assert!(!Routes::default().changed_to(&up), "the first reading");
        assert!(down.changed_to(&up) && up.changed_to(&down));
        assert!(!up.changed_to(&up.clone()));
    }
}
