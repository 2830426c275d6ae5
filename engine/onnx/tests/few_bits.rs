//! Weights of 2, 4 and 8 bits, as models hold them: what they mean, and what is refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use common::{check, graph, int, model, node, opset, tensor, typed};
use kiln_ir::{DType, Elems, Tensor};
use kiln_onnx::proto::tensor_proto::DataType as T;
use kiln_onnx::proto::*;
use kiln_onnx::{ImportOptions, import};

fn raw(name: &str, of: T, dims: &[i64], bytes: &[u8]) -> TensorProto {
    TensorProto { raw_data: bytes.to_vec().into(), ..tensor(name, of, dims) }
}

fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto { float_data: values.to_vec(), ..tensor(name, T::Float, dims) }
}

/// The result of a model of these nodes on x, of these dimensions, or the refusal.
fn run(nodes: Vec<NodeProto>, weights: Vec<TensorProto>, dims: &[usize]) -> Result<Vec<f64>, String> {
    let named: Vec<String> = dims.iter().map(usize::to_string).collect();
    let names: Vec<&str> = named.iter().map(String::as_str).collect();
    let graph = GraphProto {
        input: vec![typed("x", T::Float, &names)],
        initializer: weights,
        ..graph(&[], nodes, &["y"])
    };
    let opset_import = vec![opset("", 21), opset("com.microsoft", 1)];
    let checked = check(&ModelProto { opset_import, ..model(graph) }).map_err(|e| e.to_string())?;
    let done = import(&checked, &ImportOptions::default()).map_err(|e| e.to_string())?;
    let x = x(dims);
    let given = Tensor::from_elems(DType::F32, dims, &Elems::F(x)).unwrap();
    let lowered = done.network.lower().map_err(|e| e.to_string())?;
    Ok(lowered.eval(&[given]).unwrap()[0].to_f64())
}

/// Small whole numbers.
fn x(dims: &[usize]) -> Vec<f64> {
    (0..dims.iter().product()).map(|i| (i as f64 * 7.0) % 5.0 - 2.0).collect()
}

/// Codes packed with the first in the lowest bits, each line on bytes of its own.
fn packed(codes: &[u8], line: usize, bits: usize) -> Vec<u8> {
    let each = 8 / bits;
    let byte = |part: &[u8]| part.iter().enumerate().fold(0, |b, (i, c)| b | c << (i * bits));
    codes.chunks(line).flat_map(|line| line.chunks(each).map(byte).collect::<Vec<_>>()).collect()
}

#[test]
fn uint4_weights_have_blocks_and_zero_points() {
    // [4, 3], blocks of two along axis 0.
    let codes: Vec<u8> = (0..12).map(|i| (i * 5 % 16) as u8).collect();
    let scale = [0.5f32, 1.0, 2.0, 0.25, 4.0, 1.0];
    let zero = [8u8, 0, 15, 3, 7, 1];
    let node_of = |zero: bool| {
        let inputs: &[&str] = if zero { &["w", "s", "z"] } else { &["w", "s"] };
        let mut d = node("DequantizeLinear", inputs, &["d"]);
        d.attribute = vec![int("axis", 0), int("block_size", 2)];
        vec![d, node("MatMul", &["x", "d"], &["y"])]
    };
    let weights = || vec![raw("w", T::Uint4, &[4, 3], &packed(&codes, 12, 4)), floats("s", &[2, 3], &scale)];
    for with in [true, false] {
        let mut all = weights();
        all.extend(with.then(|| raw("z", T::Uint4, &[2, 3], &packed(&zero, 6, 4))));
        let found = run(node_of(with), all, &[2, 4]).unwrap();
        let x = x(&[2, 4]);
        let real = |k: usize, n: usize| {
            let part = k / 2 * 3 + n;
            let zero = if with { f64::from(zero[part]) } else { 0.0 };
            (f64::from(codes[k * 3 + n]) - zero) * f64::from(scale[part])
        };
        let wanted: Vec<f64> =
            (0..6).map(|i| (0..4).map(|k| x[i / 3 * 4 + k] * real(k, i % 3)).sum()).collect();
        assert_eq!(found, wanted, "zero points: {with}");
    }
}

