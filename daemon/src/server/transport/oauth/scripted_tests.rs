//! Logins against a scripted authorization server: each way that logins break in the field.

use super::account::{Account, Around, Look, Place};
use super::addresses::{LocalNetwork, Reach};
use super::callback;
use super::challenge::Demand;
use super::discover::discover;
use super::endpoints::Plain;
use super::files::{Files, Part};
use super::login::{Flow, LoginError, LoginState};
use super::net::{NetError, Network, Redirects};
use super::record::{Binding, Tokens};
use super::renew::Bearer;
use super::tap;
use crate::config::{HttpConfig, OauthConfig, TlsConfig};
use crate::names::ServerName;
use crate::secret::Secret;
use crate::server::transport::auth::{Auth as _, Next, Refusal};
use crate::tasks::TaskGroup;
use futures_util::future::{BoxFuture, join_all};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use url::{Url, form_urlencoded};

const SERVER: &str = "https://mcp.test/mcp";
const ISSUER: &str = "https://as.test";
const NOW: u64 = 1_000_000;

/// An authorization server that rotates refresh tokens and takes no token twice.
#[derive(Default)]
struct Script {
    /// Documents by URL; everything else is 404.
    documents: BTreeMap<String, Value>,
    /// The refresh token that is good.
    good: String,
    issued: u32,
    /// `METHOD URL body` of each request.
    asked: Vec<String>,
    /// Members of token answers that replace the usual ones.
    odd: Map<String, Value>,
    /// Called with each token request before it is answered.
    hook: Option<Box<dyn Fn() + Send>>,
    refuse: bool,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Script>>);

impl Fake {
    fn usual() -> Self {
        let fake = Self::default();
        fake.document(
            "https://mcp.test/.well-known/oauth-protected-resource/mcp",
            json!({"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["read"]}),
        );
        fake.document("https://as.test/.well-known/oauth-authorization-server", metadata(ISSUER));
        fake.0.lock().unwrap().good = "rt-0-aaaa".into();
        fake
    }

    fn document(&self, url: &str, document: Value) {
        self.0.lock().unwrap().documents.insert(url.to_owned(), document);
    }

    fn odd(&self, odd: Value) {
        self.0.lock().unwrap().odd = odd.as_object().cloned().unwrap();
    }

    fn asked(&self, part: &str) -> Vec<String> {
        self.0.lock().unwrap().asked.iter().filter(|line| line.contains(part)).cloned().collect()
    }

    fn answer(&self, method: &str, url: &str, body: &str) -> (u16, Value) {
        let mut script = self.0.lock().unwrap();
        script.asked.push(format!("{method} {url} {body}"));
        if method == "GET" {
            return script.documents.get(url).map_or((404, json!({})), |document| (200, document.clone()));
        }
        if url.ends_with("/register") {
            let mut answer: Value = serde_json::from_str(body).unwrap();
            answer["client_id"] = json!("registered");
            return (201, answer);
        }
        if let Some(hook) = &script.hook {
            hook();
        }
        let form: BTreeMap<String, String> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let taken = match form["grant_type"].as_str() {
            "refresh_token" => form["refresh_token"] == script.good && !script.refuse,
            "authorization_code" => form["code"] == "good-code" && form["code_verifier"].len() >= 43,
            _ => false,
        };
        assert_eq!(form["resource"], SERVER, "each token request names the resource");
        if !taken {
            return (400, json!({"error": "invalid_grant"}));
        }
        script.issued += 1;
        script.good = format!("rt-{}-aaaa", script.issued);
        let mut answer = json!({
            "access_token": format!("at-{}-aaaa", script.issued), "token_type": "Bearer", "expires_in": 3600,
            "refresh_token": script.good,
        });
        for (name, value) in &script.odd {
            answer[name] = value.clone();
        }
        (200, answer)
    }
}

impl Network for Fake {
    fn send(
        &self,
        request: hyper::Request<Vec<u8>>,
        _: Redirects,
    ) -> BoxFuture<'_, Result<hyper::Response<Vec<u8>>, NetError>> {
        Box::pin(async move {
            // Others get their turn, as with a network.
            tokio::task::yield_now().await;
            let body = String::from_utf8(request.body().clone()).unwrap();
            let (status, answer) = self.answer(request.method().as_str(), &request.uri().to_string(), &body);
            tokio::task::yield_now().await;
            let answer = answer.to_string().into_bytes();
            Ok(hyper::Response::builder()
                .status(status)
                .header("content-type", "application/json")
                .body(answer)
                .unwrap())
        })
    }
}

fn metadata(issuer: &str) -> Value {
    json!({
        "issuer": issuer, "authorization_endpoint": "https://as.test/authorize",
        "token_endpoint": "https://as.test/token", "registration_endpoint": "https://as.test/register",
        "code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"],
    })
}

