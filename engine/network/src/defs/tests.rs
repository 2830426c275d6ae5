//! Results of the layers, as literals, and their refusals.

mod experts;
mod image;
mod implicit;
mod implicit_entries;
mod index;
mod matrix;
mod mnist;
mod moves;
mod plugin;
mod pointwise;
mod quantized;
mod reduced;
mod sequence;
