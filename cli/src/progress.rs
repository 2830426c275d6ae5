//! Progress of long work, on stderr, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that appears with the first report and goes when dropped.
#[derive(Debug, Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Shows the progress of the work.
    pub fn set(&mut self, phase: &str, done: usize, total: usize) {
        let bar = self.bar.get_or_insert_with(|| {
            // The default target is stderr, hidden where it is not a terminal.
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        bar.set_message(phase.to_owned());
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