fn place(fake: &Fake, url: &str) -> Place {
    let url = Url::parse(url).unwrap();
    Place {
        reach: Reach::new(&url, LocalNetwork::AsTheUrl),
        plain: Plain::ThisMachine,
        net: Arc::new(fake.clone()),
        url,
    }
}

fn account_with(home: &Path, fake: &Fake, url: &str, oauth: OauthConfig) -> Arc<Account> {
    let config = HttpConfig { oauth: Some(oauth), ..http_config(url) };
    let around = Around {
        home: home.to_owned(),
        tasks: TaskGroup::new(),
        masks: Arc::new(|_, _| {}),
        clock: Arc::new(|| NOW),
        variable: Arc::new(|_| None),
    };
    Account::new(ServerName::new("s"), &config, place(fake, url), around)
}

fn account(home: &Path, fake: &Fake) -> Arc<Account> {
    account_with(home, fake, SERVER, OauthConfig::default())
}

fn http_config(url: &str) -> HttpConfig {
    HttpConfig {
        url: url.to_owned(),
        headers: BTreeMap::new(),
        kind: crate::config::RemoteKind::Auto,
        oauth: None,
        tls: TlsConfig::default(),
        allow_insecure: false,
    }
}

fn files(home: &Path) -> Files {
    Files::of(home, &ServerName::new("s"))
}

fn tokens(access: &str, refresh: &str, expires_at: u64) -> Tokens {
    Tokens {
        access: Secret::new(access),
        refresh: Some(Secret::new(refresh)),
        expires_at: Some(expires_at),
        lifetime: Some(3600),
        scope: None,
    }
}

/// A home with a login that ended, as hermesd leaves it.
fn ended_login(home: &Path) {
    let files = files(home);
    files.write(Part::Tokens, &tokens("at-0-aaaa", "rt-0-aaaa", NOW - 1).to_file()).unwrap();
    let client = json!({"client_id": "registered", "redirect_uris": ["http://127.0.0.1:1/callback"]});
    files.write(Part::Client, client.as_object().unwrap()).unwrap();
    let binding = Binding {
        server: "s".into(),
        origin: "https://mcp.test".into(),
        issuer: Some(ISSUER.into()),
        client_id: "registered".into(),
        scopes: vec!["read".into()],
    };
    let Value::Object(binding) = serde_json::to_value(binding).unwrap() else { unreachable!() };
    files.write(Part::Binding, &binding).unwrap();
}

fn stored_refresh(home: &Path) -> String {
    files(home).load().tokens.unwrap().refresh.unwrap().expose().to_owned()
}

async fn header(account: &Arc<Account>) -> Option<String> {
    Bearer(account.clone()).header().await.map(|header| header.expose().to_owned())
}

async fn refused(account: &Arc<Account>, status: u16, challenge: &str, sent: &str) -> Next {
    let refusal = Refusal { status, challenges: vec![challenge.to_owned()], sent: Some(Secret::new(sent)) };
    Bearer(account.clone()).refused(refusal).await
}