/// The weights of a MatMulNBits of 3 outputs and a depth of 20 in blocks of 16.
struct Blocks {
    bits: usize,
    codes: Vec<u8>,
    scales: Vec<f32>,
}

const OUTPUTS: usize = 3;
const DEPTH: usize = 20;

impl Blocks {
    fn new(bits: usize) -> Blocks {
        let codes = (0..OUTPUTS * 32).map(|i| ((i * 11 + i / 7) % (1 << bits)) as u8).collect();
        Blocks { bits, codes, scales: vec![0.5, 2.0, 1.0, 0.25, 4.0, 1.0] }
    }

    fn node(&self, inputs: &[&str]) -> NodeProto {
        let mut n = node("MatMulNBits", inputs, &["y"]);
        n.domain = "com.microsoft".into();
        let numbers = [("K", DEPTH), ("N", OUTPUTS), ("bits", self.bits), ("block_size", 16)];
        n.attribute = numbers.map(|(name, v)| int(name, v as i64)).to_vec();
        n
    }

    fn weights(&self) -> Vec<TensorProto> {
        let dims = [OUTPUTS as i64, 2, 2 * self.bits as i64];
        vec![
            raw("w", T::Uint8, &dims, &packed(&self.codes, 16, self.bits)),
            floats("s", &[OUTPUTS as i64 * 2], &self.scales),
        ]
    }

    /// Results by the definition, with a zero point a block.
    fn wanted(&self, dims: &[usize], zero: impl Fn(usize) -> f64) -> Vec<f64> {
        let x = x(dims);
        let real = |n: usize, k: usize| {
            let part = n * 2 + k / 16;
            (f64::from(self.codes[n * 32 + k]) - zero(part)) * f64::from(self.scales[part])
        };
        let rows = x.len() / DEPTH;
        let one = |i: usize| (0..DEPTH).map(|k| x[i / OUTPUTS * DEPTH + k] * real(i % OUTPUTS, k)).sum();
        (0..rows * OUTPUTS).map(one).collect()
    }
}

#[test]
fn n_bit_products_have_the_middle_as_zero_point_or_one_a_block() {
    for bits in [2, 4, 8] {
        let b = Blocks::new(bits);
        // Two and three dimensions.
        for dims in [&[2, DEPTH][..], &[2, 3, DEPTH]] {
            let found = run(vec![b.node(&["x", "w", "s"])], b.weights(), dims).unwrap();
            assert_eq!(found, b.wanted(dims, |_| f64::from(1 << (bits - 1))), "{bits} bits, {dims:?}");
        }
        let zero: Vec<u8> = (0..6).map(|i| (i * 3 % (1 << bits)) as u8).collect();
        let line = packed(&zero, 2, bits);
        let mut all = b.weights();
        all.push(raw("z", T::Uint8, &[OUTPUTS as i64, line.len() as i64 / 3], &line));
        let found = run(vec![b.node(&["x", "w", "s", "z"])], all, &[2, DEPTH]).unwrap();
        assert_eq!(found, b.wanted(&[2, DEPTH], |part| f64::from(zero[part])), "{bits} bits");
    }
}

#[test]
fn zero_points_may_be_floats() {
    for bits in [2, 4, 8] {
        let b = Blocks::new(bits);
        let zero = [0.5f32, 1.25, -3.0, 7.75, 100.0, 0.0];
        let mut all = b.weights();
        all.push(floats("z", &[6], &zero));
        let found = run(vec![b.node(&["x", "w", "s", "z"])], all, &[4, DEPTH]).unwrap();
        assert_eq!(found, b.wanted(&[4, DEPTH], |part| f64::from(zero[part])), "{bits} bits");
    }
}

