//! Quantized networks: what dequantization, an operator and quantization compute becomes work on integers of 8 bits.
//!
//! Products and convolutions of dequantized operands become products of codes, whose sums are exact, and one dequantization behind
//! them ([`product`], [`conv`]). Weights alone stay codes beside an operand of floats ([`weights`]). Layers that only move elements, or pick the greatest, move codes ([`moves`]).

mod codes;
mod conv;
mod moves;
mod product;
mod weights;

pub use conv::QuantizedConv;
pub use moves::{DequantizeLater, QuantizeEarlier, SameCodes};
pub use product::QuantizedProduct;
pub use weights::WeightCodes;
