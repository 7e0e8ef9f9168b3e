//! Reading what the kernel says of a process: one line of `/proc/<pid>/stat` on Linux, the block of
//! arguments (`KERN_PROCARGS2`) on macOS.
//!
//! Pure. The name may hold spaces, brackets and line ends, so the numbers are found from the last
//! closing bracket.

/// One process as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Parent's process id; 0 for the first process.
    pub ppid: u32,
    /// Process group.
    pub pgid: u32,
    /// Session.
    pub sid: u32,
    /// When it started: clock ticks since boot on Linux, microseconds since 1970 on macOS. With
    /// the pid it names one process for as long as the machine is up.
    pub start: u64,
    /// Whether it ended and only waits to be reaped.
    pub zombie: bool,
    /// Short name, at most 16 bytes. Chosen by the process: never trust it.
    pub name: String,
}

impl Process {
    /// Parses the content of a stat file; `None` when it is no such line.
    pub fn parse(line: &str) -> Option<Self> {
        let open = line.find('(')?;
        let close = line.rfind(')')?;
        let pid = line.get(..open)?.trim().parse().ok()?;
        let name = line.get(open + 1..close)?.to_owned();
        // Fields after the name, counted from 3 in proc_pid_stat(5): 3 is the state, 22 the start.
        let mut fields = line.get(close + 1..)?.split_ascii_whitespace();
        let state = fields.next()?;
        let ppid = fields.next()?.parse().ok()?;
        let pgid = fields.next()?.parse().ok()?;
        let sid = fields.next()?.parse().ok()?;
        let start = fields.nth(15)?.parse().ok()?;
        Some(Self { pid, ppid, pgid, sid, start, zombie: matches!(state, "Z" | "X" | "x"), name })
    }
}

/// The environment in a block of arguments, entries ended by NUL; `None` when the block is cut short.
#[cfg(any(target_os = "macos", test))]
pub fn environment_in(block: &[u8]) -> Option<&[u8]> {
    // argc, the program's path, padding, then argc arguments, then the environment.
    let argc = usize::try_from(i32::from_ne_bytes(*block.first_chunk::<4>()?)).ok()?;
    let rest = &block[4..];
    let path_end = rest.iter().position(|byte| *byte == 0)?;
    let mut at = path_end + rest[path_end..].iter().position(|byte| *byte != 0)?;
    for _ in 0..argc {
        at += rest[at..].iter().position(|byte| *byte == 0)? + 1;
    }
    Some(&rest[at..])
}

/// Everything in `all` that descends from `root`, `root` itself left out. Parents come before
/// their children.
pub fn descendants(all: &[Process], root: u32) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.ppid == parent && process.pid != root) {
            // A table read while processes come and go may name a pid twice or form a circle.
            if found.iter().all(|known| known.pid != process.pid) {
                parents.push(process.pid);
                found.push(process.clone());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn process(pid: u32, ppid: u32) -> Process {
        Process { pid, ppid, pgid: 1, sid: 1, start: 5, zombie: false, name: String::new() }
    }

    #[test]
    fn the_environment_follows_the_arguments_of_a_block() {
        let block = |argc: i32, rest: &[u8]| [&argc.to_ne_bytes()[..], rest].concat();
        let whole = block(2, b"/bin/x\0\0\0x\0--a\0A=1\0B=2\0");
        assert_eq!(environment_in(&whole), Some(&b"A=1\0B=2\0"[..]));
        assert_eq!(environment_in(&block(1, b"/bin/x\0\0x\0")), Some(&b""[..]));
        for cut in [&b""[..], b"\0\0", &block(3, b"/bin/x\0x\0y\0"), &block(-1, b"/bin/x\0x\0")] {
            assert_eq!(environment_in(cut), None);
        }
    }

    #[test]
    fn a_name_with_brackets_spaces_and_line_ends_does_not_shift_the_fields() {
        let line = "42 (a) R 1 (\n b) S 7 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 100 200 18446744073709551615";
        let found = Process::parse(line).expect("a valid line");
        assert_eq!((found.pid, found.ppid, found.pgid, found.sid, found.start), (42, 7, 40, 39, 987_654));
        assert_eq!(found.name, "a) R 1 (\n b");
        assert!(!found.zombie);
    }

    #[test]
    fn descendants_end_even_when_the_table_forms_a_circle() {
        let table = [process(2, 3), process(3, 2), process(4, 1), process(5, 4)];
        let pids = |root| descendants(&table, root).iter().map(|p| p.pid).collect::<Vec<_>>();
        assert_eq!(pids(1), [4, 5]);
        assert_eq!(pids(2), [3]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused_without_a_panic(line in ".*") {
            let _ = Process::parse(&line);
        }

        #[test]
        fn what_was_printed_is_read_back(pid in 1u32.., ppid: u32, pgid: u32, sid: u32, start: u64, zombie: bool, name in ".{0,16}") {
            let state = if zombie { "Z" } else { "S" };
            let line = format!("{pid} ({name}) {state} {ppid} {pgid} {sid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0");
            prop_assert_eq!(Process::parse(&line), Some(Process { pid, ppid, pgid, sid, start, zombie, name }));
        }

        #[test]
        fn descendants_are_exactly_those_whose_line_of_parents_reaches_the_root(parents in prop::collection::vec(0usize..20, 1..40)) {
            // Pid i+2 hangs below an earlier pid, so the table is a tree with root 1.
            let table: Vec<Process> = parents.iter().enumerate()
                .map(|(i, p)| process(i as u32 + 2, (p % (i + 1)) as u32 + 1)).collect();
            prop_assert_eq!(descendants(&table, 1).len(), table.len());
            let below_two = descendants(&table, 2);
            for p in &table {
                let mut at = p.pid;
                let mut reaches = false;
                while at != 1 {
                    at = table[at as usize - 2].ppid;
                    reaches |= at == 2;
                }
                prop_assert_eq!(reaches, below_two.iter().any(|b| b.pid == p.pid));
            }
        }
    }
}
