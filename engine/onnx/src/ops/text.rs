//! Counting of n-grams.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs, unsupported};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[Operator::new("TfIdfVectorizer", &[9], tfidf)];

fn tfidf(cx: &mut Cx<'_>) -> Outs {
    if cx.attribute("pool_strings").is_some() {
        return unsupported("n-grams of strings");
    }
    let attrs = Attrs::new()
        .with("mode", cx.require_attr::<&str>("mode")?.to_lowercase())
        .with("min_gram", cx.require_attr::<i64>("min_gram_length")?)
        .with("max_gram", cx.require_attr::<i64>("max_gram_length")?)
        .with("max_skip", cx.require_attr::<i64>("max_skip_count")?)
        .with("counts", cx.require_attr::<&[i64]>("ngram_counts")?)
        .with("ngram_indexes", cx.require_attr::<&[i64]>("ngram_indexes")?)
        .with("pool", cx.require_attr::<&[i64]>("pool_int64s")?)
        .with("weights", cx.floats("weights")?);
    Ok(vec![cx.layer("tfidf", attrs, &[cx.opt(0)])?])
}
