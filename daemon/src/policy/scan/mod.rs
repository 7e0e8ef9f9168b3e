//! Pure: injection scan of model-visible texts.
