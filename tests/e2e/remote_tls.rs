//! HTTPS: certificates are checked, an own CA and client certificates are used as the entry says.

use crate::world;
use hermes_tests::{HttpFake, SOON, World, plain_server, wait_for};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PASSWORD: &str = "the-key-is-under-the-mat";

/// A CA, a server behind it, and a client that it knows.
struct Trust {
    ca: String,
    server: (CertificateDer<'static>, KeyPair),
    client: (String, KeyPair),
    roots: RootCertStore,
}

impl Trust {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (server, client) = (issue("127.0.0.1"), issue("client"));
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        Self {
            ca: root.pem(),
            server: (server.0.der().clone(), server.1),
            client: (client.0.pem(), client.1),
            roots,
        }
    }

    fn config(&self, client: Client) -> ServerConfig {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = ServerConfig::builder();
        let builder = match client {
            Client::Anybody => builder.with_no_client_auth(),
            Client::Known => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder(Arc::new(self.roots.clone())).build().unwrap(),
            ),
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.server.1.serialize_der()));
        builder.with_single_cert(vec![self.server.0.clone()], key).unwrap()
    }
}

#[derive(Clone, Copy)]
enum Client {
    Anybody,
    Known,
}

/// TLS in front of a plain server; ends with the test's process.
fn front(fake: &HttpFake, config: ServerConfig) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, behind) = (listener.local_addr().unwrap(), fake.address());
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for outer in listener.incoming().flatten() {
            let (config, behind) = (config.clone(), behind.clone());
            std::thread::spawn(move || carry(outer, &behind, config));
        }
    });
    format!("https://{address}/mcp")
}

fn carry(outer: TcpStream, behind: &str, config: Arc<ServerConfig>) {
    let Ok(mut inner) = TcpStream::connect(behind) else { return };
    for stream in [&outer, &inner] {
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    }
    let mut tls = StreamOwned::new(ServerConnection::new(config).unwrap(), outer);
    let mut piece = [0; 16384];
    loop {
        for outwards in [true, false] {
            let read = if outwards { inner.read(&mut piece) } else { tls.read(&mut piece) };
            let sent = match read {
                Ok(n) if n > 0 && outwards => tls.write_all(&piece[..n]).and_then(|()| tls.flush()),
                Ok(n) if n > 0 => inner.write_all(&piece[..n]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
                _ => return,
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn reason_has(w: &World, server: &str, word: &str) {
    wait_for(&format!("{server} fails for {word}"), SOON, || {
        w.status(server)["reason"].as_str().unwrap_or_default().to_ascii_lowercase().contains(word)
    });
}

/// A private CA is refused, unless it is named or checking is switched off, which is warned of.
#[test]
fn certificates_are_checked_as_the_entry_says() {
    let trust = Trust::new();
    let fake = HttpFake::start(plain_server);
    let url = format!("url: {}", front(&fake, trust.config(Client::Anybody)));
    let w = world();
    let ca = format!("ssl_verify: {}", write(w.path(), "ca.pem", &trust.ca));
    let other = format!("ssl_verify: {}", write(w.path(), "other.pem", &Trust::new().ca));
    let empty = format!("ssl_verify: {}", write(w.path(), "empty.pem", "nothing"));
    let w = w
        .entry("named", &[&url, &ca])
        .entry("other", &[&url, &other])
        .entry("empty", &[&url, &empty])
        .entry("strict", &[&url])
        .entry("off", &[&url, "ssl_verify: false"]);
    let _daemon = w.start();
    let mut client = w.client(&["named", "off"]);
    assert_eq!(client.text("mcp_named_echo", &json!({"text": "hi"})), "hi");
    assert_eq!(client.text("mcp_off_echo", &json!({"text": "hi"})), "hi");
    reason_has(&w, "other", "certificate");
    reason_has(&w, "strict", "certificate");
    reason_has(&w, "empty", "empty.pem");
    assert!(w.ctl(["doctor", "--json"]).stdout.contains("certificate is not checked"));
}

/// A server that wants a client certificate gets it, also with a key that has a password.
#[test]
fn client_certificates_are_shown() {
    let trust = Trust::new();
    let fake = HttpFake::start(plain_server);
    let url = format!("url: {}", front(&fake, trust.config(Client::Known)));
    let w = world();
    let folder = w.path().to_owned();
    let ca = format!("ssl_verify: {}", write(&folder, "ca.pem", &trust.ca));
    let (cert, key) = &trust.client;
    let cert_file = write(&folder, "cert.pem", cert);
    let key_file = write(&folder, "key.pem", &key.serialize_pem());
    let both_file = write(&folder, "both.pem", &format!("{cert}{}", key.serialize_pem()));
    let der = key.serialize_der();
    let plain = pkcs8::PrivateKeyInfoRef::try_from(der.as_slice()).unwrap();
    let locked =
        plain.encrypt(PASSWORD).unwrap().to_pem("ENCRYPTED PRIVATE KEY", pkcs8::LineEnding::LF).unwrap();
    let locked_file = write(&folder, "locked.pem", &locked);
    let list = |password: &str| format!("client_cert: [{cert_file}, {locked_file}, {password}]");
    let w = w
        .entry("two", &[&url, &ca, &format!("client_cert: {cert_file}"), &format!("client_key: {key_file}")])
        .entry("one", &[&url, &ca, &format!("client_cert: {both_file}")])
        .entry("locked", &[&url, &ca, &list(PASSWORD)])
        .entry("wrong", &[&url, &ca, &list("not-the-password")])
        .entry("none", &[&url, &ca]);
    let _daemon = w.start();
    let mut client = w.client(&["one", "two", "locked"]);
    for server in ["one", "two", "locked"] {
        assert_eq!(client.text(&format!("mcp_{server}_echo"), &json!({"text": "hi"})), "hi", "{server}");
    }
    w.wait_phase("wrong", "parked");
    reason_has(&w, "wrong", "password is wrong");
    let all = w.ctl(["servers", "--json"]).stdout;
    assert!(!all.contains("not-the-password") && !all.contains(PASSWORD), "{all}");
    w.wait_phase("none", "backing_off");
}
