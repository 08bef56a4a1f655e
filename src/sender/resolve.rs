//! Names to addresses, with a resolver of our own so that the static binary needs no libc one.
//!
//! A device may start without a network and get its `resolv.conf` later, so the resolver is made anew when that file
//! changes. When a lookup fails for want of an answer, the last good addresses of the name are used for up to a day:
//! the server's certificate is still checked, and an outage of the resolver is no outage of the receiver.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::Instant;

/// The file whose change means another network.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// For how long addresses outlive a silent resolver (RETRY, section 7: at most a day).
const LAST_GOOD_MAX: Duration = Duration::from_hours(24);
/// Longest memory of "no such name", so that a repaired name works soon.
const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(10);

/// Why a name has no address.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LookupError {
    /// There is no usable resolver configuration.
    #[error("no resolver is configured")]
    NoResolver,
    /// No answer in time.
    #[error("the resolver did not answer")]
    Silent,
    /// The resolver says there is none, or the lookup failed.
    #[error("the name could not be resolved")]
    Failed,
}

/// A resolver that an endpoint's client uses.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

struct Inner {
    /// Shorter than the connect timeout, so that a silent resolver is told from a silent receiver.
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    resolver: Option<TokioResolver>,
    conf_changed_at: Option<SystemTime>,
    /// Addresses of the endpoint's one name, and when they were seen.
    last_good: Option<(Vec<IpAddr>, Instant)>,
}

impl Resolver {
    /// A resolver for one endpoint, whose lookups end within three quarters of `connect_timeout`.
    pub fn new(connect_timeout: Duration) -> Self {
        Self(Arc::new(Inner { timeout: connect_timeout.mul_f32(0.75), state: Mutex::default() }))
    }

    async fn lookup(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        if name.eq_ignore_ascii_case("localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let found = match self.resolver() {
            None => Err(LookupError::NoResolver),
            Some(resolver) => match tokio::time::timeout(self.0.timeout, resolver.lookup_ip(name)).await {
                Err(_) => Err(LookupError::Silent),
                Ok(Err(err)) if err.is_nx_domain() => return Err(LookupError::Failed),
                Ok(Err(_)) => Err(LookupError::Failed),
                Ok(Ok(addresses)) => Ok(addresses.iter().collect::<Vec<_>>()),
            },
        };
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(addresses) => {
                state.last_good = Some((addresses.clone(), Instant::now()));
                Ok(addresses)
            }
            Err(err) => match &state.last_good {
                Some((addresses, at)) if at.elapsed() < LAST_GOOD_MAX => Ok(addresses.clone()),
                _ => Err(err),
            },
        }
    }

    /// The resolver for the present `resolv.conf`; `None` while there is none to be had.
    fn resolver(&self) -> Option<TokioResolver> {
        let changed_at = std::fs::metadata(RESOLV_CONF).and_then(|meta| meta.modified()).ok();
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.resolver.is_none() || state.conf_changed_at != changed_at {
            state.resolver = build();
            state.conf_changed_at = changed_at;
        }
        state.resolver.clone()
    }
}

fn build() -> Option<TokioResolver> {
    let mut builder = TokioResolver::builder_tokio().ok()?;
    let options = builder.options_mut();
    // Both families, so that a dead one costs a third of a second and not the attempt (happy eyeballs).
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.negative_max_ttl = Some(NEGATIVE_TTL_MAX);
    builder.build().ok()
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let addresses = resolver.lookup(name.as_str()).await?;
            let addresses: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
