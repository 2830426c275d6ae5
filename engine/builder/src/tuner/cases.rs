//! Choosing kernels for other shapes than the usual ones of the first profile.

use super::{Choice, Tuner};
use crate::BuildError;
use crate::search::GAIN;
use kiln_backend::{Region, Tactic};
use kiln_ir::Fact;

impl Tuner<'_> {
    /// The tactic of a region at other shapes, with the time of its own there; `None` where its own is as fast. What a user chose for these
    /// shapes is taken as it is.
    pub fn choose_at(
        &mut self,
        layer: &str,
        region: &Region,
        facts: &[Fact],
        own: &Tactic,
    ) -> Result<Option<(Choice, Option<f64>)>, BuildError> {
        let choice = self.choose(layer, region, facts)?;
        if choice.tactic.id() == own.id() {
            return Ok(None);
        }
        let before = choice.key.as_ref().map(|key| self.median(key, own)).filter(|ns| ns.is_finite());
        let gains = before.zip(choice.ns).is_none_or(|(before, ns)| ns < before * (1.0 - GAIN));
        let chosen = self.site(layer, region, facts)?.chosen;
        Ok((gains || chosen).then_some((choice, before)))
    }
}
