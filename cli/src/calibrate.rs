//! Ranges of tensors for a build with codes of 8 bits, integers or floats: measured on arrays, or from a calibration table.

use crate::arrays;
use crate::failure::Failure;
use crate::print::Printer;
use clap::{Args, ValueEnum};
use kiln::calibration::{Algorithm, CalibrationTable, Calibrator};
use kiln::{Backends, BuildOptions, Engine, IoMode, Model, Tensor};
use std::path::{Path, PathBuf};

/// Options for quantization by ranges.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Quantization")]
pub struct CalibrationOptions {
    /// Inputs to measure ranges on: an archive of arrays that hold batches one after the other
    #[arg(long, value_name = "DATA.npz", requires = "codes")]
    pub calibrate: Option<PathBuf>,
    /// A calibration table, in TensorRT's format: written after --calibrate, else read
    #[arg(long, value_name = "FILE", requires = "codes")]
    pub calibration_cache: Option<PathBuf>,
    /// Rule for the greatest value of a tensor that codes stand for
    #[arg(long, value_enum, default_value_t = CalibratorOption::Entropy)]
    pub calibrator: CalibratorOption,
    /// Part of all elements that a percentile or the legacy rule keeps
    #[arg(long, value_name = "PART", default_value_t = 0.9999)]
    pub quantile: f64,
}

/// Rule for the greatest value of a tensor that codes stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CalibratorOption {
    /// The least loss of information
    Entropy,
    /// The greatest value
    Minmax,
    /// The value that --quantile of all elements do not exceed
    Percentile,
    /// As percentile, at most the greatest value
    Legacy,
}

impl CalibrationOptions {
    /// Puts ranges into the settings of a build.
    pub fn apply(
        &self,
        model: &Model,
        options: &mut BuildOptions,
        backends: &Backends,
        out: &Printer,
    ) -> Result<(), Failure> {
        let table = match (&self.calibrate, &self.calibration_cache) {
            (Some(data), cache) => {
                let table = self.measured(data, model, options, backends, out)?;
                if let Some(path) = cache {
                    table.write(path).map_err(kiln::Error::from)?;
                }
                table
            }
            (None, Some(path)) => CalibrationTable::read(path).map_err(kiln::Error::from)?,
            (None, None) => return Ok(()),
        };
        options.config.ranges.extend(table.ranges());
        Ok(())
    }

    fn measured(
        &self,
        data: &Path,
        model: &Model,
        options: &BuildOptions,
        backends: &Backends,
        out: &Printer,
    ) -> Result<CalibrationTable, Failure> {
        let algorithm = match self.calibrator {
            CalibratorOption::Entropy => Algorithm::Entropy,
            CalibratorOption::Minmax => Algorithm::MinMax,
            CalibratorOption::Percentile => Algorithm::Percentile(self.quantile),
            CalibratorOption::Legacy => Algorithm::Legacy { quantile: self.quantile, cutoff: 1.0 },
        };
        let is_input =
            |name: &str| model.io_tensors().iter().any(|t| t.mode == IoMode::Input && t.name == name);
        let mut unused = Vec::new();
        let arrays = arrays::read_archive_where(data, |name, _, _| {
            if !is_input(name) {
                unused.push(name.to_owned());
            }
            Ok(is_input(name))
        })?;
        let arrays = arrays.into_iter();
        if !unused.is_empty() {
            out.note(format!("{}: no inputs are named {}; not used", data.display(), unused.join(", ")));
        }
        let given = arrays.map(|(name, a)| Ok((name.clone(), arrays::tensor(&name, a)?)));
        let given: Vec<(String, Tensor)> = given.collect::<Result<_, Failure>>()?;
        let given: Vec<(&str, Tensor)> = given.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let builder = Engine::builder().options(options.clone()).backends(backends.clone());
        let mut calibrator = Calibrator::new(model.clone(), &builder, algorithm)?;
        let batches = calibrator.add_all(&given)?;
        let table = calibrator.table()?;
        out.note(format!("calibrated {} tensors on {batches} batches", table.scales().len()));
        Ok(table)
    }
}
