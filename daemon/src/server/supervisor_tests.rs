//! The supervisor against scripted servers over real pipes, with a clock that only the test moves.

use super::*;
use crate::config::{StdioConfig, TransportConfig};
use crate::server::instances::{Found, InstanceKey, Instances, InstancesFull};
use crate::server::launch::Launcher;
use crate::server::launch::{Ignition, Process, Survivors};
use crate::server::places::Places;
use crate::server::wire::{Answer, Progress, Request};
use crate::tasks::TaskGroup;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;

/// What a scripted server does.
#[derive(Debug, Clone)]
struct Script {
    /// Ends with this before it answers anything.
    exits: Option<Exit>,
    /// Methods that it never answers.
    silent: Vec<&'static str>,
    /// Its tools; shared with the test, which may change them.
    tools: Arc<Mutex<Vec<String>>>,
    /// Ignores the end of its stdin until it is killed after this long.
    stubborn: Duration,
}

impl Default for Script {
    fn default() -> Self {
        let tools = Arc::new(Mutex::new(vec!["a".to_owned()]));
        Self { exits: None, silent: Vec::new(), tools, stubborn: Duration::ZERO }
    }
}

type Exits = watch::Sender<Option<Exit>>;

struct Fake {
    script: Mutex<Script>,
    prepare: Mutex<Option<Failure>>,
    tasks: TaskGroup,
    spawned: Mutex<Vec<Instant>>,
    alive: Arc<AtomicUsize>,
    most_alive: AtomicUsize,
    heard: Arc<Mutex<Vec<String>>>,
    /// Of the living generation: ends it, and writes to its stdout.
    exit: Mutex<Option<Exits>>,
    say: Arc<Mutex<Option<mpsc::Sender<String>>>>,
    /// While set, servers read and answer nothing.
    frozen: Arc<std::sync::atomic::AtomicBool>,
}

struct FakeProcess {
    exits: Exits,
    alive: Arc<AtomicUsize>,
    stubborn: Duration,
    dead: bool,
}

impl Process for FakeProcess {
    fn exited(&mut self) -> BoxFuture<'_, Exit> {
        let mut exits = self.exits.subscribe();
        Box::pin(async move {
            let exit = exits.wait_for(Option::is_some).await.expect("the sender is held beside");
            (*exit).expect("waited for")
        })
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, Result<(), Survivors>> {
        Box::pin(async move {
            tokio::time::sleep(self.stubborn.min(budget)).await;
            self.exits.send_if_modified(|exit| exit.replace(Exit::Signal(9)).is_none());
            if !std::mem::replace(&mut self.dead, true) {
                self.alive.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }
}

impl Fake {
    fn new(script: Script) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script),
            prepare: Mutex::new(None),
            tasks: TaskGroup::new(),
            spawned: Mutex::default(),
            alive: Arc::default(),
            most_alive: AtomicUsize::new(0),
            heard: Arc::default(),
            exit: Mutex::default(),
            say: Arc::default(),
            frozen: Arc::default(),
        })
    }

    fn spawns(&self) -> usize {
        self.spawned.lock().unwrap().len()
    }

    fn change(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }

    fn kill(&self, exit: Exit) {
        self.exit.lock().unwrap().as_ref().unwrap().send_replace(Some(exit));
    }

    fn say(&self, message: &Value) {
        self.say.lock().unwrap().as_ref().unwrap().try_send(message.to_string()).unwrap();
    }

    /// Deaf from now on, like a process stopped by a signal; the next generation is not.
    fn freeze(&self) {
        self.frozen.store(true, Ordering::Relaxed);
    }

    fn heard(&self, method: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|m| *m == method).count()
    }

    fn launched(self: &Arc<Self>) -> Launched {
        self.spawned.lock().unwrap().push(Instant::now());
        self.frozen.store(false, Ordering::Relaxed);
        let alive = self.alive.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_alive.fetch_max(alive, Ordering::Relaxed);
        let (stdin, input) = pipe::pipe().unwrap();
        let (output, stdout) = pipe::pipe().unwrap();
        let script = self.script.lock().unwrap().clone();
        let exits = watch::Sender::new(script.exits);
        *self.exit.lock().unwrap() = Some(exits.clone());
        let (say, said) = mpsc::channel(8);
        *self.say.lock().unwrap() = Some(say);
        let stubborn = script.stubborn;
        self.tasks.spawn(serve(
            script,
            (input, output),
            exits.subscribe(),
            said,
            self.heard.clone(),
            self.frozen.clone(),
        ));
        let process = FakeProcess { exits, alive: self.alive.clone(), stubborn, dead: false };
        let connection = crate::server::launch::Connection::Pipes { stdin, stdout };
        Launched { pid: Some(77), guard_pid: Some(76), connection, process: Box::new(process) }
    }
}

