//! Memory of the servers: everything below each guard, counted when somebody asks.
//!
//! Reads the process table on the blocking pool; nothing is counted while nobody looks.

use crate::process::table;
use hermes_proto::control as pb;

/// Fills in memory and processes of the servers that run.
///
/// # Cancel safety
/// Cancel safe; nothing is filled in then.
pub(super) async fn measure(servers: &mut [pb::ServerStatus]) {
    let guards: Vec<(usize, u32)> =
        servers.iter().enumerate().filter_map(|(at, server)| Some((at, server.guard_pid?))).collect();
    if guards.is_empty() {
        return;
    }
    let counted = tokio::task::spawn_blocking(move || {
        guards.into_iter().map(|(at, guard)| (at, below(guard))).collect::<Vec<_>>()
    });
    // It only fails when the runtime ends.
    for (at, (processes, bytes)) in counted.await.unwrap_or_default() {
        servers[at].processes = processes;
        servers[at].memory_bytes = bytes;
    }
}

/// Living processes below `guard`, and what they hold in memory.
fn below(guard: u32) -> (u32, u64) {
    let living = table::below(guard).into_iter().filter(|process| !process.zombie);
    living.fold((0, 0), |(processes, bytes), process| {
        (processes + 1, bytes + table::resident(process.pid).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_that_of_everything_below_the_guard() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let server = |guard_pid| pb::ServerStatus { guard_pid, ..Default::default() };
        let mut servers = [server(None), server(Some(table::own_pid()))];
        measure(&mut servers).await;
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((servers[0].processes, servers[0].memory_bytes), (0, 0));
        assert!(servers[1].processes >= 1 && servers[1].memory_bytes > 4096, "{:?}", servers[1]);
    }
}
