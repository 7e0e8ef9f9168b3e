//! Answers servers' sampling requests with an OpenAI-compatible provider.
