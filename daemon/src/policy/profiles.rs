//! Pure: which servers and tools a profile shows.
