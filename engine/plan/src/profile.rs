//! Optimization profiles: the shapes that an engine is built for.

use crate::error::ProfileError;
use crate::io::{IoMode, IoTensor};
use kiln_ir::dim::{Atom, Origin};
use kiln_ir::{Dim, Elems, Fact, Tensor, TensorType};
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most elements that a shape input may have.
pub const MAX_SHAPE_VALUES: usize = 64;

/// The most bytes of an input at its greatest shape: what a process can address.
const MAX_BYTES: u64 = 1 << 47;

/// The least, the most common and the greatest of something with several components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: Vec<i64>,
    /// Dimensions that kernels are chosen for.
    pub opt: Vec<i64>,
    /// The greatest; memory is planned for it.
    pub max: Vec<i64>,
}

/// Ranges of the inputs whose shapes (or, of shape inputs, whose elements) vary. Any number of contexts may use one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Profile {
    /// Shapes by input. Inputs of fixed shape may be absent.
    #[cbor(n(0), with = "ranges", default)]
    pub shapes: BTreeMap<String, Range>,
    /// Elements of shape inputs, by input.
    #[cbor(n(1), with = "ranges", default)]
    pub values: BTreeMap<String, Range>,
}

/// Ranges by input, as a list of maps.
mod ranges {
    use super::Range;
    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{Encoder, Error as EncodeError, Write};
    use minicbor::{Decode, Encode};
    use std::collections::BTreeMap;

    #[derive(Encode, Decode)]
    #[cbor(map)]
    struct StoredRange {
        #[n(0)]
        input: String,
        #[n(1)]
        min: Vec<i64>,
        #[n(2)]
        opt: Vec<i64>,
        #[n(3)]
        max: Vec<i64>,
    }

    pub fn encode<C, W: Write>(
        ranges: &BTreeMap<String, Range>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        let stored = ranges.iter().map(|(input, r)| {
            let Range { min, opt, max } = r.clone();
            StoredRange { input: input.clone(), min, opt, max }
        });
        stored.collect::<Vec<_>>().encode(e, ctx)
    }

    pub fn decode<C>(d: &mut Decoder<'_>, ctx: &mut C) -> Result<BTreeMap<String, Range>, Error> {
        let stored: Vec<StoredRange> = Decode::decode(d, ctx)?;
        Ok(stored
            .into_iter()
            .map(|StoredRange { input, min, opt, max }| (input, Range { min, opt, max }))
            .collect())
    }
}

fn bad(message: String) -> ProfileError {
    ProfileError(message)
}

impl Range {
    /// Checks that the three are of one length and in order.
    pub fn new(min: &[i64], opt: &[i64], max: &[i64]) -> Result<Range, ProfileError> {
        let r = Range { min: min.to_vec(), opt: opt.to_vec(), max: max.to_vec() };
        r.check("")?;
        Ok(r)
    }

    fn check(&self, name: &str) -> Result<(), ProfileError> {
        let Range { min, opt, max } = self;
        if min.len() != opt.len() || opt.len() != max.len() {
            return Err(bad(format!("\"{name}\": min {min:?}, opt {opt:?} and max {max:?} differ in rank")));
        }
        let ordered = (0..min.len()).all(|i| min[i] <= opt[i] && opt[i] <= max[i]);
        if !ordered {
            return Err(bad(format!("\"{name}\": wants min {min:?} ≤ opt {opt:?} ≤ max {max:?}")));
        }
        Ok(())
    }

    /// Whether it holds these components.
    pub fn contains(&self, v: &[i64]) -> bool {
        v.len() == self.min.len() && (0..v.len()).all(|i| self.min[i] <= v[i] && v[i] <= self.max[i])
    }

    /// Number of elements at the greatest, saturating.
    fn size(&self) -> i64 {
        self.max.iter().fold(1i64, |a, &b| a.saturating_mul(b.max(1)))
    }
}

impl Profile {
    /// A profile without ranges.
    pub fn new() -> Profile {
        Profile::default()
    }

