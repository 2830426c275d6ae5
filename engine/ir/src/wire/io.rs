//! Reading maps and lists of a payload.

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};

/// The error for a payload that says something unknown or wrong.
pub fn refuse(message: impl std::fmt::Display) -> Error {
    Error::message(message)
}

/// The value of a required field, or the refusal that names it ("field 1 (dims) of a type").
pub fn need<T>(x: Option<T>, field: &str) -> Result<T, Error> {
    x.ok_or_else(|| refuse(format!("{field} is missing")))
}

/// Reads a map with integer keys. `f` reads the value of a key and answers true, or answers false without reading if
/// it does not know the key: the value is then skipped. A key given twice is refused.
pub fn fields<'b>(
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

/// Reads a list. Nothing is reserved for the length that it claims.
pub fn list<'b, T>(
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

/// `None` for null, else what `f` reads.
pub(super) fn nullable<'b, T>(
    d: &mut Decoder<'b>,
    f: impl FnOnce(&mut Decoder<'b>) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    if d.datatype()? == Type::Null {
        d.null()?;
        return Ok(None);
    }
    f(d).map(Some)
}
