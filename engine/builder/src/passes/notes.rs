//! Notes of passes for the user.

use std::cell::RefCell;

/// Notes for the user: requests that could not be met, and reports on what was asked for. One for a build, shared by all its passes.
#[derive(Clone, Debug, Default)]
pub struct Notes(RefCell<Vec<String>>);

impl Notes {
    /// Adds a note, once; it is logged as a warning, too.
    pub fn add(&self, text: String) {
        let mut all = self.0.borrow_mut();
        if !all.contains(&text) {
            tracing::warn!("{text}");
            all.push(text);
        }
    }

    /// Adds a note that nothing is to be done about, once.
    pub fn tell(&self, text: String) {
        let mut all = self.0.borrow_mut();
        if !all.contains(&text) {
            tracing::info!("{text}");
            all.push(text);
        }
    }

    /// All notes in the order in which they came.
    pub fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}
