//! Reading maps and lists of a payload.

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};
use std::collections::BTreeSet;

/// The error for a payload that says something unknown or wrong.
pub fn refuse(message: impl std::fmt::Display) -> Error {
    Error::message(message)
}

/// The value of a required field, or the refusal that names it ("field 1 (dims) of a type").
pub(super) fn need<T>(x: Option<T>, field: &str) -> Result<T, Error> {
    x.ok_or_else(|| refuse(format!("{field} is missing")))
}

/// Reads a map with integer keys. `f` reads the value of a key and answers true, or answers false without reading if
/// it does not know the key: the value is then skipped. A key given twice is refused.
pub(super) fn fields<'b>(
    d: &mut Decoder<'b>,
    what: &str,
    mut f: impl FnMut(&mut Decoder<'b>, u64) -> Result<bool, Error>,
) -> Result<(), Error> {
    let named = |e: Error, d: &Decoder<'_>| {
        let p = d.position();
        if e.is_type_mismatch() {
            e.with_message(format!("{what} is a map with integer keys")).at(p)
        } else {
            e
        }
    };
    let mut left = d.map().map_err(|e| named(e, d))?;
    let mut seen = 0u64;
    while more(d, &mut left)? {
        let key = d.u64().map_err(|e| named(e, d))?;
        let bit = 1u64.checked_shl(u32::try_from(key).unwrap_or(u32::MAX)).unwrap_or(0);
        if seen & bit != 0 {
            return Err(refuse(format!("field {key} of {what} is given twice")).at(d.position()));
        }
        seen |= bit;
        if !f(d, key)? {
            d.skip()?;
        }
    }
    Ok(())
}

/// A key of a map.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key<'b> {
    Number(u64),
    Name(&'b str),
}

/// A map or list that is being read.
struct Open<'b> {
    left: Option<u64>,
    keys: Option<BTreeSet<Key<'b>>>,
}

/// Refuses a payload in which any map has a number or text as key twice. Derived readers would take the last of both.
pub fn check_keys(payload: &[u8]) -> Result<(), Error> {
    let mut d = Decoder::new(payload);
    let mut open: Vec<Open<'_>> = Vec::new();
    loop {
        match d.datatype()? {
            Type::Map | Type::MapIndef => open.push(Open { left: d.map()?, keys: Some(BTreeSet::new()) }),
            Type::Array | Type::ArrayIndef => open.push(Open { left: d.array()?, keys: None }),
            _ => d.skip()?,
        }
        loop {
            let Some(last) = open.last_mut() else { return Ok(()) };
            if more(&mut d, &mut last.left)? {
                if let Some(keys) = &mut last.keys {
                    add_key(&mut d, keys)?;
                }
                break;
            }
            open.pop();
        }
    }
}

fn add_key<'b>(d: &mut Decoder<'b>, keys: &mut BTreeSet<Key<'b>>) -> Result<(), Error> {
    let key = match d.datatype()? {
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => Key::Number(d.u64()?),
        Type::String => Key::Name(d.str()?),
        _ => return d.skip(),
    };
    let twice = match key {
        Key::Number(n) if keys.contains(&key) => format!("field {n}"),
        Key::Name(name) if keys.contains(&key) => format!("\"{name}\""),
        key => {
            keys.insert(key);
            return Ok(());
        }
    };
    Err(refuse(format!("{twice} is given twice")).at(d.position()))
}

/// Reads a list. Nothing is reserved for the length that it claims.
pub(super) fn list<'b, T>(
    d: &mut Decoder<'b>,
    mut f: impl FnMut(&mut Decoder<'b>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let mut left = d.array()?;
    let mut out = Vec::new();
    while more(d, &mut left)? {
        out.push(f(d)?);
    }
    Ok(out)
}

/// Whether the map or list has another element. Counts down a definite length, or consumes the break of an indefinite one.
pub(super) fn more(d: &mut Decoder<'_>, left: &mut Option<u64>) -> Result<bool, Error> {
    match left {
        Some(0) => Ok(false),
        Some(n) => {
            *n -= 1;
            Ok(true)
        }
        None if d.datatype()? == Type::Break => {
            d.skip()?;
            Ok(false)
        }
        None => Ok(true),
    }
}
