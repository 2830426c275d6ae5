//! Layers of a plan at given shapes, without a device.

use crate::io::{IoMode, IoTensor};
use crate::{LayerTable, Plan, Profile, ProfileError, Range, elements};
use kiln_backend::Shapes;

impl Plan {
    /// The layers at the usual shapes and values of a profile, in the detail that the plan stores.
    ///
    /// # Errors
    /// [`ProfileError`] if the shapes do not fit the inputs, or no profile of the plan holds them.
    pub fn layers_at(&self, at: &Profile) -> Result<LayerTable, ProfileError> {
        let h = &self.header;
        at.check(&h.io)?;
        let fits = h.profiles.iter().enumerate().filter(|(_, p)| holds(p, at));
        let profile = fits.min_by_key(|(_, p)| p.size()).map(|(i, _)| i);
        if !h.profiles.is_empty() && profile.is_none() {
            let input = |t: &&IoTensor| t.mode == IoMode::Input && at.shapes.contains_key(&t.name);
            let given = h.io.iter().filter(input).map(|t| format!("{}:{:?}", t.name, at.shapes[&t.name].opt));
            return Err(ProfileError(format!(
                "none of the {} profiles of the engine holds {}",
                h.profiles.len(),
                given.collect::<Vec<_>>().join(", ")
            )));
        }
        let [_, usual, _] = at.points(&h.io)?;
        let facts = self.program.graph.infer_from(&usual).map_err(|e| ProfileError(e.to_string()))?;
        let input = |t: &&IoTensor| t.mode == IoMode::Input;
        let dims = |t: &IoTensor| match at.shapes.get(&t.name) {
            Some(r) => r.opt.clone(),
            None => t.dims.iter().filter_map(|d| d.as_const()).collect(),
        };
        let given = h.io.iter().filter(input).map(|t| dims(t).into_iter().map(i64::unsigned_abs));
        let case = self.program.case_of(profile.unwrap_or(0), elements(given));
        Ok(LayerTable::with_shapes(&self.program, h.verbosity, Some(&Shapes::new(facts).in_case(case))))
    }
}

/// Whether a profile holds the usual shapes and values of another.
fn holds(profile: &Profile, at: &Profile) -> bool {
    let fits = |own: Option<&Range>, r: &Range| own.is_none_or(|own| own.contains(&r.opt));
    at.shapes.iter().all(|(n, r)| fits(profile.shapes.get(n), r))
        && at.values.iter().all(|(n, r)| fits(profile.values.get(n), r))
}
