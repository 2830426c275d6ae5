//! Quantized networks: what dequantization, an operator and quantization compute becomes work on integers of 8 bits.
//!
//! Products and convolutions of dequantized operands become products of codes, whose sums are exact, and one dequantization behind
//! them ([`product`], [`conv`], [`transposed`]). Weights alone stay codes beside an operand of floats ([`weights`]), or become floats where
//! that is faster ([`floats`]). Means of windows are sums of codes ([`pool`]), and interpolations read codes ([`resize`]).
//! Layers that only move elements, or pick the greatest, move codes ([`moves`]).

mod codes;
mod conv;
mod floats;
mod moves;
mod pool;
mod product;
mod resize;
mod transposed;
mod weights;

pub use conv::QuantizedConv;
pub use floats::FloatWeights;
pub use moves::{DequantizeLater, QuantizeEarlier, SameCodes};
pub use pool::QuantizedPool;
pub use product::QuantizedProduct;
pub use resize::QuantizedResize;
pub use transposed::QuantizedTransposed;
pub use weights::WeightCodes;