#[test]
fn a_bias_is_added() {
    let b = Blocks::new(4);
    let mut all = b.weights();
    all.push(floats("bias", &[3], &[10.0, -20.0, 0.5]));
    let found = run(vec![b.node(&["x", "w", "s", "", "", "bias"])], all, &[1, DEPTH]).unwrap();
    let plain = b.wanted(&[1, DEPTH], |_| 8.0);
    assert_eq!(found, [plain[0] + 10.0, plain[1] - 20.0, plain[2] + 0.5]);
}

#[test]
fn a_turned_operand_multiplies_dequantized_weights() {
    // Gemm with transA: x is [4, 2].
    let codes: Vec<u8> = (0..12).map(|i| (i * 7 % 16) as u8).collect();
    let mut d = node("DequantizeLinear", &["w", "s"], &["d"]);
    d.attribute = vec![int("axis", 1)];
    let mut g = node("Gemm", &["x", "d"], &["y"]);
    g.attribute = vec![int("transA", 1)];
    let weights =
        vec![raw("w", T::Uint4, &[4, 3], &packed(&codes, 12, 4)), floats("s", &[3], &[1.0, 0.5, 2.0])];
    let found = run(vec![d, g], weights, &[4, 2]).unwrap();
    let x = x(&[4, 2]);
    let scale = [1.0, 0.5, 2.0];
    let one =
        |i: usize| (0..4).map(|k| x[k * 2 + i / 3] * f64::from(codes[k * 3 + i % 3]) * scale[i % 3]).sum();
    assert_eq!(found, (0..6).map(one).collect::<Vec<f64>>());
}

#[test]
fn wrong_sizes_of_n_bit_products_are_refused_with_what_is_wanted() {
    let refused = |change: &dyn Fn(&mut NodeProto, &mut Vec<TensorProto>), says: &str| {
        let b = Blocks::new(4);
        let (mut n, mut all) = (b.node(&["x", "w", "s"]), b.weights());
        change(&mut n, &mut all);
        let e = run(vec![n], all, &[2, DEPTH]).unwrap_err();
        assert!(e.contains(says), "{e}");
    };
    let set = |n: &mut NodeProto, name: &str, v: i64| {
        n.attribute.retain(|a| a.name != name);
        n.attribute.push(int(name, v));
    };
    refused(&|n, _| set(n, "bits", 3), "3 bits");
    refused(&|n, _| set(n, "block_size", 24), "power of two");
    refused(&|n, _| set(n, "N", 4), "wanted 8 rows of 8 bytes");
    refused(&|n, _| set(n, "accuracy_level", 9), "wanted 0 to 4");
    refused(&|_, all| all[0] = raw("w", T::Uint8, &[3, 2, 7], &[0; 42]), "wanted 6 rows of 8 bytes");
}

/// Evaluates y of nodes over x [2, 4], at opset 25.
fn newest(nodes: Vec<NodeProto>, weights: Vec<TensorProto>, values: &[f64]) -> Result<Vec<f64>, String> {
    let dims = values.len().to_string();
    let graph = GraphProto {
        input: vec![typed("x", T::Float, &[&dims])],
        initializer: weights,
        ..graph(&[], nodes, &["y"])
    };
    let opset_import = vec![opset("", 25)];
    let checked = check(&ModelProto { opset_import, ..model(graph) }).map_err(|e| e.to_string())?;
    let done = import(&checked, &ImportOptions::default()).map_err(|e| e.to_string())?;
    let given = Tensor::from_elems(DType::F32, &[values.len()], &Elems::F(values.to_vec())).unwrap();
    Ok(done.network.lower().map_err(|e| e.to_string())?.eval(&[given]).unwrap()[0].to_f64())
}

