//! The executable specification (to come).
