//! From an error of the HTTP stack to the kind of transport failure: by type, never by text.

use std::error::Error;
use std::io;

use rustls::CertificateError;

use crate::core::classify::TransportKind;

/// What failed. `https` tells a cut TLS handshake from a cut connection.
pub fn kind(error: &reqwest::Error, https: bool) -> TransportKind {
    if error.is_dns() {
        return TransportKind::Dns;
    }
    let connecting = error.is_connect();
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(err) = cause {
        if let Some(kind) = of_cause(err, connecting, https) {
            return kind;
        }
        cause = err.source();
    }
    match (error.is_timeout(), connecting) {
        (true, true) => TransportKind::ConnectTimeout,
        (true, false) => TransportKind::Timeout,
        (false, true) => TransportKind::Refused,
        (false, false) => TransportKind::Reset,
    }
}

fn of_cause(err: &(dyn Error + 'static), connecting: bool, https: bool) -> Option<TransportKind> {
    if let Some(err) = err.downcast_ref::<rustls::Error>() {
        return Some(of_tls(err));
    }
    if let Some(err) = err.downcast_ref::<io::Error>() {
        // An error inside an io::Error is not in its chain of sources, but what that error came from is.
        if let Some(inner) = err.get_ref() {
            return of_cause(inner, connecting, https).or_else(|| of_io(err, connecting, https));
        }
        return of_io(err, connecting, https);
    }
    if let Some(err) = err.downcast_ref::<hyper::Error>() {
        if err.is_parse() || err.is_parse_status() || err.is_parse_too_large() {
            return Some(TransportKind::Protocol);
        }
        if err.is_incomplete_message() || err.is_canceled() || err.is_closed() {
            return Some(TransportKind::Reset);
        }
    }
    None
}

fn of_tls(err: &rustls::Error) -> TransportKind {
    match err {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => TransportKind::TlsNotYetValid,
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => TransportKind::TlsExpired,
        _ => TransportKind::Tls,
    }
}

fn of_io(err: &io::Error, connecting: bool, https: bool) -> Option<TransportKind> {
    use io::ErrorKind as Kind;
    match err.kind() {
        Kind::ConnectionRefused => Some(TransportKind::Refused),
        Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::NetworkDown | Kind::AddrNotAvailable => {
            Some(TransportKind::NoNetwork)
        }
        // A local packet filter says so; and no descriptor or buffer left is this box's trouble too.
        Kind::PermissionDenied | Kind::OutOfMemory if connecting => Some(TransportKind::NoNetwork),
        _ if connecting && is_local_shortage(err) => Some(TransportKind::NoNetwork),
        Kind::TimedOut => {
            Some(if connecting { TransportKind::ConnectTimeout } else { TransportKind::Timeout })
        }
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe
        | Kind::NotConnected
        | Kind::UnexpectedEof => Some(match (connecting, https) {
            (true, true) => TransportKind::Tls,
            (true, false) => TransportKind::Refused,
            (false, _) => TransportKind::Reset,
        }),
        _ => None,
    }
}

/// Too many open files, here or in the system, or no buffer space: std has no portable kinds for these.
fn is_local_shortage(err: &io::Error) -> bool {
    use rustix::io::Errno;
    err.raw_os_error().is_some_and(|code| {
        [Errno::MFILE, Errno::NFILE, Errno::NOBUFS].iter().any(|errno| errno.raw_os_error() == code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_are_told_apart_by_kind_and_phase() {
        use TransportKind as T;
        use io::ErrorKind as K;
        for (kind, connecting, https, expected) in [
            (K::ConnectionRefused, true, false, Some(T::Refused)),
            (K::NetworkUnreachable, true, false, Some(T::NoNetwork)),
            (K::HostUnreachable, true, false, Some(T::NoNetwork)),
            (K::TimedOut, true, false, Some(T::ConnectTimeout)),
            (K::TimedOut, false, false, Some(T::Timeout)),
            (K::ConnectionReset, false, true, Some(T::Reset)),
            (K::ConnectionReset, true, true, Some(T::Tls)),
            (K::UnexpectedEof, true, true, Some(T::Tls)),
            (K::UnexpectedEof, false, false, Some(T::Reset)),
            (K::BrokenPipe, false, false, Some(T::Reset)),
            (K::PermissionDenied, true, false, Some(T::NoNetwork)),
            (K::Other, true, false, None),
        ] {
            assert_eq!(
                of_cause(&io::Error::from(kind), connecting, https),
                expected,
                "{kind:?} {connecting}"
            );
        }
        let no_files = io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        assert_eq!(of_cause(&no_files, true, false), Some(T::NoNetwork));
    }

    #[test]
    fn certificates_out_of_their_time_are_told_apart() {
        use TransportKind as T;
        for (err, expected) in [
            (CertificateError::NotValidYet, T::TlsNotYetValid),
            (CertificateError::Expired, T::TlsExpired),
            (CertificateError::UnknownIssuer, T::Tls),
        ] {
            let inner = rustls::Error::InvalidCertificate(err);
            let outer = io::Error::new(io::ErrorKind::InvalidData, inner);
            assert_eq!(of_cause(&outer, true, true), Some(expected));
        }
    }
}
