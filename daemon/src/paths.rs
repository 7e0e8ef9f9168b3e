//! Folders and files of one home, made private to the user.
