//! A single call of a participant, outside of any transaction.
//!
//! It is a transaction of one step: it may have to wait, and never fails. Losing costs it nothing,
//! so it begins again until it wins; it keeps its age, and so gets older than everybody else.

use std::time::Duration;

use super::Realm;
use super::contend::AbortCause;
use super::facet::Facet;
use super::sync::{self, Relaxed};
use super::tx_handle::{Begin, BeginError, SINGLE};
use super::word::Access;
use crate::contention::backoff;

/// How long to wait for whoever won before trying again.
const PATIENCE: Duration = Duration::from_millis(100);

impl Realm {
    /// Makes a call while it holds what the call touches. No transaction sees half of it, and it
    /// sees half of none.
    ///
    /// # Errors
    /// None but [`BeginError::Full`], and that only if it is not to wait, which it is.
    pub fn single<T>(
        &self,
        touches: &[(Facet<'_>, Access)],
        call: impl FnOnce() -> T,
    ) -> Result<T, BeginError> {
        let mut how = Begin::default();
        loop {
            let mut handle = self.begin(&how)?;
            handle.own().flags.store(SINGLE, Relaxed);
            let ready = touches
                .iter()
                .try_for_each(|(facet, access)| handle.acquire(facet, *access).map(drop))
                .and_then(|()| handle.publish());
            match ready {
                Ok(()) => {
                    let done = call();
                    // Publishing can't be doomed.
                    let _ = handle.finish();
                    return Ok(done);
                }
                Err(stop) => {
                    let seed = handle.seed();
                    let again = handle.abort();
                    how.again = Some(again);
                    if let AbortCause::Lost(opponent) = &stop {
                        self.wait_for(opponent, PATIENCE);
                    }
                    sync::sleep(backoff::before_restart(again.restarts, seed));
                }
            }
        }
    }
}
