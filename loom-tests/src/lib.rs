//! Loom and shuttle models.