#[test]
fn floats_of_4_and_8_bits_are_read_exactly() {
    let to_float = |inputs: &[&str]| {
        let mut d = node("DequantizeLinear", inputs, &["d"]);
        d.attribute = vec![int("output_dtype", 1)];
        vec![d, node("Add", &["x", "d"], &["y"])]
    };
    // All codes of FLOAT4E2M1, with a scale of FLOAT8E8M0: 2^1.
    let codes: Vec<u8> = (0..16).collect();
    let weights =
        vec![raw("w", T::Float4e2m1, &[16], &packed(&codes, 16, 4)), raw("s", T::Float8e8m0, &[], &[128])];
    let found = newest(to_float(&["w", "s"]), weights, &[0.0; 16]).unwrap();
    let sizes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let wanted: Vec<f64> = sizes.iter().map(|s| 2.0 * s).chain(sizes.iter().map(|s| -2.0 * s)).collect();
    assert_eq!(found, wanted);
    // FLOAT8E5M2: 1, the least, the greatest, -1.5, infinity.
    let bytes = [0x3c, 0x01, 0x7b, 0xbe, 0x7c];
    let weights = vec![raw("w", T::Float8e5m2, &[5], &bytes), floats("s", &[], &[1.0])];
    let found = newest(to_float(&["w", "s"]), weights, &[0.0; 5]).unwrap();
    assert_eq!(found, [1.0, 2f64.powi(-16), 57344.0, -1.5, f64::INFINITY]);
    // A scale of FLOAT8E8M0 a block of two.
    let weights = vec![
        raw("w", T::Float4e2m1, &[4], &packed(&[2, 3, 5, 15], 4, 4)),
        raw("s", T::Float8e8m0, &[2], &[126, 130]),
    ];
    let mut nodes = to_float(&["w", "s"]);
    nodes[0].attribute.extend([int("axis", 0), int("block_size", 2)]);
    assert_eq!(newest(nodes, weights, &[0.0; 4]).unwrap(), [0.5, 0.75, 24.0, -48.0]);
}

#[test]
fn values_of_float4_are_the_nearest_ties_to_even() {
    let x =
        [0.0, 0.24, 0.25, 0.26, 0.75, 1.2, 1.25, 1.8, 2.4, 2.5, 3.5, 4.9, 5.0, 5.1, 7.0, -0.75, -2.6, -100.0];
    let wanted =
        [0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 6.0, 6.0, -1.0, -3.0, -6.0];
    let to = |n: &mut NodeProto, name: &str| n.attribute.push(int(name, T::Float4e2m1 as i64));
    let mut cast = node("Cast", &["x"], &["c"]);
    to(&mut cast, "to");
    let mut back = node("Cast", &["c"], &["y"]);
    back.attribute.push(int("to", 1));
    assert_eq!(newest(vec![cast, back.clone()], Vec::new(), &x).unwrap(), wanted);
    // Quantized by a scale, dequantized by another one; the type is that of the attribute, or of the zero point.
    for by_zero in [false, true] {
        let mut q = node("QuantizeLinear", if by_zero { &["x", "s", "z"] } else { &["x", "s"] }, &["q"]);
        let mut weights = vec![floats("s", &[], &[2.0]), floats("t", &[], &[4.0])];
        match by_zero {
            true => weights.push(raw("z", T::Float4e2m1, &[], &[0])),
            false => to(&mut q, "output_dtype"),
        }
        let d = node("DequantizeLinear", &["q", "t"], &["y"]);
        let doubled: Vec<f64> = x.iter().map(|x| 2.0 * x).collect();
        let wanted: Vec<f64> = wanted.iter().map(|y| 4.0 * y).collect();
        assert_eq!(newest(vec![q, d], weights, &doubled).unwrap(), wanted);
    }
    // Types that are read only.
    for of in [T::Float8e5m2, T::Float8e8m0] {
        let mut cast = node("Cast", &["x"], &["c"]);
        cast.attribute.push(int("to", of as i64));
        let e = newest(vec![cast, back.clone()], Vec::new(), &x).unwrap_err();
        assert!(e.contains(of.as_str_name()) && e.contains("reads them only"), "{e}");
    }
}
