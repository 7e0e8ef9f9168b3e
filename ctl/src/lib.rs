//! hermesctl as a library, so that tests build the same code.
