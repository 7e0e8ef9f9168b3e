//! Pure: pinned digests of model-visible texts.
