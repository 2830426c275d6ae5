//! Combinations of element types and formats that a plug-in layer takes: "f32,i64:f32; f16@hwc8:f16@hwc8".

use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::format::TensorFormat;

/// More combinations are refused.
const MOST: usize = 100;
/// More inputs or outputs of a combination are refused.
const MOST_TENSORS: usize = 256;

/// One combination.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    inputs: Vec<DType>,
    last: Last,
    /// Types of the outputs.
    pub outputs: Vec<DType>,
    formats: Formats,
}

/// Formats of inputs and outputs.
#[derive(Clone, Debug, PartialEq)]
struct Formats {
    inputs: Vec<TensorFormat>,
    outputs: Vec<TensorFormat>,
}

/// Rule for the last input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Once,
    Optional,
    Repeated,
}

impl Combination {
    /// Reads the list of a layer, separated by semicolons.
    pub fn list(text: &str) -> Result<Vec<Combination>, OpError> {
        let all: Vec<_> = text.split(';').map(Combination::parse).collect::<Result<_, _>>()?;
        if all.len() > MOST {
            return Err(OpError::Value(format!(
                "{} combinations of types, at most {MOST} are taken",
                all.len()
            )));
        }
        Ok(all)
    }

    fn parse(text: &str) -> Result<Combination, OpError> {
        let wrong = |found: &str| {
            OpError::Value(format!(
                "types \"{}\": {found}, wants types of inputs, a colon, and types of outputs: \"f32,i64:f32\"",
                text.trim()
            ))
        };
        let (inputs, outputs) = text.split_once(':').ok_or_else(|| wrong("no colon"))?;
        let words = |s: &str| -> Vec<String> {
            s.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect()
        };
        let (mut inputs, outputs) = (words(inputs), words(outputs));
        if outputs.is_empty() || inputs.len().max(outputs.len()) > MOST_TENSORS {
            return Err(wrong(&format!("{} inputs and {} outputs", inputs.len(), outputs.len())));
        }
        let last = match inputs.last_mut() {
            Some(w) if w.ends_with('*') || w.ends_with('?') => {
                let sign = w.pop();
                if sign == Some('*') { Last::Repeated } else { Last::Optional }
            }
            _ => Last::Once,
        };
        let typed = |words: &[String]| {
            words.iter().map(|w| typed(w).map_err(|why| wrong(&why))).collect::<Result<Vec<_>, _>>()
        };
        let (inputs, outputs): (Vec<_>, Vec<_>) = (typed(&inputs)?, typed(&outputs)?);
        let ((inputs, of_inputs), (outputs, of_outputs)) =
            (inputs.into_iter().unzip(), outputs.into_iter().unzip());
        Ok(Combination { inputs, last, outputs, formats: Formats { inputs: of_inputs, outputs: of_outputs } })
    }

    /// Whether inputs of these types are taken.
    pub fn takes(&self, inputs: &[DType]) -> bool {
        let n = self.inputs.len();
        let count = match self.last {
            Last::Once => inputs.len() == n,
            Last::Optional => inputs.len() == n || inputs.len() + 1 == n,
            Last::Repeated => inputs.len() >= n,
        };
        let wanted = self.inputs.iter().chain(self.inputs.last().into_iter().cycle());
        count && inputs.iter().zip(wanted).all(|(found, wanted)| found == wanted)
    }

    /// The format of an input; the last one's where it is repeated.
    pub fn input_format(&self, i: usize) -> TensorFormat {
        let all = &self.formats.inputs;
        all.get(i).or(all.last()).copied().unwrap_or_default()
    }

    /// The format of an output.
    pub fn output_format(&self, j: usize) -> TensorFormat {
        self.formats.outputs.get(j).copied().unwrap_or_default()
    }

    /// Whether all tensors are linear.
    pub fn is_linear(&self) -> bool {
        let Formats { inputs, outputs } = &self.formats;
        inputs.iter().chain(outputs).all(|f| *f == TensorFormat::Linear)
    }

    /// Whether inputs of these types are taken, and tensors have the formats of another combination.
    pub fn takes_as(&self, inputs: &[DType], of: &Combination) -> bool {
        let same =
            |n: usize, f: fn(&Combination, usize) -> TensorFormat| (0..n).all(|i| f(self, i) == f(of, i));
        self.takes(inputs)
            && same(inputs.len(), Combination::input_format)
            && same(self.outputs.len().max(of.outputs.len()), Combination::output_format)
    }

    /// Types of as many inputs as the combination takes at least, or of so many where the last one may be repeated.
    pub fn example(&self, repeated: usize) -> Vec<DType> {
        let more = if self.last == Last::Repeated { repeated.saturating_sub(1) } else { 0 };
        let last = self.inputs.last().into_iter().cycle().take(more);
        self.inputs.iter().chain(last).copied().collect()
    }
}

