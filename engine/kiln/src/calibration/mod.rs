//! Calibration: ranges of a network's tensors, measured on typical inputs.
//!
//! ```
//! # fn main() -> Result<(), kiln::Error> {
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
//! use kiln::calibration::{Algorithm, Calibrator};
//!
//! let builder = kiln::Engine::builder().backend(kiln::REFERENCE).shape("input", &[1, 1, 28, 28]);
//! let mut calibrator = Calibrator::new(model, &builder, Algorithm::Entropy)?;
//! let image = kiln::Tensor::from_slice(&[1, 1, 28, 28], &[0.5f32; 784])?;
//! calibrator.add(&[("input", image)])?;
//! let table = calibrator.table()?;
//!
//! let config = kiln::BuildConfig {
//!     reduced: vec![kiln::DType::I8],
//!     ranges: table.ranges(),
//!     ..kiln::BuildConfig::default()
//! };
//! let built = builder.config(config).build_plan(model)?;
//! # Ok(())
//! # }
//! ```

mod histogram;

pub use crate::calibration_table::{CalibrationError, CalibrationTable};
pub use histogram::Algorithm;

use crate::{Engine, EngineBuilder, Error, ExecutionContext, IoMode, Model};
use histogram::Histogram;
use kiln_ir::{DType, Dim, Source, Tensor};
use std::collections::BTreeMap;

/// Measures ranges of all tensors of f32 of a network, batch by batch.
#[derive(Debug)]
pub struct Calibrator {
    algorithm: Algorithm,
    engine: Engine,
    context: ExecutionContext,
    seen: BTreeMap<String, Histogram>,
}

impl Calibrator {
    /// Builds the network in f32, layer by layer, for the backend and shapes of this builder.
    ///
    /// # Errors
    /// Errors of the build.
    pub fn new<M>(model: M, builder: &EngineBuilder, algorithm: Algorithm) -> Result<Calibrator, Error>
    where
        M: TryInto<Model>,
        Error: From<M::Error>,
    {
        let mut builder = builder.clone();
        let config = &mut builder.options.config;
        // Every tensor of the network is a value between two kernels, as it is in f32.
        (config.fuse, config.search, config.estimates) = (false, false, true);
        config.reduced.clear();
        config.layer_types.clear();
        // Ranges are of the network's own tensors, in linear memory.
        (config.io_type, config.direct_io) = (None, false);
        config.io.clear();
        let engine = builder.build(model)?;
        let mut context = engine.create_context()?;
        context.set_observable(true);
        let program = engine.program();
        let g = &program.graph;
        let computed = |v: &kiln_ir::ValueId| {
            let def = g.value(*v);
            def.fact.ty.dtype == DType::F32 && matches!(def.source, Source::Input | Source::Node(..))
        };
        let names = g.value_ids().filter(computed).map(|v| g.value(v).name.clone());
        let seen = names.map(|name| (name, Histogram::new())).collect();
        Ok(Calibrator { algorithm, engine, context, seen })
    }

    /// Runs one batch and adds the elements of all tensors.
    ///
    /// # Errors
    /// Errors of the run. Tensors inside of kernels are left out.
    pub fn add(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), Error> {
        self.context.run(inputs)?;
        for (name, histogram) in &mut self.seen {
            if let Ok(tensor) = self.context.observe(name) {
                histogram.add(&tensor);
            }
        }
        Ok(())
    }

    /// Runs all batches of tensors that hold any number of them along their first dimension. A batch has the size that kernels are chosen
    /// for; elements behind the last whole batch are left out. Returns the number of batches.
    ///
    /// # Errors
    /// As [`Calibrator::add`]; [`CalibrationError::Batches`] if a tensor holds no whole batch, or fewer of them than others.
    pub fn add_all(&mut self, inputs: &[(&str, Tensor)]) -> Result<usize, Error> {
        let mut counts = Vec::with_capacity(inputs.len());
        for (name, tensor) in inputs {
            let size = self.batch_size(name).unwrap_or(1);
            let found = tensor.shape().first().copied().unwrap_or(0);
            let count = found / size;
            let batches = CalibrationError::Batches { input: (*name).to_owned(), size, found };
            match counts.first() {
                _ if count == 0 => return Err(batches.into()),
                Some(&(first, _)) if first != count => return Err(batches.into()),
                _ => counts.push((count, size)),
            }
        }
        let count = counts.first().map_or(0, |c| c.0);
        for at in 0..count {
            let parts = inputs.iter().zip(&counts);
            let parts = parts.filter_map(|((name, t), (_, size))| Some((*name, rows(t, at * size, *size)?)));
            self.add(&parts.collect::<Vec<_>>())?;
        }
        Ok(count)
    }

    /// The first dimension of an input at the shapes that kernels are chosen for.
    fn batch_size(&self, input: &str) -> Option<usize> {
        let io = self.engine.io_tensors();
        let inputs: Vec<_> = io.iter().filter(|t| t.mode == IoMode::Input).collect();
        let at = inputs.iter().position(|t| t.name == input)?;
        let own = inputs[at].dims.first().and_then(Dim::as_const);
        let profile = self.engine.profiles().first();
        let usual = profile
            .and_then(|p| p.points(io).ok())
            .and_then(|[_, usual, _]| usual.get(at).and_then(|f| f.ty.dims.first().and_then(Dim::as_const)));
        usual.or(own).and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0)
    }

    /// The scales of all tensors that were seen.
    ///
    /// # Errors
    /// [`CalibrationError::Empty`] if no batch was added.
    pub fn table(&self) -> Result<CalibrationTable, Error> {
        let mut table = CalibrationTable::new(self.algorithm.name());
        for (name, histogram) in &self.seen {
            if let Some(threshold) = histogram.threshold(self.algorithm) {
                table.set(name, threshold);
            }
        }
        if table.ranges().is_empty() {
            return Err(CalibrationError::Empty.into());
        }
        Ok(table)
    }
}

/// Some rows of a tensor.
fn rows(t: &Tensor, from: usize, count: usize) -> Option<Tensor> {
    let (&all, rest) = t.shape().split_first()?;
    let row = t.bytes().len().checked_div(all)?;
    let shape: Vec<usize> = [count].into_iter().chain(rest.iter().copied()).collect();
    Tensor::from_bytes(t.dtype(), &shape, t.shared_bytes().slice(from * row, count * row)?)
}
