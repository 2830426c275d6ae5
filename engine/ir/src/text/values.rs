//! Parsing dimensions, types, elements and attributes.

use super::cursor::Parser;
use super::lex::Token;
use super::{MAX_SEEDED, TensorRef};
use crate::attr::{Attr, Attrs};
use crate::dim::{Atom, Dim, DimOp, Origin, Symbol, Term};
use crate::dtype::DType;
use crate::error::IrError;
use crate::problem::Rng;
use crate::tensor::{Elems, Tensor};
use crate::ty::TensorType;
use crate::wire::MAX_DIM_NESTING;
use std::collections::HashMap;
use std::sync::Arc;

/// Bounds of the device symbols that are declared so far, by name.
pub(super) type Bounds = HashMap<String, Dim>;

/// Contents of a tensor, as far as they are known.
pub(super) enum Contents {
    Tensor(Tensor),
    Dims(Vec<Dim>),
}

impl Parser<'_> {
    pub(super) fn dtype(&mut self) -> Result<DType, IrError> {
        let known = match &self.token {
            Token::Word(w) => w.parse().ok(),
            _ => None,
        };
        let dtype = known.ok_or_else(|| self.wanted("an element type"))?;
        self.advance()?;
        Ok(dtype)
    }

    pub(super) fn ty(&mut self, bounds: &Bounds) -> Result<TensorType, IrError> {
        let dtype = self.dtype()?;
        self.expect('[')?;
        let dims = self.items(']', |p| p.dim(bounds))?;
        let ty = TensorType { dtype, dims };
        match ty.negative_dim() {
            Some((axis, n)) => {
                Err(self.error(format!("{ty} has size {n} along axis {axis}; wanted 0 or more")))
            }
            None => Ok(ty),
        }
    }

    pub(super) fn dim(&mut self, bounds: &Bounds) -> Result<Dim, IrError> {
        self.sum(bounds, 0)
    }

    fn sum(&mut self, bounds: &Bounds, depth: usize) -> Result<Dim, IrError> {
        if depth > MAX_DIM_NESTING {
            return Err(self.error(format!("a dimension nests deeper than {MAX_DIM_NESTING}")));
        }
        let mut terms = vec![self.product(bounds, depth)?];
        while self.accept('+')? {
            terms.push(self.product(bounds, depth)?);
        }
        Ok(Dim::from_terms(terms))
    }

    fn product(&mut self, bounds: &Bounds, depth: usize) -> Result<Term, IrError> {
        let mut t = Term { atoms: Vec::new(), coef: 1 };
        loop {
            match self.token.clone() {
                Token::Number(n) => {
                    let n: i64 = n.parse().map_err(|_| self.wanted("an integer"))?;
                    self.advance()?;
                    t.coef = t.coef.saturating_mul(n);
                }
                _ => t.atoms.push(self.atom(bounds, depth)?),
            }
            if !self.accept('*')? {
                return Ok(t);
            }
        }
    }

    fn atom(&mut self, bounds: &Bounds, depth: usize) -> Result<Atom, IrError> {
        let (name, origin) = match self.token.clone() {
            Token::Word(w) => {
                self.advance()?;
                if self.token == Token::Punct('(') {
                    return self.operation(&w, bounds, depth);
                }
                (w, Origin::Host(None))
            }
            Token::Str(w) => (self.advance().map(|_| w)?, Origin::Host(None)),
            Token::At(w) => (self.advance().map(|_| w)?, Origin::Content),
            Token::Device(w) => {
                self.advance()?;
                let bound = bounds.get(&w).cloned().map(Arc::new);
                (w, Origin::Device(bound))
            }
            _ => return Err(self.wanted("a dimension")),
        };
        Ok(Atom::Sym(Symbol { name: name.into(), origin }))
    }

    fn operation(&mut self, name: &str, bounds: &Bounds, depth: usize) -> Result<Atom, IrError> {
        let op = DimOp::ALL.into_iter().find(|o| o.name() == name);
        let op = op.ok_or_else(|| {
            let known: Vec<_> = DimOp::ALL.iter().map(|o| o.name()).collect();
            self.error(format!("`{name}` is no operation on dimensions; there are {}", known.join(", ")))
        })?;
        self.expect('(')?;
        let a = self.sum(bounds, depth + 1)?;
        self.expect(',')?;
        let b = self.sum(bounds, depth + 1)?;
        self.expect(')')?;
        Ok(Atom::Op(op, Box::new(a), Box::new(b)))
    }

    /// The contents of the value `name`, which must fit its type.
    pub(super) fn contents_of(
        &mut self,
        bounds: &Bounds,
        name: &str,
        ty: &TensorType,
    ) -> Result<Contents, IrError> {
        if self.accept('(')? {
            let dims = self.items(')', |p| p.dim(bounds))?;
            return match ty.static_volume().is_none_or(|n| n == dims.len()) {
                true => Ok(Contents::Dims(dims)),
                false => Err(self.error(format!("%{name} is {ty} and has {} elements here", dims.len()))),
            };
        }
        let Some(shape) = ty.static_dims() else {
            return Err(self.error(format!("%{name} is {ty}; elements need dimensions that are numbers")));
        };
        let tensor = if self.accept_word("ref")? {
            self.referred(name, ty)?
        } else if self.accept_word("seed")? {
            Some(self.seeded(ty, &shape)?)
        } else if let Token::Hex(_) = self.token {
            Tensor::from_bytes(ty.dtype, &shape, self.bytes()?)
        } else {
            self.expect('[')?;
            self.listed(ty, &shape)?
        };
        let tensor = tensor.filter(|t| t.ty() == *ty);
        tensor.map(Contents::Tensor).ok_or_else(|| self.error(format!("these are not the elements of {ty}")))
    }

    fn referred(&mut self, name: &str, ty: &TensorType) -> Result<Option<Tensor>, IrError> {
        let Token::Hex(digits) = &self.token else {
            return Err(self.wanted("a hash, such as 0x0123456789abcdef"));
        };
        let hash = u64::from_str_radix(digits, 16).map_err(|_| self.error("a hash has 16 digits"))?;
        let found = (self.lookup)(&TensorRef { name, ty, hash });
        let found = found.ok_or_else(|| {
            self.error(format!(
                "%{name} refers to tensor 0x{hash:016x}, which is not at hand; give it to from_text_with"
            ))
        })?;
        self.advance()?;
        Ok(Some(found))
    }

    fn seeded(&mut self, ty: &TensorType, shape: &[usize]) -> Result<Tensor, IrError> {
        let seed = self.int()?;
        match ty.static_volume() {
            Some(n) if n <= MAX_SEEDED => Ok(Rng::new(seed as u64).tensor(ty.dtype, shape)),
            _ => Err(self.error(format!("{ty} has more than {MAX_SEEDED} elements, the most for a seed"))),
        }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, IrError> {
        let Token::Hex(digits) = self.advance()? else { return Err(self.wanted("bytes")) };
        let byte = |c: &[u8]| match c {
            [a, b] => Some((char::from(*a).to_digit(16)? * 16 + char::from(*b).to_digit(16)?) as u8),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        bytes.ok_or_else(|| self.error("bytes have two digits each; there is half a byte"))
    }

    fn listed(&mut self, ty: &TensorType, shape: &[usize]) -> Result<Option<Tensor>, IrError> {
        let elems = match ty.dtype.is_float() {
            true => Elems::F(self.items(']', Self::float)?),
            false => {
                let v = self.items(']', Self::int)?;
                let (lo, hi) = ty.dtype.int_range().unwrap_or((0, 1));
                if let Some(x) = v.iter().find(|x| !(lo..=hi).contains(*x)) {
                    return Err(self.error(format!("{x} is no {}", ty.dtype)));
                }
                Elems::I(v)
            }
        };
        Ok(Tensor::from_elems(ty.dtype, shape, &elems))
    }

    pub(super) fn int(&mut self) -> Result<i64, IrError> {
        let n = match &self.token {
            Token::Number(n) => n.parse().ok(),
            _ => None,
        };
        let n = n.ok_or_else(|| self.wanted("an integer"))?;
        self.advance()?;
        Ok(n)
    }

    pub(super) fn float(&mut self) -> Result<f64, IrError> {
        let x = match &self.token {
            Token::Number(n) => n.parse().ok(),
            Token::Word(w) if w == "NaN" => Some(f64::NAN),
            Token::Word(w) if w == "inf" => Some(f64::INFINITY),
            _ => None,
        };
        let x = x.ok_or_else(|| self.wanted("a number"))?;
        self.advance()?;
        Ok(x)
    }

    /// Attributes after `{`, up to and with `}`.
    pub(super) fn attrs(&mut self) -> Result<Attrs, IrError> {
        let mut attrs = Attrs::new();
        self.items('}', |p| {
            let name = p.word("the name of an attribute")?;
            if attrs.get(&name).is_some() {
                return Err(p.error(format!("attribute {name} is given twice")));
            }
            p.expect('=')?;
            attrs.set(&name, p.attr()?);
            Ok(())
        })?;
        Ok(attrs)
    }

    fn attr(&mut self) -> Result<Attr, IrError> {
        Ok(match self.token.clone() {
            Token::Number(n) => match n.parse() {
                Ok(n) => self.advance().map(|_| Attr::Int(n))?,
                Err(_) => Attr::Float(self.float()?),
            },
            Token::Str(s) => self.advance().map(|_| Attr::Str(s))?,
            Token::Hex(_) => Attr::Bytes(self.bytes()?),
            Token::Punct('[') => {
                self.advance()?;
                Attr::Ints(self.items(']', Self::int)?)
            }
            Token::Word(w) => match w.as_str() {
                "true" | "false" => self.advance().map(|_| Attr::Bool(w == "true"))?,
                "NaN" | "inf" => Attr::Float(self.float()?),
                "f" | "s" => {
                    self.advance()?;
                    self.expect('[')?;
                    match w.as_str() {
                        "f" => Attr::Floats(self.items(']', Self::float)?),
                        _ => Attr::Strs(self.items(']', |p| p.string("text in quotes"))?),
                    }
                }
                _ => Attr::DType(self.dtype()?),
            },
            _ => return Err(self.wanted("the value of an attribute")),
        })
    }
}
