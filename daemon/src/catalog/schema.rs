//! Pure: repairs of input schemas that model APIs need.
