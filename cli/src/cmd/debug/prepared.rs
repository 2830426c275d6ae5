//! Inputs of the commands that build a model in several ways.

use crate::failure::Failure;
use crate::given::{InputOptions, ask_for_given};
use crate::options::ShapeOptions;
use crate::print::Printer;
use kiln::{Model, ShapeRequest, Tensor};
use std::path::Path;

/// A model with the shapes and inputs that all builds and runs of it share.
pub struct Prepared {
    /// The model.
    pub model: Model,
    /// Its shapes: those that were asked for, and those of given inputs.
    pub shapes: ShapeRequest,
    /// All inputs by name: given ones, and random elements for the others.
    pub inputs: Vec<(String, Tensor)>,
}

impl Prepared {
    /// Opens the model and reads its inputs.
    pub fn of(
        model: &Path,
        inputs: &InputOptions,
        shapes: &ShapeOptions,
        out: &Printer,
    ) -> Result<Prepared, Failure> {
        let model = Model::open(model)?;
        let io = model.io_tensors().to_vec();
        let mut inputs = inputs.clone();
        inputs.random_inputs.get_or_insert(0);
        let given = inputs.read(&io, out)?;
        let mut shapes = shapes.request();
        ask_for_given(&mut shapes, &given, &io);
        let profile = shapes.profile(&io, &|_, _| 1)?.profile;
        let inputs = inputs.complete(given, &io, &profile)?;
        Ok(Prepared { model, shapes, inputs })
    }
}
