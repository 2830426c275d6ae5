//! What the layers compute, with literal results, and what they refuse.

mod image;
mod implicit;
mod index;
mod matrix;
mod mnist;
mod moves;
mod pointwise;
mod quantized;
mod reduced;
mod sequence;
