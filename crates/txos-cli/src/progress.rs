//! Progress bars on standard error, for work that takes noticeably long.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use txos_engine::commit::{Phase, Progress};

/// Work that is done sooner shows no bar at all.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(100);

/// One bar that shows the current phase. It is gone when this is dropped.
#[derive(Debug)]
pub struct Bars {
    bar: ProgressBar,
    shower: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Bars {
    /// A bar that appears when the work has lasted a while.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let (done, waiting) = channel::<()>();
        let shown = bar.clone();
        let show = move || {
            if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(TICK);
            }
        };
        // Without a thread there is no bar; the work goes on.
        let shower = std::thread::Builder::new().spawn(show).ok().map(|thread| (done, thread));
        Bars { bar, shower }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.shower.take() {
            drop(done);
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

impl Progress for Bars {
    fn phase(&self, phase: Phase, total: Option<u64>) {
        let template = match total {
            Some(_) => "{spinner} {msg} {wide_bar} {human_pos}/{human_len}",
            None => "{spinner} {msg} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_position(0);
        if let Some(total) = total {
            self.bar.set_length(total);
        }
        self.bar.set_message(words(phase));
    }

    fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }
}

fn words(phase: Phase) -> &'static str {
    match phase {
        Phase::Scanning => "Reading what changed",
        Phase::Validating => "Validating",
        Phase::Flushing => "Flushing",
        Phase::Publishing => "Publishing",
        Phase::Undoing => "Undoing",
        _ => "Working",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_shows_nothing_and_waits_for_nothing() {
        let start = std::time::Instant::now();
        let bars = Bars::new();
        bars.phase(Phase::Publishing, Some(10));
        bars.advance(10);
        assert!(bars.bar.is_hidden());
        drop(bars);
        assert!(start.elapsed() < PATIENCE);
    }
}
