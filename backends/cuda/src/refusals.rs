//! Why kernels are refused for a region.

use std::fmt;

/// Names of kernels by the reason why they are refused, in the order in which reasons were given.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Vec<(String, Vec<String>)>);

impl Refusals {
    /// Another kernel that is refused.
    pub fn add(&mut self, kernel: &str, reason: String) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, kernels)) => kernels.push(kernel.to_owned()),
            None => self.0.push((reason, vec![kernel.to_owned()])),
        }
    }

    /// Was none refused?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (reason, kernels)) in self.0.iter().enumerate() {
            let before = if i > 0 { "; " } else { "" };
            write!(f, "{before}{}: {reason}", kernels.join(", "))?;
        }
        Ok(())
    }
}
