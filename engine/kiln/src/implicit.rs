//! Shapes of networks with an implicit batch, from the greatest batch.

use crate::build::BuildOptions;
use crate::{Error, Model, ShapeRequest};
use kiln_runtime::{IoMode, IoTensor};

/// Shapes of the inputs for batches of 1 to the greatest one, if that is set.
///
/// # Errors
/// [`Error::Shape`] if the network has no implicit batch, the number is below 1, or shapes are set beside it.
pub(crate) fn batch_shapes(model: &Model, options: &BuildOptions) -> Result<Option<ShapeRequest>, Error> {
    let Some(most) = options.max_batch else { return Ok(None) };
    let inputs = || model.io.iter().filter(|t| t.mode == IoMode::Input);
    let refuse = |message: String| {
        let name = inputs().next().map_or(String::new(), |t| t.name.clone());
        Err(Error::Shape { name, message })
    };
    if !model.implicit_batch {
        return refuse(format!(
            "the greatest batch is set to {most}, and the network has no implicit batch: give shapes instead, or make the network \
             by Network::with_implicit_batch"
        ));
    }
    if most < 1 {
        return refuse(format!("the greatest batch is {most}, wants 1 or more"));
    }
    if !options.shapes.is_empty() || !options.profiles.is_empty() || !options.config.profiles.is_empty() {
        return refuse("both shapes and the greatest batch are set: leave one of them out".to_owned());
    }
    let mut shapes = ShapeRequest::default();
    for input in inputs() {
        let at = |entries: i64| -> Vec<i64> { with_batch(input, entries) };
        shapes.min(&input.name, &at(1)).opt(&input.name, &at(most)).max(&input.name, &at(most));
    }
    Ok(Some(shapes))
}

/// The dimensions of an input for so many entries. All of them but the batch are known.
fn with_batch(input: &IoTensor, entries: i64) -> Vec<i64> {
    input.dims.iter().map(|d| d.as_const().unwrap_or(entries)).collect()
}