#[tokio::test(start_paused = true)]
async fn twenty_calls_in_two_programs_renew_an_ended_login_once() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    let programs = [account(home.path(), &fake), account(home.path(), &fake)];
    let headers = join_all((0..20).map(|n| header(&programs[n % 2]))).await;
    assert!(headers.iter().all(|header| header.as_deref() == Some("Bearer at-1-aaaa")), "{headers:?}");
    assert_eq!(fake.asked("grant_type=refresh_token").len(), 1);
    assert_eq!(stored_refresh(home.path()), "rt-1-aaaa");
    assert!(files(home.path()).read(Part::Journal).unwrap().is_none(), "the journal is closed");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_goes_on_when_the_call_that_wanted_it_is_gone() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    let account = account(home.path(), &fake);
    {
        let call = header(&account);
        tokio::pin!(call);
        while fake.asked("grant_type").is_empty() {
            tokio::select! { _ = &mut call => panic!("the answer is not there yet"), () = tokio::task::yield_now() => {} }
        }
    }
    assert_eq!(header(&account).await.as_deref(), Some("Bearer at-1-aaaa"));
    assert_eq!(fake.asked("grant_type=refresh_token").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_not_saved_before_a_crash_is_used_and_saved_after_it() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    let answer = json!({"access_token": "at-9-aaaa", "token_type": "bearer", "expires_in": 3600, "refresh_token": "rt-9-aaaa"});
    let old = Secret::new("rt-0-aaaa");
    super::journal::begin(&files(home.path()), &old, NOW).unwrap();
    super::journal::answered(&files(home.path()), &old, answer.as_object().unwrap(), NOW).unwrap();
    let account = account(home.path(), &fake);
    assert_eq!(header(&account).await.as_deref(), Some("Bearer at-9-aaaa"));
    let mut state = account.state().await;
    account.look(&mut state, Look::Now).await;
    assert_eq!(stored_refresh(home.path()), "rt-9-aaaa");
    assert!(fake.asked("grant_type").is_empty(), "the used-up token is not shown again");
}

#[tokio::test(start_paused = true)]
async fn lifetimes_of_every_kind_lead_to_a_login_that_is_not_renewed_at_once() {
    for odd in [json!("3600"), json!(0), json!(null), json!(3600.5), json!("soon")] {
        let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
        ended_login(home.path());
        fake.odd(json!({"expires_in": odd}));
        let account = account(home.path(), &fake);
        assert_eq!(header(&account).await.as_deref(), Some("Bearer at-1-aaaa"), "{odd}");
        assert_eq!(header(&account).await.as_deref(), Some("Bearer at-1-aaaa"), "{odd}");
        assert_eq!(fake.asked("grant_type").len(), 1, "{odd}");
        assert_eq!(stored_refresh(home.path()), "rt-1-aaaa");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_always_refuses_costs_one_renewal_and_one_action() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    let account = account(home.path(), &fake);
    let first = header(&account).await.unwrap();
    assert_eq!(refused(&account, 401, "Bearer", &first).await, Next::Retry);
    let second = header(&account).await.unwrap();
    assert_ne!(first, second);
    for _ in 0..5 {
        let Next::NeedsAuth { action } = refused(&account, 401, "Bearer", &second).await else {
            panic!("a loop")
        };
        assert!(action.ends_with("run `hermesctl mcp login s`"), "{action}");
    }
    assert_eq!(fake.asked("grant_type").len(), 2);
    // Once it was taken, a later refusal is news.
    Bearer(account.clone()).accepted(&Secret::new(second.as_str()));
    assert_eq!(refused(&account, 401, "Bearer", &second).await, Next::Retry);
    // A call that was refused with the old token is told to take the new one, without a renewal.
    assert_eq!(refused(&account, 401, "Bearer", &first).await, Next::Retry);
    assert_eq!(fake.asked("grant_type").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refused_refresh_token_is_shown_once_and_nothing_is_deleted() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    fake.0.lock().unwrap().refuse = true;
    let account = account(home.path(), &fake);
    for _ in 0..3 {
        let sent = header(&account).await.unwrap();
        assert_eq!(sent, "Bearer at-0-aaaa", "the server decides about the old token");
        let Next::NeedsAuth { action } = refused(&account, 401, "Bearer", &sent).await else {
            panic!("retried")
        };
        assert!(action.contains("hermesctl mcp login s"), "{action}");
    }
    assert_eq!(fake.asked("grant_type").len(), 1);
    assert_eq!(stored_refresh(home.path()), "rt-0-aaaa");
}

#[tokio::test(start_paused = true)]
async fn a_login_that_hermes_agent_renewed_meanwhile_wins_over_a_refusal() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    let theirs = files(home.path());
    fake.0.lock().unwrap().refuse = true;
    // It takes no lock: its file appears while our request is under way.
    fake.0.lock().unwrap().hook = Some(Box::new(move || {
        theirs.write(Part::Tokens, &tokens("at-7-aaaa", "rt-7-aaaa", NOW + 3000).to_file()).unwrap();
    }));
    let account = account(home.path(), &fake);
    assert_eq!(header(&account).await.as_deref(), Some("Bearer at-7-aaaa"));
    assert_eq!(stored_refresh(home.path()), "rt-7-aaaa");
}

#[tokio::test(start_paused = true)]
async fn a_login_of_hermes_agent_belongs_to_the_address_it_was_first_used_for() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    files(home.path()).write(Part::Tokens, &tokens("at-5-aaaa", "rt-5-aaaa", NOW + 3000).to_file()).unwrap();
    assert_eq!(header(&account(home.path(), &fake)).await.as_deref(), Some("Bearer at-5-aaaa"));
    let moved = account_with(home.path(), &fake, "https://evil.test/mcp", OauthConfig::default());
    assert_eq!(header(&moved).await, None);
}

