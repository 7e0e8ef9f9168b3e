//! Pure: exposed names, unique and independent of start order.
