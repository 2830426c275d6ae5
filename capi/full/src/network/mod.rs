//! The network-definition API: networks are written layer by layer, by the names of kinds and of their parameters.

pub mod flow;
pub mod kinds;
pub mod layers;
pub mod object;
pub mod params;
pub mod tensors;
pub mod value;