#[tokio::test(start_paused = true)]
async fn calls_share_the_failure_of_an_authorization_server_that_is_down() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    fake.document(
        "https://as.test/.well-known/oauth-authorization-server",
        json!({"issuer": "https://as.test"}),
    );
    let account = account(home.path(), &fake);
    for _ in 0..10 {
        let next = refused(&account, 401, "Bearer", "Bearer at-0-aaaa").await;
        assert!(matches!(next, Next::Later { .. }), "{next:?}");
    }
    let asked = fake.asked("oauth-protected-resource/mcp").len();
    assert_eq!(asked, 1);
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    fake.document("https://as.test/.well-known/oauth-authorization-server", metadata(ISSUER));
    assert_eq!(refused(&account, 401, "Bearer", "Bearer at-0-aaaa").await, Next::Retry);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_not_sent_to_an_address_they_were_not_made_for() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    let moved = account_with(home.path(), &fake, "https://evil.test/mcp", OauthConfig::default());
    assert_eq!(header(&moved).await, None);
    let refusal = Refusal { status: 401, challenges: vec![], sent: None };
    let Next::NeedsAuth { action } = Bearer(moved).refused(refusal).await else { panic!("retried") };
    assert!(action.contains("https://mcp.test") && action.contains("login s"), "{action}");
    assert!(fake.asked("").is_empty(), "nothing was asked of anybody");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_not_shown_to_another_issuer() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    fake.document(
        "https://mcp.test/.well-known/oauth-protected-resource/mcp",
        json!({"resource": SERVER, "authorization_servers": ["https://other.test"]}),
    );
    fake.document(
        "https://other.test/.well-known/oauth-authorization-server",
        metadata("https://other.test"),
    );
    let account = account(home.path(), &fake);
    let sent = header(&account).await.unwrap();
    let Next::NeedsAuth { action } = refused(&account, 401, "Bearer", &sent).await else { panic!("retried") };
    assert!(action.contains("https://other.test"), "{action}");
    assert!(fake.asked("POST").is_empty());
}

