//! Dimensions and tensor types.

use super::io::{fields, list, need, refuse};
use super::{MAX_DIM_NESTING, op};
use crate::dim::{Atom, Dim, DimOp, Origin, Symbol, Term};
use crate::ty::TensorType;
use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Error as EncodeError, Write};
use std::sync::Arc;

type Written<W> = Result<(), EncodeError<<W as Write>::Error>>;

pub(super) fn write<W: Write>(e: &mut Encoder<W>, dim: &Dim) -> Written<W> {
    if let Some(n) = dim.as_const() {
        return e.i64(n)?.ok();
    }
    let terms = dim.terms();
    e.map(1)?.u8(0)?.array(terms.len() as u64)?;
    for t in terms.iter() {
        e.map(2)?.u8(0)?.i64(t.coef)?.u8(1)?.array(t.atoms.len() as u64)?;
        t.atoms.iter().try_for_each(|a| write_atom(e, a))?;
    }
    Ok(())
}

fn write_atom<W: Write>(e: &mut Encoder<W>, atom: &Atom) -> Written<W> {
    match atom {
        Atom::Sym(s) => {
            let (origin, bound) = match &s.origin {
                Origin::Host(_) => (0, None),
                Origin::Content => (1, None),
                Origin::Device(b) => (2, b.as_deref()),
            };
            e.map(2 + u64::from(bound.is_some()))?.u8(0)?.str(&s.name)?.u8(1)?.u8(origin)?;
            if let Some(b) = bound {
                e.u8(2)?;
                write(e, b)?;
            }
            Ok(())
        }
        Atom::Op(code, a, b) => {
            e.map(3)?.u8(3)?.u8(*code as u8)?.u8(4)?;
            write(e, a)?;
            e.u8(5)?;
            write(e, b)
        }
    }
}

pub(super) fn read(d: &mut Decoder<'_>, depth: usize) -> Result<Dim, Error> {
    if depth > MAX_DIM_NESTING {
        return Err(refuse(format!("a dim nests deeper than {MAX_DIM_NESTING}")).at(d.position()));
    }
    if d.datatype()? != Type::Map {
        return d.i64().map(Dim::new).map_err(|e| e.with_message("a dim is an integer or a map"));
    }
    let mut terms = None;
    fields(d, "a dim", |d, key| {
        match key {
            0 => terms = Some(list(d, |d| read_term(d, depth))?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Dim::from_terms(need(terms, "field 0 (terms) of a dim")?))
}

fn read_term(d: &mut Decoder<'_>, depth: usize) -> Result<Term, Error> {
    let (mut coef, mut atoms) = (None, None);
    fields(d, "a term", |d, key| {
        match key {
            0 => coef = Some(d.i64()?),
            1 => atoms = Some(list(d, |d| read_atom(d, depth))?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Term {
        coef: need(coef, "field 0 (coefficient) of a term")?,
        atoms: need(atoms, "field 1 (factors) of a term")?,
    })
}

#[derive(Default)]
struct AtomFields {
    name: Option<Arc<str>>,
    origin: Option<u64>,
    bound: Option<Dim>,
    op: Option<u64>,
    left: Option<Dim>,
    right: Option<Dim>,
}

fn read_atom(d: &mut Decoder<'_>, depth: usize) -> Result<Atom, Error> {
    let mut f = AtomFields::default();
    fields(d, "an atom", |d, key| {
        match key {
            0 => f.name = Some(d.str()?.into()),
            1 => f.origin = Some(d.u64()?),
            2 => f.bound = Some(read(d, depth + 1)?),
            3 => f.op = Some(d.u64()?),
            4 => f.left = Some(read(d, depth + 1)?),
            5 => f.right = Some(read(d, depth + 1)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if let Some(code) = f.op {
        let op = DimOp::ALL.into_iter().find(|&o| o as u64 == code);
        let op = op.ok_or_else(|| refuse(format!("{code} is no operation on dims")))?;
        let left = need(f.left, "field 4 (left) of an operation on dims")?;
        let right = need(f.right, "field 5 (right) of an operation on dims")?;
        return Ok(Atom::Op(op, Box::new(left), Box::new(right)));
    }
    let name = need(f.name, "field 0 (name) of a symbol")?;
    let origin = match need(f.origin, "field 1 (origin) of a symbol")? {
        0 => Origin::Host(None),
        1 => Origin::Content,
        2 => Origin::Device(f.bound.map(Arc::new)),
        n => return Err(refuse(format!("{n} is no origin of a symbol"))),
    };
    Ok(Atom::Sym(Symbol { name, origin }))
}

pub(super) fn write_type<W: Write>(e: &mut Encoder<W>, ty: &TensorType) -> Written<W> {
    e.map(2)?.u8(0)?.u8(ty.dtype.code())?.u8(1)?.array(ty.dims.len() as u64)?;
    ty.dims.iter().try_for_each(|x| write(e, x))
}

pub(super) fn read_type(d: &mut Decoder<'_>) -> Result<TensorType, Error> {
    let (mut dtype, mut dims) = (None, None);
    fields(d, "a type", |d, key| {
        match key {
            0 => dtype = Some(op::read_dtype(d)?),
            1 => dims = Some(list(d, |d| read(d, 0))?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let ty = TensorType {
        dtype: need(dtype, "field 0 (dtype) of a type")?,
        dims: need(dims, "field 1 (dims) of a type")?,
    };
    match ty.negative_dim() {
        Some((axis, n)) => {
            Err(refuse(format!("a type {ty} has size {n} along axis {axis}; wanted 0 or more")))
        }
        None => Ok(ty),
    }
}

impl<C> minicbor::Encode<C> for Dim {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Written<W> {
        write(e, self)
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Dim {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Dim, Error> {
        read(d, 0)
    }
}

impl<C> minicbor::Encode<C> for TensorType {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Written<W> {
        write_type(e, self)
    }
}

impl<'b, C> minicbor::Decode<'b, C> for TensorType {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<TensorType, Error> {
        read_type(d)
    }
}
