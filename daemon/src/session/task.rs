//! One client's task: reads lines, runs calls, writes answers.