async fn over(exits: &mut watch::Receiver<Option<Exit>>) {
    let _ = exits.wait_for(Option::is_some).await;
}

async fn serve(
    script: Script,
    (input, mut output): (pipe::Receiver, pipe::Sender),
    mut exits: watch::Receiver<Option<Exit>>,
    mut said: mpsc::Receiver<String>,
    heard: Arc<Mutex<Vec<String>>>,
    frozen: Arc<std::sync::atomic::AtomicBool>,
) {
    let mut lines = BufReader::new(input).lines();
    loop {
        let line = tokio::select! {
            biased;
            () = over(&mut exits) => return,
            Some(line) = said.recv() => {
                output.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                continue;
            }
            line = lines.next_line() => line.unwrap(),
        };
        let Some(line) = line else {
            // Leaves only when it is made to: what it does about EOF is the guard's affair.
            over(&mut exits).await;
            return;
        };
        if frozen.load(Ordering::Relaxed) {
            over(&mut exits).await;
            return;
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        heard.lock().unwrap().push(method.clone());
        if message["id"].is_null() || script.silent.contains(&method.as_str()) {
            continue;
        }
        let result = match method.as_str() {
            "initialize" => {
                json!({"protocolVersion": "2025-06-18", "serverInfo": {"name": "fake", "version": "1"},
                "capabilities": {"tools": {}, "prompts": {}}})
            }
            "tools/list" => {
                let tools: Vec<Value> = script
                    .tools
                    .lock()
                    .unwrap()
                    .iter()
                    .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
                    .collect();
                json!({ "tools": tools })
            }
            "prompts/list" => json!({"prompts": [{"name": "p"}]}),
            _ => json!({}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        // A failure to write: the supervisor has closed the pipe.
        let _ = output.write_all(format!("{answer}\n").as_bytes()).await;
    }
}

/// The launcher of a test; a newtype because the fake hands out clones of its own `Arc`.
struct FakeLauncher(Arc<Fake>);

impl Launcher for FakeLauncher {
    fn prepare(&self, _: Arc<ServerConfig>, _: Reporter) -> BoxFuture<'static, Result<Ignition, Failure>> {
        let fake = self.0.clone();
        Box::pin(async move {
            if let Some(failure) = fake.prepare.lock().unwrap().clone() {
                return Err(failure);
            }
            let ignition: Ignition = Box::new(move |_| Box::pin(async move { Ok(fake.launched()) }));
            Ok(ignition)
        })
    }

    fn log(&self, _: &ServerName) -> Arc<dyn Log> {
        Arc::new(FakeLog)
    }
}

#[derive(Debug)]
struct FakeLog;

impl Log for FakeLog {
    fn tail(&self) -> Vec<String> {
        vec!["last words".to_owned()]
    }

    fn note(&self, _: &str) {}
}

struct Rig {
    fake: Arc<Fake>,
    server: ServerHandle,
    shared: Shared,
}

fn config() -> ServerConfig {
    ServerConfig::with_transport(
        ServerName::new("w"),
        TransportConfig::Stdio(StdioConfig::command("/bin/fake")),
    )
}

fn rig(script: Script, config: ServerConfig, known: Known) -> Rig {
    let fake = Fake::new(script);
    // Keeps the runtime busy, so that the paused clock never moves on its own.
    fake.tasks.spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let shared = Shared::new(Arc::new(FakeLauncher(fake.clone())), TaskGroup::new(), Starts::Allowed);
    let server = Supervisor::start(Arc::new(config), known, shared.clone());
    Rig { fake, server, shared }
}

fn lazy() -> Known {
    Known::Current(Arc::new(Listing::default()))
}

impl Rig {
    /// Lets everything run that can run without time passing, until `condition` holds.
    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if condition(self) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("not reached: {what}; {:?}", *self.server.status.borrow());
    }

    async fn ready(&self) {
        self.until("ready", |rig| rig.server.live().is_some()).await;
    }

    /// Gives everybody plenty of turns without moving the clock.
    async fn settled(&self) {
        for _ in 0..2_000 {
            tokio::task::yield_now().await;
        }
    }

    fn phase(&self) -> Phase {
        self.server.status.borrow().phase.clone()
    }

    async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
        self.settled().await;
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_catalogue_is_started_to_learn_it_and_a_known_one_is_not() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    let listing = rig.server.listing.borrow().clone().unwrap();
    assert_eq!(listing.tools[0].name.as_str(), "a");
    rig.until("prompts", |rig| rig.server.listing.borrow().as_ref().unwrap().prompts.len() == 1).await;
    assert_eq!(rig.fake.heard("notifications/initialized"), 1);
    assert_eq!(rig.fake.heard("resources/list"), 0, "resources were not declared");

    let known = self::rig(Script::default(), config(), lazy());
    known.settled().await;
    assert_eq!(known.fake.spawns(), 0);
    assert!(known.server.ready(deadline()).await.is_ok(), "the first call starts it");
    assert_eq!(known.fake.spawns(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_calls_at_once_cause_one_start() {
    let rig = rig(Script::default(), config(), lazy());
    let calls = (0..20).map(|_| rig.server.ready(deadline()));
    for outcome in futures_util::future::join_all(calls).await {
        assert!(outcome.is_ok());
    }
    assert_eq!(rig.fake.spawns(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_published_without_time_passing_and_healed_after_the_backoff() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    let wire = rig.server.live().unwrap();
    rig.fake.change(|script| script.silent = vec!["tools/call"]);
    let (idle, cap, progress) = (secs(1800), secs(1800), Progress::Unwanted);
    let call = wire.request(Request { method: "slow".into(), params: None, idle, cap, progress });
    let before = Instant::now();
    rig.fake.kill(Exit::Code(3));
    rig.until("backing off", |rig| matches!(rig.phase(), Phase::BackingOff { .. })).await;
    // Whether the answer or the crash came first, the call is over now.
    let _ = call.unwrap().done().await;
    assert_eq!(before.elapsed(), Duration::ZERO);
    let status = rig.server.status.borrow().clone();
    assert_eq!(status.last_exit, Some(Exit::Code(3)));
    assert!(status.reason().contains("exited with code 3"), "{}", status.reason());
    rig.until("dead", |rig| rig.server.status.borrow().pid.is_none()).await;
    assert_eq!(rig.server.status.borrow().stderr_tail(), ["last words"]);
    rig.pass(Duration::from_millis(999)).await;
    assert_eq!(rig.fake.spawns(), 1);
    rig.pass(Duration::from_millis(200)).await;
    rig.ready().await;
    assert_eq!(rig.server.status.borrow().restarts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_at_once_is_tried_five_times_then_every_ten_minutes() {
    let script = Script { exits: Some(Exit::Code(1)), ..Script::default() };
    let rig = rig(script, config(), Known::Nothing);
    rig.settled().await;
    for _ in 0..60 {
        rig.pass(secs(1)).await;
    }
    assert_eq!(rig.fake.spawns(), 5);
    let status = rig.server.status.borrow().clone();
    assert!(matches!(status.phase, Phase::Parked { until: Some(_), .. }), "{:?}", status.phase);
    assert!(status.reason().contains("exited with code 1 before it was ready"));
    rig.pass(secs(660)).await;
    assert_eq!(rig.fake.spawns(), 6);
    assert_eq!(rig.fake.most_alive.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_mended_parks_at_once_and_a_call_learns_why() {
    for exit in [126, 127] {
        let script = Script { exits: Some(Exit::Code(exit)), ..Script::default() };
        let rig = rig(script, config(), Known::Nothing);
        rig.until("parked", |rig| matches!(rig.phase(), Phase::Parked { until: None, .. })).await;
    }
    let rig = rig(Script::default(), config(), lazy());
    *rig.fake.prepare.lock().unwrap() = Some(Failure::permanent("command `x` not found"));
    let error = rig.server.ready(deadline()).await.unwrap_err();
    assert!(error.to_string().contains("command `x` not found"), "{error}");
    *rig.fake.prepare.lock().unwrap() = None;
    rig.pass(secs(1)).await;
    assert!(rig.server.ready(deadline()).await.is_ok(), "use brings a parked server back");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_backoff_starts_it_at_once() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    rig.pass(secs(2)).await;
    rig.fake.kill(Exit::Signal(9));
    rig.until("backing off", |rig| matches!(rig.phase(), Phase::BackingOff { .. })).await;
    let before = Instant::now();
    assert!(rig.server.ready(deadline()).await.is_ok());
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(rig.fake.most_alive.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn silence_in_the_handshake_ends_with_the_budget_which_grows() {
    let script = Script { silent: vec!["initialize"], ..Script::default() };
    let rig = rig(script, config(), Known::Nothing);
    rig.settled().await;
    for _ in 0..59 {
        rig.pass(secs(1)).await;
    }
    assert!(matches!(rig.phase(), Phase::Starting { attempt: 1 }));
    for _ in 0..3 {
        rig.pass(secs(1)).await;
    }
    assert!(matches!(rig.phase(), Phase::Starting { attempt: 2 }), "{:?}", rig.phase());
    for _ in 0..110 {
        rig.pass(secs(1)).await;
    }
    assert_eq!(rig.fake.spawns(), 2);
    assert_eq!(rig.fake.alive.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn stop_works_in_every_phase_and_leaves_nothing() {
    let script = Script { silent: vec!["initialize"], stubborn: secs(3), ..Script::default() };
    let rig = rig(script, config(), Known::Nothing);
    rig.until("spawned", |rig| rig.fake.spawns() == 1).await;
    let server = rig.server.clone();
    let stopping = rig.fake.tasks.spawn(async move { server.stop(StopReason::Operator).await });
    rig.settled().await;
    assert!(matches!(rig.phase(), Phase::Stopping { .. }));
    rig.pass(secs(3)).await;
    stopping.await.unwrap();
    assert_eq!(rig.fake.alive.load(Ordering::Relaxed), 0);
    assert!(matches!(rig.phase(), Phase::Stopped { reason: StopReason::Operator }));
    rig.server.stop(StopReason::Operator).await;
    rig.pass(secs(3600)).await;
    assert_eq!(rig.fake.spawns(), 1, "a stopped server stays stopped");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_daemon_ends_every_server_and_its_task() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    assert_eq!(rig.shared.tasks.finish(secs(10)).await, crate::tasks::Finished::All);
    assert_eq!(rig.fake.alive.load(Ordering::Relaxed), 0);
    let error = rig.server.ready(deadline()).await.unwrap_err();
    assert!(matches!(error, NotReady::Stopped { reason: StopReason::Shutdown, .. }));
}

#[tokio::test(start_paused = true)]
async fn a_changed_configuration_drains_then_restarts_and_limits_apply_in_place() {
    let script = Script { silent: vec!["slow"], ..Script::default() };
    let rig = rig(script, config(), Known::Nothing);
    rig.ready().await;
    let (idle, cap, progress) = (secs(1800), secs(1800), Progress::Unwanted);
    let wire = rig.server.live().unwrap();
    let call = wire.request(Request { method: "slow".into(), params: None, idle, cap, progress }).unwrap();
    rig.until("the call is there", |rig| rig.fake.heard("slow") == 1).await;

    let narrow = ServerConfig { max_concurrency: 2.try_into().unwrap(), ..config() };
    rig.server.reconfigure(Arc::new(narrow.clone()), Apply::InPlace).await;
    rig.settled().await;
    assert_eq!((rig.server.slots.usage().limit, rig.fake.spawns()), (2, 1));

    rig.server.reconfigure(Arc::new(narrow), Apply::Restart).await;
    rig.settled().await;
    rig.pass(secs(10)).await;
    assert_eq!(rig.fake.spawns(), 1, "the call in flight may finish");
    rig.fake.say(&json!({"id": 4, "result": {"late": 1}}));
    let Ok(Answer::Result(answer)) = call.done().await else { panic!("the call was lost") };
    assert!(answer.get().contains("late"));
    rig.pass(secs(1)).await;
    rig.ready().await;
    assert_eq!((rig.fake.spawns(), rig.fake.most_alive.load(Ordering::Relaxed)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_ping_lives_and_is_not_pinged_again() {
    let script = Script { silent: vec!["ping", "slow"], ..Script::default() };
    let rig = rig(script, config(), Known::Nothing);
    rig.ready().await;
    rig.settled().await;
    rig.pass(secs(61)).await;
    assert_eq!(rig.fake.heard("ping"), 1);
    rig.pass(secs(11)).await;
    rig.settled().await;
    assert!(rig.server.live().is_some(), "it ignores ping but answers tools/list");
    rig.pass(secs(61)).await;
    assert_eq!((rig.fake.heard("ping"), rig.fake.spawns()), (1, 1), "it is never pinged again");
}

#[tokio::test(start_paused = true)]
async fn a_deaf_server_is_restarted_after_its_probe_and_a_busy_one_is_not() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    rig.fake.change(|script| script.silent = vec!["slow"]);
    rig.server.restart(Drain::Now, deadline()).await.unwrap();
    let wire = rig.server.live().unwrap();
    rig.until("quiet", |_| wire.stats().in_flight.load(Ordering::Relaxed) == 0).await;
    let (idle, cap, progress) = (secs(300), secs(300), Progress::Unwanted);
    let busy = wire.request(Request { method: "slow".into(), params: None, idle, cap, progress }).unwrap();
    for _ in 0..10 {
        rig.pass(secs(15)).await;
    }
    assert_eq!((rig.fake.heard("ping"), rig.fake.spawns()), (0, 2), "a call in flight explains the silence");
    drop(busy);
    rig.settled().await;
    rig.fake.freeze();
    for _ in 0..5 {
        rig.pass(secs(10)).await;
    }
    rig.until("restarted", |rig| rig.fake.spawns() == 3).await;
    assert_eq!(rig.fake.most_alive.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_process_of_the_daemon_restarts_nothing() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    rig.settled().await;
    for _ in 0..5 {
        rig.pass(secs(120)).await;
    }
    assert_eq!(rig.fake.spawns(), 1);
    assert!(rig.fake.heard("ping") >= 4);
}

#[tokio::test(start_paused = true)]
async fn an_announced_change_is_read_and_looked_at_again_when_it_comes_late() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    rig.until("prompts", |rig| rig.fake.heard("prompts/list") == 1).await;
    rig.settled().await;
    let mut listing = rig.server.listing();
    listing.mark_unchanged();
    for _ in 0..5 {
        rig.fake.say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    }
    rig.settled().await;
    assert!(!listing.has_changed().unwrap(), "nothing changed, nobody is told");
    let read = rig.fake.heard("tools/list");
    assert!(read <= 3, "{read} reads for five notices");
    rig.fake.script.lock().unwrap().tools.lock().unwrap().push("b".into());
    rig.pass(Duration::from_millis(600)).await;
    rig.until("the late change", |rig| rig.server.listing.borrow().as_ref().unwrap().tools.len() == 2).await;
    assert!(listing.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_stops_keeps_its_listing_and_comes_back() {
    let config = ServerConfig { idle_stop: Some(secs(20)), ..config() };
    let rig = rig(Script::default(), config, Known::Nothing);
    rig.ready().await;
    rig.settled().await;
    let slot = rig.server.slots.acquire(crate::names::ClientId(1), deadline()).await.unwrap();
    rig.pass(secs(25)).await;
    assert!(rig.server.live().is_some(), "in use");
    drop(slot);
    for _ in 0..5 {
        rig.pass(secs(10)).await;
    }
    rig.until("stopped", |rig| matches!(rig.phase(), Phase::Stopped { reason: StopReason::Idle })).await;
    assert_eq!(rig.server.listing.borrow().as_ref().unwrap().tools.len(), 1);
    assert!(rig.server.ready(deadline()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_closes_the_breaker() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    let now = Instant::now().into_std();
    for _ in 0..3 {
        rig.server.breaker.try_acquire(now).unwrap().finish(crate::server::breaker::Outcome::Failure, now);
    }
    assert!(rig.server.breaker.check(now).is_err());
    rig.server.restart(Drain::Now, deadline()).await.unwrap();
    assert!(rig.server.breaker.check(now).is_ok());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_start_place_is_not_charged_to_the_server() {
    let fake = Fake::new(Script::default());
    let busy = rig(Script::default(), config(), lazy());
    let places = Places::new(1);
    let shared = Shared {
        launcher: Arc::new(FakeLauncher(fake.clone())),
        places: places.clone(),
        ..busy.shared.clone()
    };
    let held = places.take().await;
    let server = Supervisor::start(Arc::new(config()), Known::Nothing, shared);
    busy.pass(secs(300)).await;
    assert!(matches!(server.status.borrow().phase, Phase::Starting { attempt: 1 }));
    assert_eq!(fake.spawns(), 0);
    drop(held);
    busy.until("ready", |_| server.live().is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn instances_are_made_by_use_bounded_and_never_ended_under_a_call() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    let instances = Instances::limited(&rig.server, 2);
    let client = |n| InstanceKey::Client(crate::names::ClientId(n));
    let made = |n| match instances.get(&client(n), None).unwrap() {
        Found::New(handle) => handle,
        Found::Known(_) => panic!("there was none"),
    };
    let (one, two) = (made(1), made(2));
    assert!(matches!(instances.get(&client(2), None), Ok(Found::Known(_))));
    rig.settled().await;
    assert_eq!(rig.fake.spawns(), 1, "an instance starts with its first call");
    one.ready(deadline()).await.unwrap();
    two.ready(deadline()).await.unwrap();
    assert_eq!(rig.fake.alive.load(Ordering::Relaxed), 3);
    let busy_one = one.slots().acquire(crate::names::ClientId(1), deadline()).await.unwrap();
    let busy_two = two.slots().acquire(crate::names::ClientId(2), deadline()).await.unwrap();
    assert_eq!(instances.get(&client(3), None).unwrap_err(), InstancesFull { limit: 2 });
    drop(busy_two);
    let three = made(3);
    assert_eq!(three.listing().borrow().as_ref().unwrap().tools.len(), 1, "the catalogue is known");
    rig.until("two is gone", |rig| rig.fake.alive.load(Ordering::Relaxed) == 2).await;
    assert!(one.live().is_some(), "the one with a call stays, although it was used earlier");
    drop(busy_one);
    instances.release(&client(1));
    instances.release(&InstanceKey::Shared);
    rig.until("one is gone", |rig| rig.fake.alive.load(Ordering::Relaxed) == 1).await;
    assert!(rig.server.live().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_announces_a_change_all_the_time_is_asked_less_and_less() {
    let rig = rig(Script::default(), config(), Known::Nothing);
    rig.ready().await;
    rig.settled().await;
    let before = rig.fake.heard("tools/list");
    for _ in 0..600 {
        rig.fake.say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        rig.pass(Duration::from_millis(100)).await;
    }
    let asked = rig.fake.heard("tools/list") - before;
    assert!((4..=24).contains(&asked), "{asked} times in a minute of 600 notices");
}

#[tokio::test(start_paused = true)]
async fn servers_that_hang_do_not_keep_others_from_starting() {
    let hanging = rig(Script { silent: vec!["initialize"], ..Script::default() }, config(), lazy());
    let places = Places::new(1);
    let shared = Shared { places, ..hanging.shared.clone() };
    let _hangs = Supervisor::start(Arc::new(config()), Known::Nothing, shared.clone());
    hanging.until("spawned", |rig| rig.fake.spawns() == 1).await;
    let fake = Fake::new(Script::default());
    let shared = Shared { launcher: Arc::new(FakeLauncher(fake.clone())), ..shared };
    let server = Supervisor::start(Arc::new(config()), Known::Nothing, shared);
    hanging.pass(secs(9)).await;
    assert_eq!(fake.spawns(), 0);
    hanging.pass(secs(2)).await;
    hanging.until("ready", |_| server.live().is_some()).await;
}