    /// Sets the shapes of an input. Whether they fit the network is checked by [`Profile::check`].
    pub fn set_shape(
        &mut self,
        name: &str,
        min: &[i64],
        opt: &[i64],
        max: &[i64],
    ) -> Result<(), ProfileError> {
        let range = Range { min: min.to_vec(), opt: opt.to_vec(), max: max.to_vec() };
        range.check(name)?;
        if min.iter().any(|&d| d < 0) {
            return Err(bad(format!("\"{name}\": min {min:?} has a negative dimension")));
        }
        self.shapes.insert(name.to_owned(), range);
        Ok(())
    }

    /// Sets the elements of a shape input.
    pub fn set_values(
        &mut self,
        name: &str,
        min: &[i64],
        opt: &[i64],
        max: &[i64],
    ) -> Result<(), ProfileError> {
        let range = Range { min: min.to_vec(), opt: opt.to_vec(), max: max.to_vec() };
        range.check(name)?;
        if min.len() > MAX_SHAPE_VALUES {
            return Err(bad(format!(
                "\"{name}\" has {} elements; a shape input has at most {MAX_SHAPE_VALUES}",
                min.len()
            )));
        }
        self.values.insert(name.to_owned(), range);
        Ok(())
    }

    /// The profile of a network whose inputs are all of fixed shape and none a shape input; `None` for others.
    pub fn fixed(io: &[IoTensor]) -> Option<Profile> {
        let mut p = Profile::new();
        for t in inputs(io) {
            let dims: Option<Vec<i64>> = t.dims.iter().map(Dim::as_const).collect();
            let dims = dims.filter(|_| !t.is_shape_input)?;
            p.shapes.insert(t.name.clone(), Range { min: dims.clone(), opt: dims.clone(), max: dims });
        }
        Some(p)
    }

    /// Checks the profile against a network's inputs. Every varying input has a range of its rank, and fixed
    /// dimensions are kept. Equal symbols have one opt and ranges that meet; shape inputs have values; no
    /// name is unknown.
    pub fn check(&self, io: &[IoTensor]) -> Result<(), ProfileError> {
        for name in self.shapes.keys().chain(self.values.keys()) {
            if !inputs(io).any(|t| &t.name == name) {
                return Err(bad(format!("\"{name}\" is no input of the network")));
            }
        }
        let mut symbols = Symbols::new();
        for t in inputs(io) {
            match self.shapes.get(&t.name) {
                Some(range) => check_shape(t, range, &mut symbols)?,
                None if t.dims.iter().all(|d| d.as_const().is_some()) => {}
                None => {
                    return Err(bad(format!(
                        "input \"{}\" has shape [{}] and wants min, opt and max shapes",
                        t.name,
                        t.dims_text()
                    )));
                }
            }
            self.check_values(t)?;
        }
        Ok(())
    }

    fn check_values(&self, t: &IoTensor) -> Result<(), ProfileError> {
        let Some(range) = self.values.get(&t.name) else {
            // Profiles hold integers: what follows from the contents of a float input is sized at run time.
            return if t.is_shape_input && !t.dtype.is_float() {
                Err(bad(format!("\"{}\" is a shape input and wants min, opt and max values", t.name)))
            } else {
                Ok(())
            };
        };
        range.check(&t.name)?;
        let n = t.ty().static_volume();
        if !t.is_shape_input || n.is_some_and(|n| n != range.min.len()) {
            return Err(bad(format!(
                "\"{}\" ({}) is given {} values; values are for shape inputs, one for each element",
                t.name,
                t.ty(),
                range.min.len()
            )));
        }
        Ok(())
    }

    /// Facts of the inputs at its least, usual and greatest shapes: what a build is made for.
    pub fn points(&self, io: &[IoTensor]) -> Result<[Vec<Fact>; 3], ProfileError> {
        let at = |pick: fn(&Range) -> &[i64]| {
            inputs(io).map(|t| self.point(t, pick)).collect::<Result<Vec<Fact>, ProfileError>>()
        };
        Ok([at(|r| &r.min)?, at(|r| &r.opt)?, at(|r| &r.max)?])
    }

