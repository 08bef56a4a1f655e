//! Who may do what, over which way.
//!
//! The Unix socket (0600) may do everything. On the listener: producers need their token if one is set; reads of the
//! admin API need the admin or the read token if the first is set, else one of them or a loopback peer; changes always
//! need the admin token. What a caller may do is told by `/v1/access`, from the same decision. No web page
//! can drive any of it: a request with an `Origin` is refused, `Host` must be an address, `localhost` or this box's name
//! (so a name that was re-pointed at loopback does not pass) unless a valid token came along, and changes must be JSON.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::AppState;
use super::problem::{Failure, Kind};
use crate::config::secret::Secret;
use crate::wire::{AccessView, Way};

/// How a request came in.
#[derive(Clone, Copy, Debug)]
pub enum Via {
    /// The Unix socket in the data directory.
    Socket,
    /// The listener, from this peer.
    Tcp(SocketAddr),
}

/// Guards intake.
pub async fn producer(
    State(state): State<AppState>,
    via: Option<axum::Extension<Via>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(axum::Extension(Via::Tcp(_))) = via else { return next.run(request).await };
    let headers = request.headers();
    let checked = no_web_page(headers).and_then(|()| match &state.config.ingest.token {
        Some(token) => bearer(headers, token, "producers"),
        None => known_host(headers, &state.config.node),
    });
    match checked {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

/// Guards the admin API.
pub async fn admin(
    State(state): State<AppState>,
    via: Option<axum::Extension<Via>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(axum::Extension(Via::Tcp(peer))) = via else {
        request.extensions_mut().insert(AccessView { way: Way::Socket, changes: true });
        return next.run(request).await;
    };
    match may_administer(&state, peer, request.method(), request.headers()) {
        Ok(access) => {
            request.extensions_mut().insert(access);
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    }
}

fn may_administer(
    state: &AppState,
    peer: SocketAddr,
    method: &Method,
    headers: &HeaderMap,
) -> Result<AccessView, Failure> {
    no_web_page(headers)?;
    let change = method != Method::GET && method != Method::HEAD;
    let ingest = &state.config.ingest;
    let reads = |token: &Secret| bearer(headers, token, "readers").is_ok();
    let mut access = AccessView { way: Way::Token, changes: false };
    match &ingest.admin_token {
        _ if ingest.read_token.as_ref().is_some_and(reads) => {
            if change {
                return Err(Kind::Forbidden.because("this token may read and change nothing"));
            }
        }
        Some(token) => {
            bearer(headers, token, "admins")?;
            access.changes = true;
        }
        None if change => {
            return Err(Kind::Forbidden.because(
                "changes need ingest.admin_token_file to be set, or the admin.sock in the data directory",
            ));
        }
        None if !peer.ip().to_canonical().is_loopback() => {
            return Err(
                Kind::Forbidden.because("set ingest.admin_token_file to read this from another machine")
            );
        }
        None => {
            known_host(headers, &state.config.node)?;
            access.way = Way::Loopback;
        }
    }
    if change && !is_json(headers) {
        return Err(Kind::UnsupportedMedia.because("changes must be sent as Content-Type: application/json"));
    }
    Ok(access)
}

fn no_web_page(headers: &HeaderMap) -> Result<(), Failure> {
    if headers.contains_key(header::ORIGIN) {
        return Err(Kind::Forbidden.because("requests from web pages are not taken"));
    }
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Compares in constant time, so that a token cannot be guessed byte by byte.
fn bearer(headers: &HeaderMap, token: &Secret, whose: &str) -> Result<(), Failure> {
    let given = headers.get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes).unwrap_or_default();
    let given = match given.split_first_chunk::<7>() {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest.trim_ascii(),
        _ => b"",
    };
    if bool::from(given.ct_eq(token.expose().as_bytes())) {
        return Ok(());
    }
    Err(Kind::Unauthorized.because(format!("send the {whose}' token as Authorization: Bearer")))
}

/// Names that a re-pointed DNS entry cannot carry.
fn known_host(headers: &HeaderMap, node: &str) -> Result<(), Failure> {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.split(':').next().unwrap_or_default(),
    };
    if name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || (!name.is_empty() && name.eq_ignore_ascii_case(node))
    {
        return Ok(());
    }
    Err(Kind::Forbidden.because("the Host header must be an address, localhost or this box's name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (header::HeaderName::from_static(name), header::HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn tokens_must_match_whole() {
        let token = Secret::new("abc");
        assert!(bearer(&headers(&[("authorization", "Bearer abc")]), &token, "x").is_ok());
        assert!(bearer(&headers(&[("authorization", "bearer abc ")]), &token, "x").is_ok());
        for wrong in ["Bearer ab", "Bearer abcd", "abc", "Bearer", "Basic abc", ""] {
            assert!(bearer(&headers(&[("authorization", wrong)]), &token, "x").is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_hosts_that_dns_cannot_move_pass() {
        for good in ["127.0.0.1:8070", "[::1]:8070", "localhost", "LOCALHOST:1", "gw-017", "10.0.0.4"] {
            assert!(known_host(&headers(&[("host", good)]), "gw-017").is_ok(), "{good}");
        }
        for bad in ["evil.example", "evil.example:8070", "127.0.0.1.evil.example", ""] {
            assert!(known_host(&headers(&[("host", bad)]), "gw-017").is_err(), "{bad}");
        }
    }
}
