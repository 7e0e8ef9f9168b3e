//! Memory that was freed, given back to the system; stands here because the call has no safe form.
//!
//! May not touch: anything else.

/// Has the allocator return the pages that hold nothing any more. glibc keeps them otherwise, whole
/// megabytes in the arena of each thread. Takes milliseconds: for the blocking pool. Does nothing elsewhere.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` takes the allocator's own locks and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
