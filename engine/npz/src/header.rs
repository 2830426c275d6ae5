//! The header of an NPY file: a Python dictionary literal of three entries.

use crate::{NpyType, NpzError};

/// Contents of a header's dictionary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub dtype: NpyType,
    pub fortran_order: bool,
    pub shape: Vec<u64>,
}

/// NumPy itself allows no more dimensions.
const MAX_RANK: usize = 64;

impl Header {
    /// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, the entries in any order, each once.
    pub(crate) fn parse(text: &str) -> Result<Self, NpzError> {
        let mut cursor = Cursor { rest: text };
        let (mut dtype, mut fortran_order, mut shape) = (None, None, None);
        cursor.expect("{")?;
        while !cursor.accept("}") {
            let key = cursor.string()?;
            cursor.expect(":")?;
            let repeated = match key {
                "descr" => dtype.replace(element_type(cursor.string()?)?).is_some(),
                "fortran_order" => fortran_order.replace(cursor.boolean()?).is_some(),
                "shape" => shape.replace(cursor.tuple()?).is_some(),
                _ => return Err(NpzError::Header(format!("unknown header entry '{key}'"))),
            };
            if repeated {
                return Err(NpzError::Header(format!("header entry '{key}' given twice")));
            }
            if !cursor.accept(",") {
                cursor.expect("}")?;
                break;
            }
        }
        cursor.end()?;
        let missing = |key: &str| NpzError::Header(format!("header entry '{key}' is missing"));
        Ok(Self {
            dtype: dtype.ok_or_else(|| missing("descr"))?,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }
}

/// The type of a NumPy `descr`, as `<f4` or `|b1`; refused if arrays of it are not read.
fn element_type(descr: &str) -> Result<NpyType, NpzError> {
    NpyType::from_descr(descr).ok_or_else(|| NpzError::Type(descr.to_owned()))
}

/// The text of the header of an array in C order, without padding.
pub(crate) fn render(dtype: NpyType, shape: &[u64]) -> String {
    let mut dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
    let keep = if shape.len() == 1 { 1 } else { 2 };
    dims.truncate(dims.len().saturating_sub(keep));
    format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({dims}), }}", dtype.descr())
}

/// Unread rest of a header.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn accept(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.strip_prefix(token).inspect(|rest| self.rest = rest).is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), NpzError> {
        if self.accept(token) { Ok(()) } else { Err(self.wanted(token)) }
    }

    fn wanted(&self, what: &str) -> NpzError {
        let found: String = self.rest.chars().take(16).collect();
        NpzError::Header(format!("wanted {what} in the header, found '{found}'"))
    }

    fn string(&mut self) -> Result<&'a str, NpzError> {
        let quote = if self.accept("'") { '\'' } else { self.expect("\"").map(|()| '"')? };
        let (text, rest) = self.rest.split_once(quote).ok_or_else(|| self.wanted("a closing quote"))?;
        self.rest = rest;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool, NpzError> {
        if self.accept("True") { Ok(true) } else { self.expect("False").map(|()| false) }
    }

    fn tuple(&mut self) -> Result<Vec<u64>, NpzError> {
        let mut dims = Vec::new();
        self.expect("(")?;
        while !self.accept(")") {
            if dims.len() == MAX_RANK {
                return Err(NpzError::Header(format!("more than {MAX_RANK} dimensions")));
            }
            dims.push(self.number()?);
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(dims)
    }

    fn number(&mut self) -> Result<u64, NpzError> {
        self.rest = self.rest.trim_start();
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (text, rest) = self.rest.split_at(digits);
        let number = text.parse().map_err(|_| self.wanted("a dimension that fits in 64 bits"))?;
        self.rest = rest;
        Ok(number)
    }

    fn end(&mut self) -> Result<(), NpzError> {
        if self.rest.trim().is_empty() { Ok(()) } else { Err(self.wanted("the end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_headers_parse_back() {
        for shape in [vec![], vec![3], vec![0, 4], vec![2, 3, 4]] {
            let text = render(NpyType::F16, &shape);
            let header = Header { dtype: NpyType::F16, fortran_order: false, shape };
            assert_eq!(Header::parse(&text).unwrap(), header, "{text}");
        }
        assert_eq!(render(NpyType::Bool, &[3]), "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }");
    }

    #[test]
    fn bad_headers_are_refused() {
        for text in [
            "",
            "{}",
            "{'descr': '<f4'}",
            "{'descr': '>f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<U4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': ()} x",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,",
        ] {
            assert!(Header::parse(text).is_err(), "{text}");
        }
        let many = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({})}}", "1,".repeat(65));
        assert!(Header::parse(&many).is_err());
    }
}
