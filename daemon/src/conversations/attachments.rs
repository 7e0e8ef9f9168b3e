//! Attachments of one message.
