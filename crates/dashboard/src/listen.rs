//! Where the console may be reached.

use std::net::SocketAddr;

/// Beside the port of the metrics.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:9170";

/// Where it is to listen. There are no certificates yet, so what it says and is told must not leave the host:
/// any other address is refused. The error is a sentence.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let at: SocketAddr = text
        .parse()
        .map_err(|_| format!("'{text}' is no address: an address and a port, as {LISTEN_DEFAULT}"))?;
    if at.port() == 0 {
        return Err(format!("'{text}' has no port: say one, as {LISTEN_DEFAULT}"));
    }
    if !at.ip().is_loopback() {
        let port = at.port();
        return Err(format!(
            "cannot listen at '{text}': without certificates the console listens at loopback addresses only \
             (127.0.0.1:{port}, [::1]:{port}); from another host: ssh -L {port}:127.0.0.1:{port} THIS-HOST"
        ));
    }
    Ok(at)
}

/// Whether a browser that asked for this `Host` meant this console. A page of somebody else whose name was
/// made to lead here (DNS rebinding) says that name.
pub fn is_own_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|a| a.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_with_a_port_are_taken() {
        for ok in ["127.0.0.1:9170", "127.4.5.6:80", "[::1]:9170"] {
            assert!(address(ok).is_ok(), "{ok}");
        }
        for (bad, why) in [
            ("0.0.0.0:9170", "loopback"),
            ("10.0.0.1:9170", "cannot listen at '10.0.0.1:9170'"),
            ("[::]:9170", "certificates"),
            ("127.0.0.1:0", "no port"),
            ("127.0.0.1", "no address"),
            ("localhost:9170", "no address"),
        ] {
            let said = address(bad).unwrap_err();
            assert!(said.contains(why), "{bad}: {said}");
        }
    }

    #[test]
    fn hosts_of_others_are_not_this_console() {
        for own in ["127.0.0.1:9170", "localhost:9170", "LOCALHOST", "[::1]:9170", "127.0.0.1"] {
            assert!(is_own_host(own), "{own}");
        }
        for other in ["evil.example:9170", "10.0.0.1:9170", "", "127.0.0.1.evil.example"] {
            assert!(!is_own_host(other), "{other}");
        }
    }
}
