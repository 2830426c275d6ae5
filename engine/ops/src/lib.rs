//! The operators, one file per family. Each family registers its operators in [`kiln_ir::op::FAMILIES`], so that a new
//! family needs only its `mod` line here.

pub mod attention;
pub mod cast;
pub mod control;
pub mod conv;
pub mod gather;
pub mod generate;
pub mod indices;
pub mod layout;
pub mod loss;
pub mod matmul;
/// Normalization.
pub mod norm {
    pub mod batch_norm;
    pub mod layer_norm;
    pub mod lrn;
}
pub mod plugin;
pub mod pointwise;
pub mod pool;
pub mod quantize;
pub mod recurrent;
pub mod reduce;
pub mod reformat;
pub mod sample;
pub mod scatter;
pub mod select;
pub mod shape;
/// Fourier transforms.
pub mod signal {
    pub mod dft;
    pub mod stft;
}
pub mod slice;
pub mod softmax;
pub mod sort;
pub mod testing;
pub mod text;
pub mod transpose;
pub mod util;

pub use kiln_ir::op::{all, find};

/// The names of the operator families. Files (or folders) of operators have these names in every crate. So
/// one name finds the definition, the import and the kernels of an operator.
pub const FAMILY_NAMES: &[&str] = &[
    "attention",
    "cast",
    "control",
    "conv",
    "gather",
    "generate",
    "loss",
    "matmul",
    "norm",
    "plugin",
    "pointwise",
    "pool",
    "quantize",
    "recurrent",
    "reduce",
    "sample",
    "scatter",
    "select",
    "sequence",
    "shape",
    "signal",
    "slice",
    "softmax",
    "sort",
    "text",
    "transpose",
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_documented() {
        let mut seen = HashSet::new();
        for d in super::all() {
            assert!(seen.insert(d.name), "{} is defined twice", d.name);
            assert!(!d.doc.is_empty(), "{} has no documentation", d.name);
        }
    }

    /// Every problem must run on the oracle and agree with inference in type and shape.
    #[test]
    fn problems_run_on_the_oracle() {
        for d in super::all() {
            let mut rng = kiln_ir::problem::Rng::new(7);
            for p in (d.problems)(&mut rng) {
                let out = p.op.eval(&p.inputs).unwrap_or_else(|e| panic!("{} ({}): {e}", d.name, p.label));
                assert_eq!(out.len(), d.outputs.len().max(out.len().min(d.outputs.len())), "{}", d.name);
                let facts: Vec<_> =
                    p.inputs.iter().map(|t| t.as_ref().map(|t| kiln_ir::Fact::of(t.ty()))).collect();
                let facts = match p.op.infer(&facts, "t") {
                    Ok(facts) => facts,
                    // Some operators cannot even say the rank of their results without the contents of an input.
                    Err(kiln_ir::OpError::NeedsValue { input, .. }) => {
                        assert!(
                            p.op.port(input).is_some_and(|p| p.host),
                            "{} ({}): input {input}",
                            d.name,
                            p.label
                        );
                        let known = p.inputs.iter().map(|t| t.clone().map(kiln_ir::Fact::constant));
                        let facts = p.op.infer(&known.collect::<Vec<_>>(), "t");
                        facts.unwrap_or_else(|e| panic!("{} ({}): {e}", d.name, p.label))
                    }
                    Err(e) => panic!("{} ({}): {e}", d.name, p.label),
                };
                assert_eq!(facts.len(), out.len(), "{} ({})", d.name, p.label);
                for (f, t) in facts.iter().zip(&out) {
                    assert_eq!(f.ty.dtype, t.dtype(), "{} ({})", d.name, p.label);
                    assert_eq!(f.ty.rank(), t.shape().len(), "{} ({})", d.name, p.label);
                    for (a, &b) in f.ty.dims.iter().zip(t.shape()) {
                        assert!(a.as_const().is_none_or(|a| a == b as i64), "{} ({})", d.name, p.label);
                    }
                }
            }
        }
    }

    /// A typing error in a problem must not delete it.
    #[test]
    #[should_panic(expected = "a test problem of softmax with")]
    fn a_problem_with_a_refused_attribute_is_a_panic() {
        kiln_ir::problem::Problem::of("typed wrong", "softmax", kiln_ir::Attrs::new().with("axes", 1i64), []);
    }
}