    fn point(&self, t: &IoTensor, pick: fn(&Range) -> &[i64]) -> Result<Fact, ProfileError> {
        let dims = match self.shapes.get(&t.name) {
            Some(r) => pick(r).iter().map(|&d| Dim::new(d)).collect(),
            None => t.dims.clone(),
        };
        let ty = TensorType { dtype: t.dtype, dims };
        let Some(values) = self.values.get(&t.name).map(pick) else { return Ok(Fact::of(ty)) };
        let tensor = ty
            .static_dims()
            .and_then(|s| Tensor::from_elems(t.dtype, &s, &Elems::I(values.to_vec())))
            .ok_or_else(|| bad(format!("\"{}\" ({ty}) is given {} values", t.name, values.len())))?;
        Ok(Fact::constant(tensor))
    }

    /// Elements of all inputs at their greatest shapes, saturating: the tighter of two profiles has fewer.
    pub fn size(&self) -> i64 {
        self.shapes.values().fold(0i64, |a, r| a.saturating_add(r.size()))
    }
}

/// Elements of inputs of these dimensions together, by which runs of a profile are told apart.
pub fn elements(inputs: impl Iterator<Item = impl Iterator<Item = u64>>) -> u64 {
    inputs.map(|dims| dims.fold(1, u64::saturating_mul)).fold(0, u64::saturating_add)
}

/// Inputs, without outputs.
pub fn inputs(io: &[IoTensor]) -> impl Iterator<Item = &IoTensor> {
    io.iter().filter(|t| t.mode == IoMode::Input)
}

fn check_shape(t: &IoTensor, range: &Range, symbols: &mut Symbols) -> Result<(), ProfileError> {
    range.check(&t.name)?;
    if range.min.len() != t.dims.len() {
        return Err(bad(format!(
            "\"{}\" has shape [{}], the profile gives it {} dimensions",
            t.name,
            t.dims_text(),
            range.min.len()
        )));
    }
    if t.dtype.bytes_for(range.size().unsigned_abs()).is_none_or(|bytes| bytes > MAX_BYTES) {
        return Err(bad(format!(
            "\"{}\" ({}): the greatest shape {:?} has more than {MAX_BYTES} bytes, the most of a tensor; give a smaller max",
            t.name, t.dtype, range.max
        )));
    }
    for (i, d) in t.dims.iter().enumerate() {
        let own = [range.min[i], range.opt[i], range.max[i]];
        if own[0] < 0 || d.as_const().is_some_and(|n| own != [n; 3]) {
            return Err(bad(format!(
                "dimension {i} of \"{}\" is {d} in the network, {own:?} (min, opt, max) in the profile",
                t.name
            )));
        }
        if let Some(symbol) = host_symbol(d) {
            let (other, seen) = symbols.entry(symbol.clone()).or_insert_with(|| (t.name.clone(), own));
            if own[1] != seen[1] || own[0] > seen[2] || seen[0] > own[2] {
                return Err(bad(format!(
                    "dimension \"{symbol}\" is {seen:?} (min, opt, max) in \"{other}\", {own:?} in \"{}\"; it is one \
                     number at run time, so opt must be equal and the ranges must meet",
                    t.name
                )));
            }
        }
    }
    Ok(())
}

/// Ranges of symbols: the input that first has each, and its min, opt and max there.
type Symbols = HashMap<Arc<str>, (String, [i64; 3])>;

/// The name of a dimension that is a single host symbol.
pub fn host_symbol(d: &Dim) -> Option<Arc<str>> {
    match &*d.terms() {
        [t] if t.coef == 1 => match &t.atoms[..] {
            [Atom::Sym(s)] if matches!(s.origin, Origin::Host(_)) => Some(s.name.clone()),
            _ => None,
        },
        _ => None,
    }
}
