//! Layers that round floats to those of 4 bits.

use kiln_ir::{Attrs, DType};
use kiln_network::TensorId;

use super::cx::Cx;
use crate::error::{Refusal, unsupported};
use crate::tensor::DataType;

impl Cx<'_> {
    /// The values of a type that are nearest to those of x, ties to even, saturated; other types than FLOAT4E2M1 are refused.
    pub(crate) fn on_grid(&mut self, x: TensorId, of: DataType) -> Result<TensorId, Refusal> {
        if of != DataType::Float4E2M1 {
            return unsupported(format!("values of {of} that the network makes: it reads them only"));
        }
        let x = self.cast(x, DType::F32)?;
        let (size, sign) = (self.un("abs", x)?, self.un("sign", x)?);
        // The steps of the grid are ½ up to 2, 1 up to 4 and 2 up to 6: a part of each.
        let mut sum = None;
        for (low, high, step) in [(0.0, 2.0, 0.5), (2.0, 4.0, 1.0), (4.0, 6.0, 2.0)] {
            let bounds = Attrs::new().with("min", low).with("max", high);
            let part = self.layer("clip", bounds, &[Some(size)])?;
            let part = self.bin_num("div", part, step)?;
            let part = self.un("round", part)?;
            let part = self.bin_num("mul", part, step)?;
            let part = self.bin_num("sub", part, low)?;
            sum = Some(match sum {
                Some(sum) => self.bin("add", sum, part)?,
                None => part,
            });
        }
        let y = self.bin("mul", sum.unwrap_or(size), sign)?;
        self.cast(y, DType::F16)
    }
}
