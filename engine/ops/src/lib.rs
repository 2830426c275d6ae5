//! The operators, one file per family. Each family registers its operators in [`kiln_ir::op::FAMILIES`], so that a new
//! family needs only its `mod` line here.

pub mod activation;
pub mod argreduce;
pub mod attention;
pub mod batch_norm;
pub mod binary;
pub mod bitcast;
pub mod cast;
pub mod clip;
pub mod col2im;
pub mod concat;
pub mod control;
pub mod conv;
pub mod conv_transpose;
pub mod deform_conv;
pub mod det;
pub mod dft;
pub mod einsum;
pub mod expand;
pub mod gather;
pub mod gather_each;
pub mod generate;
pub mod grid_sample;
pub mod kv_cache;
pub mod layer_norm;
pub mod layout;
pub mod linear_attention;
pub mod lrn;
pub mod matmul;
pub mod max_unpool;
pub mod mel;
pub mod moves;
pub mod nll_loss;
pub mod nms;
pub mod order;
pub mod pad;
pub mod plugin;
pub mod pointwise;
pub mod pool;
pub mod quantize;
pub mod ragged_softmax;
pub mod random;
pub mod rearrange;
pub mod reduce;
pub mod resize;
pub mod rnn;
pub mod roi_align;
pub mod rotary;
pub mod sampling;
pub mod scatter;
pub mod select;
pub mod select_by;
pub mod shape;
pub mod slice;
pub mod softmax;
pub mod squeeze;
pub mod stft;
pub mod swiglu;
pub mod testing;
pub mod tfidf;
pub mod transpose;
pub mod unary;
pub mod util;
pub mod window;
pub mod window_fn;

pub use kiln_ir::op::{all, find};

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
                if let Ok(facts) = p.op.infer(&facts, "t") {
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
    }
}
