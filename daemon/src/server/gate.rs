//! Refusals before the first spawn: shell gate, recursion, spaces in command.
