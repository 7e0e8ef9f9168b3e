//! A child below its guard: spawn, pipes, stop ladder.
