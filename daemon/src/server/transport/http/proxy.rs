//! Pure: whether a remote server is reached through a proxy, and through which.
//!
//! Promise: this machine is never reached through a proxy; `NO_PROXY` is read the way people write
//! it: names with their subdomains, addresses, networks, ports, `*`. May not touch: the environment.

use std::net::IpAddr;
use url::{Host, Url};

/// The proxy for `target`. `variable` looks a variable up; lower-case names are asked for first, as
/// curl does. `HTTP_PROXY` in capitals is believed too: a daemon is no CGI program.
pub fn choose(target: &Url, variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let host = target.host()?;
    if is_this_machine(&host) {
        return None;
    }
    let read = |name: &str| {
        [name.to_ascii_lowercase(), name.to_owned()]
            .iter()
            .find_map(|name| variable(name).map(|value| value.trim().to_owned()))
            .filter(|value| !value.is_empty())
    };
    let own = if target.scheme() == "https" { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    let proxy = read(own).or_else(|| read("ALL_PROXY"))?;
    let direct = read("NO_PROXY").is_some_and(|list| is_listed(&list, &host, target.port_or_known_default()));
    (!direct).then(|| if proxy.contains("://") { proxy } else { format!("http://{proxy}") })
}

/// Whether `host` is this machine.
pub fn is_this_machine(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(address) => address.is_loopback() || address.is_unspecified(),
        Host::Ipv6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.to_ipv4_mapped().is_some_and(|mapped| mapped.is_loopback())
        }
    }
}

fn is_listed(list: &str, host: &Host<&str>, port: Option<u16>) -> bool {
    list.split([',', ' '])
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .any(|entry| fits(entry, host, port))
}

fn fits(entry: &str, host: &Host<&str>, port: Option<u16>) -> bool {
    if entry == "*" {
        return true;
    }
    let (name, wanted) = split_port(entry);
    if wanted.is_some() && wanted != port {
        return false;
    }
    let address = match host {
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        Host::Domain(_) => None,
    };
    match (host, address) {
        (Host::Domain(host), _) => {
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let name = name.strip_prefix("*.").or_else(|| name.strip_prefix('.')).unwrap_or(&name);
            host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
        }
        (_, Some(address)) => match name.split_once('/') {
            Some((network, bits)) => in_network(address, network, bits),
            None => name.parse::<IpAddr>().is_ok_and(|listed| listed == address),
        },
        (_, None) => false,
    }
}

/// `name:8080` and `[::1]:8080` apart; an address of IPv6 without brackets has no port.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some(rest) = entry.strip_prefix('[') {
        let (address, after) = rest.split_once(']').unwrap_or((rest, ""));
        return (address, after.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match entry.split_once(':') {
        Some((name, port)) if !port.contains(':') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (entry, None),
        },
        _ => (entry, None),
    }
}

fn in_network(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    let same = |a: u128, b: u128, width: u32| bits <= width && (bits == 0 || (a ^ b) >> (width - bits) == 0);
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(u128::from(a), u128::from(b), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chosen(target: &str, variables: &[(&str, &str)]) -> Option<String> {
        let look = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        choose(&Url::parse(target).unwrap(), &look)
    }

    #[test]
    fn this_machine_is_never_reached_through_a_proxy() {
        let all = [("HTTP_PROXY", "http://p:1"), ("HTTPS_PROXY", "http://p:1"), ("ALL_PROXY", "http://p:1")];
        for host in [
            "127.0.0.1:9",
            "127.8.8.8",
            "localhost",
            "LOCALHOST.",
            "x.localhost",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
        ] {
            for scheme in ["http", "https"] {
                assert_eq!(chosen(&format!("{scheme}://{host}/mcp"), &all), None, "{host}");
            }
        }
        assert!(chosen("http://localhost.example/mcp", &all).is_some());
    }

    #[test]
    fn the_variable_of_the_scheme_counts_and_lower_case_comes_first() {
        let set = [("http_proxy", "low:1"), ("HTTP_PROXY", "http://up:1"), ("ALL_PROXY", "socks5://all:1")];
        assert_eq!(chosen("http://h.example/", &set).as_deref(), Some("http://low:1"));
        assert_eq!(chosen("https://h.example/", &set).as_deref(), Some("socks5://all:1"));
        assert_eq!(chosen("https://h.example/", &[("HTTPS_PROXY", "  ")]), None);
    }

    #[test]
    fn no_proxy_is_read_in_every_form_people_write() {
        for (target, list, direct) in [
            ("http://h.example/", "h.example", true),
            ("http://a.h.example/", "h.example", true),
            ("http://a.h.example/", ".H.example", true),
            ("http://a.h.example/", "*.h.example", true),
            ("http://bh.example/", "h.example", false),
            ("http://h.example:81/", "h.example:80", false),
            ("http://h.example:81/", "x, h.example:81", true),
            ("http://10.2.3.4/", "10.0.0.0/8", true),
            ("http://11.2.3.4/", "10.0.0.0/8", false),
            ("http://[fd00::7]/", "fd00::/8", true),
            ("http://[fd00::7]:9/", "[fd00::7]:9", true),
            ("http://h.example/", "*", true),
            ("http://h.example/", "10.0.0.0/8", false),
        ] {
            let set = [("HTTP_PROXY", "http://p:1"), ("NO_PROXY", list)];
            assert_eq!(chosen(target, &set).is_none(), direct, "{target} {list}");
        }
    }

    proptest! {
        #[test]
        fn no_list_makes_it_panic(list in ".{0,60}", host in "[a-z]{1,8}(\\.[a-z]{1,5}){0,2}") {
            let set = [("HTTP_PROXY", "http://p:1"), ("NO_PROXY", list.as_str())];
            let _ = chosen(&format!("http://{host}/"), &set);
        }
    }
}
