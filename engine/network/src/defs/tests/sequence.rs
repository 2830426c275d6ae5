//! Attention, rotary embedding, caches, reverse sequence.

use crate::tests::{constant, f32s, ints, refused, through};
use crate::*;
use kiln_ir::DType;
use kiln_ir::tensor::Tensor;

/// Two queries and two or three keys of one component; all queries are 0, so that softmax weighs keys equally.
fn attend(
    keys: usize,
    norm: AttentionNorm,
    causal: CausalMask,
    mask: Option<Tensor>,
) -> Result<Tensor, NetworkError> {
    let q = f32s(&[1, 1, 2, 1], &[0.0, 0.0]);
    let k = f32s(&[1, 1, keys, 1], &vec![1.0; keys]);
    let v = f32s(&[1, 1, keys, 1], &[8.0, 4.0, 3.0][..keys]);
    through(&[q, k, v], |n, x| {
        let mask = mask.map(|m| constant(n, m));
        let l = n.add_attention(x[0], x[1], x[2], norm, causal)?;
        match mask {
            Some(m) => l.set_input(3, m)?.output(0),
            None => l.output(0),
        }
    })
}

#[test]
fn attention_masks() {
    use CausalMask as C;
    let soft = |keys, causal, mask| attend(keys, AttentionNorm::Softmax, causal, mask).unwrap().to_f64();
    assert_eq!(soft(2, C::None, None), [6.0, 6.0]);
    assert_eq!(soft(2, C::UpperLeft, None), [8.0, 6.0]);
    assert_eq!(soft(3, C::UpperLeft, None), [8.0, 6.0]);
    assert_eq!(soft(3, C::LowerRight, None), [6.0, 5.0]);
    let only_second = ints(DType::Bool, &[1, 1, 1, 2], &[0, 1]);
    assert_eq!(soft(2, C::None, Some(only_second.clone())), [4.0, 4.0]);
    let added = f32s(&[1, 1, 1, 2], &[3f64.ln(), 0.0]);
    let y = soft(2, C::None, Some(added));
    assert!((y[0] - 7.0).abs() < 1e-5, "{y:?}");
    let both = attend(2, AttentionNorm::Softmax, C::UpperLeft, Some(only_second));
    refused(both, "None, as there is a mask");
    let f = through(&[f32s(&[1, 2, 1], &[0.0; 2])], |n, x| {
        n.add_attention(x[0], x[0], x[0], AttentionNorm::Softmax, C::None)?.output(0)
    });
    refused(f, "[batch, heads, length, size]");
}

#[test]
fn attention_without_softmax_with_groups_and_quantized() {
    let q = f32s(&[1, 2, 1, 1], &[1.0, 2.0]);
    let kv = f32s(&[1, 1, 2, 1], &[3.0, 5.0]);
    let y = through(&[q, kv.clone()], |n, x| {
        let l = n.add_attention(x[0], x[1], x[1], AttentionNorm::None, CausalMask::None)?;
        l.set_scale(0.5)?.output(0)
    });
    // Head h: 0.5·q·(3·3 + 5·5).
    assert_eq!(y.unwrap(), f32s(&[1, 2, 1, 1], &[17.0, 34.0]));
    let causal = through(&[f32s(&[1, 1, 2, 1], &[1.0, 1.0]), kv.clone()], |n, x| {
        n.add_attention(x[0], x[1], x[1], AttentionNorm::None, CausalMask::UpperLeft)?.output(0)
    });
    assert_eq!(causal.unwrap(), f32s(&[1, 1, 2, 1], &[9.0, 34.0]));
    // Weights of a half become 0.75 at a step of three quarters.
    let y = through(&[f32s(&[1, 1, 1, 1], &[0.0]), kv], |n, x| {
        let s = constant(n, f32s(&[], &[0.75]));
        let l = n.add_attention(x[0], x[1], x[1], AttentionNorm::Softmax, CausalMask::None)?;
        l.set_normalization_quantize(DType::I8, s)?.output(0)
    });
    assert_eq!(y.unwrap(), f32s(&[1, 1, 1, 1], &[6.0]));
}

#[test]
fn rotary_embeddings_turn_pairs() {
    let x = f32s(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    // A quarter turn.
    let (cos, sin) = (f32s(&[1, 1, 2], &[0.0, 0.0]), f32s(&[1, 1, 2], &[1.0, 1.0]));
    let go = |interleaved, dim, cos: Tensor, sin: Tensor| {
        through(&[x.clone(), cos, sin], |n, x| {
            n.add_rotary_embedding(x[0], x[1], x[2], interleaved, dim)?.output(0)
        })
    };
    let y = go(false, 0, cos.clone(), sin.clone()).unwrap();
    assert_eq!(y, f32s(&[1, 1, 1, 4], &[-3.0, -4.0, 1.0, 2.0]));
    let y = go(true, 0, cos.clone(), sin.clone()).unwrap();
    assert_eq!(y, f32s(&[1, 1, 1, 4], &[-2.0, 1.0, -4.0, 3.0]));
    refused(go(false, 3, cos, sin), "even");
}

#[test]
fn caches_are_updated_in_place() {
    let cache = f32s(&[1, 1, 3, 1], &[1.0, 2.0, 3.0]);
    let go = |at: i64| {
        let ins = [cache.clone(), f32s(&[1, 1, 2, 1], &[8.0, 9.0]), ints(DType::I32, &[1], &[at])];
        through(&ins, |n, x| n.add_kv_cache_update(x[0], x[1], x[2])?.output(0)).unwrap().to_f64()
    };
    assert_eq!(go(1), [1.0, 8.0, 9.0]);
    assert_eq!(go(2), [1.0, 2.0, 8.0]);
    let n = ints(DType::I32, &[1, 1, 1, 1], &[0]);
    let y = through(&[n.clone(), n, ints(DType::I32, &[1], &[0])], |n, x| {
        n.add_kv_cache_update(x[0], x[1], x[2])?.output(0)
    });
    refused(y, "wants a float type");
}

#[test]
fn sequences_are_reversed_along_any_axes() {
    let x = || f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let go = |batch, sequence, lens: Tensor| {
        through(&[x(), lens], |n, x| n.add_reverse_sequence_along(x[0], x[1], batch, sequence)?.output(0))
    };
    let y = go(0, 1, ints(DType::I32, &[2], &[3, 2])).unwrap();
    assert_eq!(y, f32s(&[2, 3], &[3.0, 2.0, 1.0, 5.0, 4.0, 6.0]));
    let y = go(1, 0, ints(DType::I32, &[3], &[1, 2, 2])).unwrap();
    assert_eq!(y, f32s(&[2, 3], &[1.0, 5.0, 6.0, 4.0, 2.0, 3.0]));
    refused(go(1, 1, ints(DType::I32, &[3], &[1; 3])), "another than the batch axis");
    refused(go(2, 0, ints(DType::I32, &[3], &[1; 3])), "\"batch_axis\"");
    refused(go(0, 1, ints(DType::I32, &[3], &[1; 3])), "one length for each entry");
}
