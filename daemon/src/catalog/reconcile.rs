//! The task that turns listings into the published catalogue.
