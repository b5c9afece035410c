//! Audits an event log.
