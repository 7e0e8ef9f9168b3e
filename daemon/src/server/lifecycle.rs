//! Pure: phase, event, now -> phase, actions.