#[tokio::test(start_paused = true)]
async fn authorization_servers_are_found_in_every_layout() {
    let challenge = "Bearer resource_metadata=\"https://mcp.test/meta\"";
    let resource = |server: &str| json!({"resource": SERVER, "authorization_servers": [server]});
    let tenant = "https://as.test/tenant";
    let layouts: [(&str, &str, Value, &str, &str); 6] = [
        (
            challenge,
            "https://mcp.test/meta",
            resource(ISSUER),
            "https://as.test/.well-known/oauth-authorization-server",
            ISSUER,
        ),
        (
            "",
            "https://mcp.test/.well-known/oauth-protected-resource/mcp",
            resource(ISSUER),
            "https://as.test/.well-known/openid-configuration",
            ISSUER,
        ),
        (
            "",
            "https://mcp.test/.well-known/oauth-protected-resource",
            json!({"resource": "https://mcp.test", "authorization_servers": [tenant]}),
            "https://as.test/.well-known/oauth-authorization-server/tenant",
            tenant,
        ),
        (
            "",
            "https://mcp.test/.well-known/oauth-protected-resource/mcp",
            resource(tenant),
            "https://as.test/.well-known/openid-configuration/tenant",
            tenant,
        ),
        (
            "",
            "https://mcp.test/.well-known/oauth-protected-resource/mcp",
            resource(tenant),
            "https://as.test/tenant/.well-known/openid-configuration",
            tenant,
        ),
        (
            "",
            "https://mcp.test/none",
            json!({}),
            "https://mcp.test/.well-known/oauth-authorization-server",
            "https://mcp.test",
        ),
    ];
    for (challenge, where_resource, resource, where_server, issuer) in layouts {
        let fake = Fake::default();
        fake.document(where_resource, resource);
        fake.document(where_server, metadata(issuer));
        let demand = Demand::of(&[challenge.to_owned()]);
        let found = discover(&place(&fake, SERVER), &demand, None, tap::keep_nothing()).await;
        let found = found.unwrap_or_else(|error| panic!("{where_server}: {error}"));
        assert_eq!(found.metadata.issuer.as_deref(), Some(issuer), "{where_server}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_authorization_server_that_is_not_there_is_reported_with_every_place_tried() {
    let fake = Fake::default();
    fake.document(
        "https://mcp.test/.well-known/oauth-protected-resource/mcp",
        json!({"resource": SERVER, "authorization_servers": ["https://gone.test/t"]}),
    );
    let error =
        discover(&place(&fake, SERVER), &Demand::default(), None, tap::keep_nothing()).await.unwrap_err();
    let text = error.to_string();
    for tried in
        ["GET https://gone.test/.well-known/oauth-authorization-server/t: 404", "openid-configuration/t: 404"]
    {
        assert!(text.contains(tried), "{text}");
    }
}

/// A login under way, with its browser's part in our hands.
struct Driven {
    state: watch::Receiver<LoginState>,
    token: watch::Receiver<Option<Arc<str>>>,
    brought: mpsc::Sender<super::listener::Brought>,
    task: tokio::task::JoinHandle<Result<(), LoginError>>,
}

fn drive(account: &Arc<Account>) -> Driven {
    let (state_in, state) = watch::channel(LoginState::Preparing);
    let (token_in, token) = watch::channel(None);
    let (brought_in, brought) = mpsc::channel(1);
    let flow = Flow {
        account: account.clone(),
        state: state_in,
        brought_in: brought_in.clone(),
        brought,
        token: token_in,
        stop: CancellationToken::new(),
    };
    let task = account.around.tasks.spawn(flow.run());
    Driven { state, token, brought: brought_in, task }
}

impl Driven {
    async fn url(&mut self) -> Url {
        let waiting = self.state.wait_for(|state| !matches!(state, LoginState::Preparing)).await.unwrap();
        match &*waiting {
            LoginState::Waiting { url, .. } => Url::parse(url).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn bring(self, query: &str) -> Result<(), LoginError> {
        let state = self.token.borrow().clone().unwrap();
        let answer = callback::read(&format!("{query}&state={state}"), &state).unwrap();
        let (page, _) = oneshot::channel();
        self.brought.send((answer, page)).await.unwrap();
        self.task.await.unwrap()
    }
}

fn parameters(url: &Url) -> BTreeMap<String, String> {
    url.query_pairs().into_owned().collect()
}

#[tokio::test(start_paused = true)]
async fn a_login_asks_with_pkce_resource_and_scopes_and_leaves_files_that_hermes_agent_reads() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    let account = account(home.path(), &fake);
    assert_eq!(header(&account).await, None);
    let mut login = drive(&account);
    let asked = parameters(&login.url().await);
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!((asked["resource"].as_str(), asked["scope"].as_str()), (SERVER, "read"));
    assert!(asked["redirect_uri"].starts_with("http://127.0.0.1:"));
    login.bring("code=good-code&iss=https%3A%2F%2Fas.test").await.unwrap();
    assert_eq!(header(&account).await.as_deref(), Some("Bearer at-1-aaaa"));
    let file = files(home.path()).read(Part::Tokens).unwrap().unwrap();
    assert_eq!(
        Value::Object(file),
        json!({
            "access_token": "at-1-aaaa", "token_type": "Bearer", "expires_in": 3600,
            "expires_at": NOW + 3600, "refresh_token": "rt-1-aaaa",
        })
    );
    let client = files(home.path()).read(Part::Client).unwrap().unwrap();
    assert_eq!(client["redirect_uris"], json!([asked["redirect_uri"]]));
    assert!(client.values().all(|value| !value.is_null()));
    let published = files(home.path()).read(Part::Metadata).unwrap().unwrap();
    assert_eq!(published["issuer"], ISSUER);
    // Another program finds the same login; a second login uses the registration again.
    assert_eq!(
        header(&super::scripted_tests::account(home.path(), &fake)).await.as_deref(),
        Some("Bearer at-1-aaaa")
    );
    let mut again = drive(&account);
    assert_eq!(parameters(&again.url().await)["redirect_uri"], asked["redirect_uri"]);
    assert_eq!(fake.asked("/register").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_bad_end_of_a_login_is_told_apart_and_leaves_the_old_login_alone() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    let account = account(home.path(), &fake);
    for (query, wanted) in [
        ("code=good-code&iss=https%3A%2F%2Fevil.test", "came from https://evil.test"),
        ("error=access_denied&error_description=not+today", "`access_denied`: not today"),
        ("error=x&error_description=lies&iss=https%3A%2F%2Fevil.test", "came from https://evil.test"),
        ("code=bad-code", "gave no tokens"),
    ] {
        let mut login = drive(&account);
        login.url().await;
        let state = login.state.clone();
        let text = login.bring(query).await.unwrap_err().to_string();
        assert!(text.contains(wanted) && !text.contains("lies"), "{text}");
        assert!(matches!(&*state.borrow(), LoginState::Failed { hint, .. } if !hint.is_empty()));
    }
    let mut login = drive(&account);
    login.url().await;
    assert!(matches!(login.task.await.unwrap(), Err(LoginError::TimedOut { .. })));
    assert_eq!(stored_refresh(home.path()), "rt-0-aaaa");
}

#[tokio::test(start_paused = true)]
async fn documents_that_lead_elsewhere_end_a_login_before_the_browser() {
    for (endpoint, value) in [
        ("authorization_endpoint", "javascript:alert(1)"),
        ("authorization_endpoint", "file:///etc/passwd"),
        ("authorization_endpoint", "http://as.test/authorize"),
        ("token_endpoint", "http://127.0.0.1:6379/"),
        ("token_endpoint", "https://169.254.169.254/token"),
        ("registration_endpoint", "https://10.0.0.1/register"),
    ] {
        let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
        let mut document = metadata(ISSUER);
        document[endpoint] = json!(value);
        fake.document("https://as.test/.well-known/oauth-authorization-server", document);
        let account = account(home.path(), &fake);
        let login = drive(&account);
        assert!(login.task.await.unwrap().is_err(), "{value}");
        assert!(fake.asked("POST").is_empty(), "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_rights_are_asked_for_together_with_the_old_ones_and_not_for_ever() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    ended_login(home.path());
    let account = account(home.path(), &fake);
    let mut sent = header(&account).await.unwrap();
    let mut logins = 0;
    let error = loop {
        let challenge = "Bearer error=\"insufficient_scope\", scope=\"write\"";
        let Next::Forbidden { action } = refused(&account, 403, challenge, &sent).await else {
            panic!("retried")
        };
        assert!(action.contains("`write`") && action.contains("mcp login s"), "{action}");
        let mut login = drive(&account);
        if let Err(error) = {
            let ended = login.state.wait_for(|state| !matches!(state, LoginState::Preparing)).await.unwrap();
            if matches!(&*ended, LoginState::Failed { .. }) { Err(()) } else { Ok(()) }
        } {
            let () = error;
            break login.task.await.unwrap().unwrap_err();
        }
        assert_eq!(parameters(&login.url().await)["scope"], "read write");
        login.bring("code=good-code").await.unwrap();
        sent = header(&account).await.unwrap();
        logins += 1;
        assert!(logins < 10);
    };
    assert_eq!(logins, 3);
    assert!(matches!(error, LoginError::NeverEnough { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn credentials_of_a_client_need_no_person() {
    let (home, fake) = (tempfile::tempdir().unwrap(), Fake::usual());
    let oauth = OauthConfig {
        client_id: Some("robot".into()),
        client_secret: Some(Secret::new("robot-secret")),
        grant: crate::config::OauthGrant::ClientCredentials,
        ..OauthConfig::default()
    };
    fake.0.lock().unwrap().hook = None;
    let account = account_with(home.path(), &fake, SERVER, oauth);
    // This authorization server knows no such grant: the reason reaches the person.
    assert_eq!(header(&account).await, None);
    let refusal = Refusal { status: 401, challenges: vec![], sent: None };
    let Next::NeedsAuth { action } = Bearer(account).refused(refusal).await else { panic!("retried") };
    assert!(action.contains("invalid_grant"), "{action}");
    let asked = fake.asked("grant_type=client_credentials");
    assert!(asked[0].contains("scope=read"), "{asked:?}");
}
