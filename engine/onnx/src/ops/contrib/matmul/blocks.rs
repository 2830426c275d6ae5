//! Products with weights of few bits in blocks.

use kiln_ir::{Attrs, DType, Elems};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;
use crate::ops::contrib::{absent, unset};

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[Operator::new("com.microsoft.MatMulNBits", &[1], matmul_n_bits)];

/// The sizes of a packed matrix.
struct Packed {
    rows: i64,
    depth: i64,
    block: i64,
    blocks: i64,
    bits: u32,
}

impl Packed {
    fn read(cx: &Cx<'_>) -> Result<Self, Refusal> {
        let number = |name: &str| {
            let found = cx.require_attr::<i64>(name)?;
            match (1..1 << 31).contains(&found) {
                true => Ok(found),
                false => Err(cx.bad_attr(name, &format!("is {found}: wanted 1 to 2^31 exclusive"))),
            }
        };
        let (rows, depth, block) = (number("N")?, number("K")?, number("block_size")?);
        if block < 16 || block & (block - 1) != 0 {
            return Err(cx.bad_attr("block_size", &format!("is {block}: wanted a power of two from 16 on")));
        }
        let bits = match cx.int("bits", 4)? {
            2 => 2,
            4 => 4,
            8 => 8,
            other => return unsupported(format!("weights of {other} bits (2, 4 and 8 are)")),
        };
        Ok(Self { rows, depth, block, blocks: (depth + block - 1) / block, bits })
    }

    /// Codes of a constant whose rows are bytes with the first code in the lowest bits, as bytes [rows, each]. They are taken apart by
    /// layers over the model's weight, which a refit may replace.
    fn codes(&self, cx: &mut Cx<'_>, input: usize, rows: i64, each: i64) -> Result<TensorId, Refusal> {
        let packed = cx.input(input)?;
        let Some(bytes) = cx.value(packed) else {
            return unsupported(format!("input {input} that is not constant"));
        };
        if bytes.dtype() != DType::U8 {
            return unsupported(format!("input {input} of type {}, wants u8", bytes.dtype()));
        }
        let per_byte = i64::from(8 / self.bits);
        let row_bytes = (each + per_byte - 1) / per_byte;
        if rows.checked_mul(row_bytes) != i64::try_from(bytes.len()).ok() {
            return unsupported(format!(
                "input {input} of shape {:?}: wanted {rows} rows of {row_bytes} bytes",
                bytes.shape()
            ));
        }
        let mut parts = Vec::new();
        for i in 0..per_byte {
            let above = cx.bin_num("div", packed, f64::from(1 << (i * i64::from(self.bits))))?;
            let part = if self.bits == 8 {
                above
            } else {
                cx.bin_num("bit_and", above, f64::from((1 << self.bits) - 1))?
            };
            parts.push(cx.reshape(part, &[rows, row_bytes, 1])?);
        }
        let apart = if let [whole] = parts[..] { whole } else { cx.concat(&parts, 2)? };
        let apart = cx.reshape(apart, &[rows, row_bytes * per_byte])?;
        let codes = if each == row_bytes * per_byte { apart } else { cx.slice(apart, 1, 0, each)? };
        self.stored(cx, codes)
    }

    /// Bytes as they are stored: codes of 4 bits as i4, less 8; a zero point is moved alike.
    fn stored(&self, cx: &mut Cx<'_>, codes: TensorId) -> Result<TensorId, Refusal> {
        if self.bits != 4 {
            return Ok(codes);
        }
        let less = cx.bin_num("sub", codes, 8.0)?;
        cx.cast(less, DType::I4)
    }

    /// The weights as reals of a type, [N, K].
    fn weights(&self, cx: &mut Cx<'_>, to: DType) -> Result<TensorId, Refusal> {
        let shape = [self.rows, self.blocks, self.block];
        let codes = self.codes(cx, 1, self.rows * self.blocks, self.block)?;
        let codes = cx.reshape(codes, &shape)?;
        let scale = cx.input(2)?;
        let scale = cx.reshape(scale, &[self.rows, self.blocks, 1])?;
        let floats = cx.opt(3).filter(|zero| cx.dtype(*zero).is_float());
        let reals = match floats {
            Some(zero) => self.reals_by_float_zero(cx, codes, scale, zero, to)?,
            None => {
                let zero = self.zero(cx)?;
                let attrs = Attrs::new().with("to", to);
                cx.layer("dequantize", attrs, &[Some(codes), Some(scale), Some(zero)])?
            }
        };
        let whole = cx.reshape(reals, &[self.rows, self.blocks * self.block])?;
        if self.depth == self.blocks * self.block { Ok(whole) } else { cx.slice(whole, 1, 0, self.depth) }
    }

    /// Zero points of the type of the codes: those given, else the middle of the range.
    fn zero(&self, cx: &mut Cx<'_>) -> Result<TensorId, Refusal> {
        let shape = [self.rows, self.blocks, 1];
        if cx.opt(3).is_none() {
            let middle = cx.elems(DType::U8, &[], Elems::I(vec![1 << (self.bits - 1)]))?;
            return self.stored(cx, middle);
        }
        let codes = self.codes(cx, 3, self.rows, self.blocks)?;
        cx.reshape(codes, &shape)
    }

    /// (codes − zero)·scale with zero points that are not codes.
    fn reals_by_float_zero(
        &self,
        cx: &mut Cx<'_>,
        codes: TensorId,
        scale: TensorId,
        zero: TensorId,
        to: DType,
    ) -> Result<TensorId, Refusal> {
        let zero = cx.reshape(zero, &[self.rows, self.blocks, 1])?;
        let (codes, zero) = (cx.cast(codes, DType::F32)?, cx.cast(zero, DType::F32)?);
        let moved = if self.bits == 4 { cx.bin_num("add", codes, 8.0)? } else { codes };
        let centred = cx.bin("sub", moved, zero)?;
        let scale = cx.cast(scale, DType::F32)?;
        let reals = cx.bin("mul", centred, scale)?;
        cx.cast(reals, to)
    }
}

/// A·Wᵀ + bias. `accuracy_level` allows coarser arithmetic than is used here.
fn matmul_n_bits(cx: &mut Cx<'_>) -> Outs {
    absent(cx, 4, "g_idx")?;
    unset(cx, "weight_prepacked")?;
    let level = cx.int("accuracy_level", 0)?;
    if !(0..=4).contains(&level) {
        return Err(cx.bad_attr("accuracy_level", &format!("is {level}: wanted 0 to 4")));
    }
    let a = cx.input(0)?;
    let packed = Packed::read(cx)?;
    let w = packed.weights(cx, cx.dtype(a))?;
    let mut y = cx.layer("matmul", Attrs::new().with("trans_b", true), &[Some(a), Some(w)])?;
    if let Some(bias) = cx.opt(5) {
        y = cx.bin("add", y, bias)?;
    }
    Ok(vec![y])
}
