//! Offers of kernels for a region (tactics or a refusal), decided without the kernels' text.
//!
//! Regions are formed and tactics are priced by these answers, thousands of times a build. A kernel's text is written
//! when it is compiled; [`texts`] counts how often.

use crate::checks::checked;
use crate::limits::fitting;
use crate::site::{Site, unsupported};
use crate::{Body, Kernel};
use crate::{rows, scalar};
use kiln_backend::{BackendError, Tactic};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static TEXTS: AtomicUsize = AtomicUsize::new(0);

/// Number of kernel texts that this process has written.
pub fn texts() -> usize {
    TEXTS.load(Relaxed)
}

impl Kernel {
    /// The ways to run a region by this kernel, or a refusal. Whatever is offered here has a text.
    pub fn offers(&self, site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
        let found = fitting(site, (self.tactics)(site)?)?;
        if let Some(e) = &site.fused {
            scalar::check(e)?;
        }
        rows::check(site)?;
        if checked(site)?.iter().any(|&i| site.moves.get(i).is_some_and(|m| !m.is_empty())) {
            return unsupported("indices that are read through moves");
        }
        Ok(found)
    }

    /// The text, with the checks of the anchor's index inputs.
    pub fn body(&self, site: &Site<'_>, tactic: &Tactic) -> Result<Body, BackendError> {
        TEXTS.fetch_add(1, Relaxed);
        self.outline(site, tactic)
    }
}
