//! Types and formats of inputs and outputs in memory, as TensorRT's tool takes them.

use crate::element_type::element_type;
use crate::failure::Failure;
use clap::Args;
use kiln::{BuildConfig, DType, Formats, IoMode, IoSpec, IoTensor, TensorFormat};

/// Type and formats of one input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoFormat {
    dtype: DType,
    formats: Formats,
}

/// Options for inputs and outputs as the caller has them in memory.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Inputs and outputs in memory")]
pub struct IoOptions {
    /// Types and allowed formats of all inputs, in their order: fp16:chw,int8:chw4+chw32,… A single one counts for all
    #[arg(long, value_name = "TYPE:FORMATS", value_delimiter = ',', value_parser = io_format)]
    pub input_io_formats: Vec<IoFormat>,
    /// Types and allowed formats of all outputs, likewise
    #[arg(long, value_name = "TYPE:FORMATS", value_delimiter = ',', value_parser = io_format)]
    pub output_io_formats: Vec<IoFormat>,
    /// Refuse inputs and outputs that only a kernel of its own can bring into their type and format
    #[arg(long)]
    pub direct_io: bool,
}

/// Reads `fp16:chw+hwc8`.
fn io_format(text: &str) -> Result<IoFormat, String> {
    let (dtype, list) =
        text.split_once(':').ok_or("wanted TYPE:FORMAT, such as fp16:chw or int8:chw4+chw32")?;
    let formats = list.split('+').map(|f| f.parse::<TensorFormat>().map_err(|e| e.to_string()));
    Ok(IoFormat { dtype: element_type(dtype)?, formats: formats.collect::<Result<_, _>>()? })
}

impl IoOptions {
    /// Puts the options into the settings of a build of a model with these inputs and outputs.
    pub fn apply(&self, io: &[IoTensor], config: &mut BuildConfig) -> Result<(), Failure> {
        config.direct_io = self.direct_io;
        for (given, mode, option) in [
            (&self.input_io_formats, IoMode::Input, "--input-io-formats"),
            (&self.output_io_formats, IoMode::Output, "--output-io-formats"),
        ] {
            let tensors: Vec<&IoTensor> = io.iter().filter(|t| t.mode == mode).collect();
            if given.len() > 1 && given.len() != tensors.len() {
                let names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
                return Err(Failure::Input(format!(
                    "{option} has {} entries for {} tensors ({}): give one for each, or a single one for all",
                    given.len(),
                    names.len(),
                    names.join(", ")
                )));
            }
            for (t, f) in tensors.iter().zip(given.iter().cycle()) {
                let spec = IoSpec { dtype: Some(f.dtype), formats: Some(f.formats) };
                config.io.insert(t.name.clone(), spec);
            }
        }
        Ok(())
    }

    /// The first option given, which an engine cannot obey.
    pub fn building(&self) -> Option<&'static str> {
        let set = [
            (!self.input_io_formats.is_empty(), "--input-io-formats"),
            (!self.output_io_formats.is_empty(), "--output-io-formats"),
            (self.direct_io, "--direct-io"),
        ];
        set.into_iter().find(|s| s.0).map(|s| s.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_formats_are_read_by_the_names_of_both_tools() {
        let f = io_format("fp16:chw+hwc8").unwrap();
        let wanted: Formats = [TensorFormat::Linear, TensorFormat::Hwc8].into_iter().collect();
        assert_eq!((f.dtype, f.formats), (DType::F16, wanted));
        assert_eq!(io_format("i8:chw32").unwrap().formats, TensorFormat::Chw32.into());
        assert!(io_format("fp16").unwrap_err().contains("TYPE:FORMAT"));
        assert!(io_format("fp16:chw8").unwrap_err().contains("chw16"));
        assert!(io_format("fp16:dla_linear").unwrap_err().contains("DLA"));
        assert!(io_format("fp17:chw").unwrap_err().contains("element type"));
    }
}
