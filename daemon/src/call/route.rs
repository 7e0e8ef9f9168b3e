//! Exposed name to server and tool.
