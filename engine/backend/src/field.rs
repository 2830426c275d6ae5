//! Forms of fields that differ from those of their types: defaults that are not zero, checks, and what is stored beside a payload.
//!
//! A module is for `#[cbor(with = ..)]`; its `nil` is what an absent field means, which is not written.

use crate::stores::Stores;
use kiln_ir::Graph;
use kiln_ir::wire::{MAX_NESTING, decode_graph, encode_graph, refuse};
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Error as EncodeError, Write};
use minicbor::{Decode, Encode};

type Written<W> = Result<(), EncodeError<<W as Write>::Error>>;

/// Whether a number is what its absence means.
pub fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A power of two.
pub fn power_of_two<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<u64, Error> {
    let n = d.u64()?;
    match n.is_power_of_two() {
        true => Ok(n),
        false => Err(refuse(format!("an alignment of {n} bytes is no power of two"))),
    }
}

/// A time in nanoseconds.
pub fn time<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Option<f64>, Error> {
    let ns = d.f64()?;
    match ns.is_finite() && ns >= 0.0 {
        true => Ok(Some(ns)),
        false => Err(refuse(format!("an estimate of {ns} ns; wanted a finite time from 0 on"))),
    }
}

/// An absent time.
pub fn no_time() -> Option<Option<f64>> {
    Some(None)
}

/// Defines a module for fields that are encoded like their types, with a default of their own.
macro_rules! default {
    ($(#[$doc:meta])* $name:ident: $of:ty = $default:expr) => {
        $(#[$doc])*
        pub mod $name {
            use super::*;

            pub fn encode<C, W: Write>(x: &$of, e: &mut Encoder<W>, ctx: &mut C) -> Written<W> {
                x.encode(e, ctx)
            }

            pub fn decode<C>(d: &mut Decoder<'_>, ctx: &mut C) -> Result<$of, Error> {
                Decode::decode(d, ctx)
            }

            pub fn nil() -> Option<$of> {
                Some($default)
            }

            pub fn is_nil(x: &$of) -> bool {
                *x == $default
            }
        }
    };
}

default! {
    /// A condition that holds where nothing is said.
    yes: bool = true
}
default! {
    /// A count that is 1 where nothing is said.
    once: u64 = 1
}

/// Names in order; they are sorted where a payload does not.
pub mod sorted {
    use super::*;

    pub fn encode<C, W: Write>(names: &Vec<String>, e: &mut Encoder<W>, ctx: &mut C) -> Written<W> {
        names.encode(e, ctx)
    }

    pub fn decode<C>(d: &mut Decoder<'_>, ctx: &mut C) -> Result<Vec<String>, Error> {
        let mut names = Vec::decode(d, ctx)?;
        names.sort();
        Ok(names)
    }

    pub fn nil() -> Option<Vec<String>> {
        Some(Vec::new())
    }

    pub fn is_nil(names: &[String]) -> bool {
        names.is_empty()
    }
}

/// Pairs of numbers, as one list of numbers.
pub mod pairs {
    use super::*;

    pub fn encode<C, W: Write>(pairs: &[(usize, usize)], e: &mut Encoder<W>, _: &mut C) -> Written<W> {
        e.array(pairs.len() as u64 * 2)?;
        pairs.iter().try_for_each(|&(a, b)| e.u64(a as u64)?.u64(b as u64)?.ok())
    }

    pub fn decode<C>(d: &mut Decoder<'_>, ctx: &mut C) -> Result<Vec<(usize, usize)>, Error> {
        let numbers: Vec<usize> = Vec::decode(d, ctx)?;
        match numbers.as_chunks::<2>() {
            (pairs, []) => Ok(pairs.iter().map(|&[a, b]| (a, b)).collect()),
            _ => Err(refuse("field 2 (inside) is no list of pairs")),
        }
    }

    pub fn nil() -> Option<Vec<(usize, usize)>> {
        Some(Vec::new())
    }

    pub fn is_nil(pairs: &[(usize, usize)]) -> bool {
        pairs.is_empty()
    }
}

/// A graph whose large tensors are stored beside the payload.
pub mod graph {
    use super::*;

    pub fn encode<C: Stores, W: Write>(g: &Graph, e: &mut Encoder<W>, stores: &mut C) -> Written<W> {
        encode_graph(e, g, stores.sink())
    }

    pub fn decode<C: Stores>(d: &mut Decoder<'_>, stores: &mut C) -> Result<Graph, Error> {
        decode_graph(d, stores.source()).map_err(refuse)
    }
}

/// A blob, as its index; none where it is empty.
pub mod blob {
    use super::*;
    use kiln_ir::Bytes;

    pub fn encode<C: Stores, W: Write>(blob: &Bytes, e: &mut Encoder<W>, stores: &mut C) -> Written<W> {
        e.u64(stores.put_blob(blob))?.ok()
    }

    pub fn decode<C: Stores>(d: &mut Decoder<'_>, stores: &mut C) -> Result<Bytes, Error> {
        stores.blob(d.u64()?).map_err(refuse)
    }

    pub fn nil() -> Option<Bytes> {
        Some(Bytes::from(Vec::new()))
    }

    pub fn is_nil(blob: &Bytes) -> bool {
        blob.as_slice().is_empty()
    }
}

/// Programs inside of a program, which nest to a bounded depth.
pub mod bodies {
    use super::*;

    pub fn encode<C: Stores, T: Encode<C>, W: Write>(
        bodies: &Vec<T>,
        e: &mut Encoder<W>,
        stores: &mut C,
    ) -> Written<W> {
        bodies.encode(e, stores)
    }

    pub fn decode<'b, C: Stores, T: Decode<'b, C>>(
        d: &mut Decoder<'b>,
        stores: &mut C,
    ) -> Result<Vec<T>, Error> {
        if *stores.depth() >= MAX_NESTING {
            return Err(refuse(format!("programs nest deeper than {MAX_NESTING}")).at(d.position()));
        }
        *stores.depth() += 1;
        let bodies = Vec::decode(d, stores)?;
        *stores.depth() -= 1;
        Ok(bodies)
    }

    pub fn nil<T>() -> Option<Vec<T>> {
        Some(Vec::new())
    }

    pub fn is_nil<T>(bodies: &[T]) -> bool {
        bodies.is_empty()
    }
}