/// An element type of whole bytes, with a format: "f16@hwc8".
fn typed(word: &str) -> Result<(DType, TensorFormat), String> {
    let (name, format) = word.split_once('@').unwrap_or((word, TensorFormat::Linear.name()));
    let dtype = DType::ALL.into_iter().find(|t| t.name() == name.trim() && t.bits() >= 8);
    let dtype = dtype.ok_or_else(|| format!("\"{word}\""))?;
    let format: TensorFormat = format.trim().parse().map_err(|e| format!("\"{word}\": {e}"))?;
    match format.allows(dtype) {
        true => Ok((dtype, format)),
        false => {
            let wanted: Vec<&str> = format.types().iter().map(|t| t.name()).collect();
            Err(format!("\"{word}\": {format} is a format of {}", wanted.join(", ")))
        }
    }
}

impl std::fmt::Display for Combination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let join = |all: &[DType], format: &dyn Fn(usize) -> TensorFormat| {
            let word = |(i, t): (usize, &DType)| match format(i) {
                TensorFormat::Linear => t.name().to_owned(),
                other => format!("{}@{other}", t.name()),
            };
            all.iter().enumerate().map(word).collect::<Vec<_>>().join(",")
        };
        let last = match self.last {
            Last::Once => "",
            Last::Optional => "?",
            Last::Repeated => "*",
        };
        let (inputs, outputs) = (|i| self.input_format(i), |j| self.output_format(j));
        write!(f, "{}{last}:{}", join(&self.inputs, &inputs), join(&self.outputs, &outputs))
    }
}

/// The outputs of the first combination that takes inputs of these types.
pub fn outputs<'a>(all: &'a [Combination], inputs: &[DType]) -> Result<&'a [DType], OpError> {
    first(all, inputs, |_| true).map(|c| &*c.outputs)
}

/// The first combination that takes inputs of these types, and that another condition holds for.
pub fn first<'a>(
    all: &'a [Combination],
    inputs: &[DType],
    fits: impl Fn(&Combination) -> bool,
) -> Result<&'a Combination, OpError> {
    all.iter().find(|c| c.takes(inputs) && fits(c)).ok_or_else(|| {
        let names: Vec<&str> = inputs.iter().map(|t| t.name()).collect();
        let wanted: Vec<String> = all.iter().map(Combination::to_string).collect();
        OpError::Value(format!(
            "takes inputs of types {}, found {}; insert casts",
            wanted.join(" or "),
            names.join(",")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::{F16, F32, I64};

    #[test]
    fn combinations_are_matched_in_order() {
        let all = Combination::list("f32,i64:f32; f16 , i64 : f16,i64").unwrap();
        assert_eq!(outputs(&all, &[F32, I64]).unwrap(), [F32]);
        assert_eq!(outputs(&all, &[F16, I64]).unwrap(), [F16, I64]);
        let e = outputs(&all, &[I64]).unwrap_err().to_string();
        assert!(e.contains("f32,i64:f32 or f16,i64:f16,i64, found i64"), "{e}");
    }

    #[test]
    fn the_last_input_may_be_absent_or_repeated() {
        let one = |text: &str| Combination::list(text).unwrap().remove(0);
        let optional = one("f32,i64?:f32");
        assert!(optional.takes(&[F32]) && optional.takes(&[F32, I64]) && !optional.takes(&[F32, I64, I64]));
        let repeated = one("i64,f32*:f32");
        assert!(
            repeated.takes(&[I64, F32, F32, F32])
                && !repeated.takes(&[I64])
                && !repeated.takes(&[I64, F32, I64])
        );
        assert_eq!(repeated.example(3), [I64, F32, F32, F32]);
        assert_eq!(repeated.to_string(), "i64,f32*:f32");
        assert!(one(":f32").takes(&[]));
        let formats = one("f16@hwc8,f16*:f16@chw4");
        assert_eq!(formats.to_string(), "f16@hwc8,f16*:f16@chw4");
        assert_eq!(formats.input_format(0).name(), "hwc8");
        assert!(!formats.is_linear() && repeated.is_linear());
        assert!(
            formats.takes_as(&[F16, F16], &formats) && !formats.takes_as(&[F16, F16], &one("f16,f16*:f16"))
        );
    }

    #[test]
    fn wrong_texts_are_refused() {
        for (text, says) in [
            ("f32", "no colon"),
            ("f32:", "0 outputs"),
            ("f32,f99:f32", "\"f99\""),
            ("i4:i4", "\"i4\""),
            ("f32*,f32:f32", "\"f32*\""),
            ("f32@nchw:f32", "\"f32@nchw\""),
            ("i64@hwc8:i64", "a format of f16, bf16"),
        ] {
            let e = Combination::list(text).unwrap_err().to_string();
            assert!(e.contains(says), "{text}: {e}");
        }
        assert!(Combination::list(&"f32:f32;".repeat(101)).is_err());
    }
}
