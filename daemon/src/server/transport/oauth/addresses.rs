//! Which addresses the documents of a server may send hermesd to.
//!
//! Pure. Whoever runs a server names the hosts of its authorization server, and the daemon calls them
//! from inside the user's network. Promise: such a host is public, or of the same kind as the address
//! that the user wrote into the configuration; link-local addresses (cloud metadata) are never called.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use url::{Host, Url};

/// A kind of address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Anywhere in the internet.
    Public,
    /// This machine.
    Loopback,
    /// This network: 10/8, 172.16/12, 192.168/16, 100.64/10, fc00::/7.
    Private,
    /// Link-local, multicast, unspecified, reserved.
    Special,
}

impl Kind {
    /// The kind of `address`. An IPv4 address inside an IPv6 one counts as the IPv4 address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => of_v4(v4),
            IpAddr::V6(v6) => embedded(v6).map_or_else(|| of_v6(v6), of_v4),
        }
    }
}

fn of_v4(address: Ipv4Addr) -> Kind {
    let [a, b, c, _] = address.octets();
    if address.is_loopback() {
        Kind::Loopback
    } else if address.is_private() || (a == 100 && (64..128).contains(&b)) {
        Kind::Private
    } else if address.is_link_local()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 198 && (b & 0xfe) == 18)
        || (a, b, c) == (192, 0, 0)
    {
        Kind::Special
    } else {
        Kind::Public
    }
}

fn of_v6(address: Ipv6Addr) -> Kind {
    let first = address.segments()[0];
    if address.is_loopback() {
        Kind::Loopback
    } else if first & 0xfe00 == 0xfc00 {
        Kind::Private
    } else if address.is_unspecified()
        || address.is_multicast()
        || first & 0xffc0 == 0xfe80
        || address.segments()[..2] == [0x2001, 0]
        || address.segments()[..3] == [0x64, 0xff9b, 1]
    {
        Kind::Special
    } else {
        Kind::Public
    }
}

/// IPv4-mapped, IPv4-compatible, NAT64 and 6to4 addresses lead to an IPv4 address.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => Some(of(g, h)),
        [0, 0, 0, 0, 0, 0] if !address.is_loopback() && !address.is_unspecified() => Some(of(g, h)),
        [0x2002, ..] => Some(of(b, c)),
        _ => None,
    }
}

/// Whether names of the local network may be called beside the server's own host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LocalNetwork {
    /// Only where the configured URL is itself such an address.
    #[default]
    AsTheUrl,
    /// `private_network: true`.
    Allowed,
}

/// What may be called for one server.
#[derive(Debug, Clone)]
pub struct Reach {
    own_host: String,
    /// Of the address in the URL itself; what its name resolves to is the server's word, not the user's.
    own_kind: Option<Kind>,
    local: LocalNetwork,
}

impl Reach {
    /// Around the configured `url`.
    pub fn new(url: &Url, local: LocalNetwork) -> Self {
        Self { own_host: host_of(url), own_kind: literal(url), local }
    }

    /// Whether `url` may be called as far as its text says: http(s), and a host whose address, where
    /// it is written out, is allowed.
    pub fn allows(&self, url: &Url) -> bool {
        matches!(url.scheme(), "http" | "https")
            && match literal(url) {
                Some(kind) => self.allows_kind(&host_of(url), kind),
                None => url.host().is_some() && !is_metadata_service(&host_of(url)),
            }
    }

    /// Whether `host`, which resolved to `address`, may be called.
    pub fn allows_address(&self, host: &str, address: IpAddr) -> bool {
        self.allows_kind(&normal(host), Kind::of(address))
    }

    fn allows_kind(&self, host: &str, kind: Kind) -> bool {
        // The MCP traffic goes to the server's own host anyway, wherever that is.
        let own = host == self.own_host;
        match kind {
            Kind::Public => true,
            Kind::Loopback => own || self.own_kind == Some(Kind::Loopback),
            Kind::Private => {
                own || self.own_kind == Some(Kind::Private) || self.local == LocalNetwork::Allowed
            }
            Kind::Special => own && self.own_kind == Some(Kind::Special),
        }
    }
}

/// Whether `url` names this machine.
pub fn is_loopback(url: &Url) -> bool {
    literal(url) == Some(Kind::Loopback)
}

fn literal(url: &Url) -> Option<Kind> {
    match url.host()? {
        Host::Ipv4(v4) => Some(Kind::of(v4.into())),
        Host::Ipv6(v6) => Some(Kind::of(v6.into())),
        Host::Domain(name) => {
            let name = normal(name);
            (name == "localhost" || name.ends_with(".localhost")).then_some(Kind::Loopback)
        }
    }
}

fn host_of(url: &Url) -> String {
    normal(url.host_str().unwrap_or_default())
}

fn normal(host: &str) -> String {
    host.trim_end_matches('.').trim_matches(['[', ']']).to_ascii_lowercase()
}

fn is_metadata_service(host: &str) -> bool {
    matches!(host, "metadata" | "metadata.google.internal" | "metadata.azure.internal")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reach(url: &str) -> Reach {
        Reach::new(&Url::parse(url).unwrap(), LocalNetwork::AsTheUrl)
    }

    fn allows(reach: &Reach, url: &str) -> bool {
        reach.allows(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_public_server_leads_nowhere_inside() {
        let public = reach("https://mcp.example.com/mcp");
        assert!(allows(&public, "https://login.example.org/authorize"));
        for inside in [
            "http://127.0.0.1:6379/",
            "http://localhost/",
            "http://a.localhost./",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://169.254.169.254/latest/meta-data",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://10.0.0.1/",
            "http://[fd00::1]/",
            "http://0.0.0.0/",
            "http://2130706433/",
            "http://metadata.google.internal/",
            "file:///etc/passwd",
            "javascript:alert(1)",
        ] {
            assert!(!allows(&public, inside), "{inside}");
        }
        assert!(!public.allows_address("login.example.org", [10, 0, 0, 1].into()));
        assert!(!public.allows_address("login.example.org", [169, 254, 169, 254].into()));
        assert!(
            public.allows_address("mcp.example.com", [10, 0, 0, 1].into()),
            "its own host, as MCP calls it"
        );
        assert!(!public.allows_address("mcp.example.com", [169, 254, 0, 1].into()));
    }

    #[test]
    fn a_local_server_leads_to_its_own_kind_only() {
        let local = reach("http://127.0.0.1:9000/mcp");
        assert!(allows(&local, "http://localhost:9001/token"));
        assert!(!allows(&local, "http://192.168.1.1/"));
        let office = reach("https://10.1.2.3/mcp");
        assert!(allows(&office, "https://10.9.9.9/token"));
        assert!(!allows(&office, "http://127.0.0.1/"));
        let named = Reach::new(&Url::parse("https://mcp.corp/mcp").unwrap(), LocalNetwork::Allowed);
        assert!(named.allows_address("sso.corp", [10, 0, 0, 9].into()));
        assert!(!named.allows_address("sso.corp", [127, 0, 0, 1].into()));
    }

    proptest! {
        #[test]
        fn an_ipv4_address_counts_the_same_inside_ipv6(bits: u32) {
            let v4 = Ipv4Addr::from(bits);
            prop_assert_eq!(Kind::of(v4.into()), Kind::of(v4.to_ipv6_mapped().into()));
        }
    }
}
