//! Fields of layers as views of the C ABI.

use ::kiln_backend::{BackendError, view};
use kiln_abi::*;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ops::plugin::record::FieldDef;
use std::ffi::c_void;

/// Longer lists and texts are refused.
const MAX_COUNT: u64 = 1 << 20;

/// Values in memory that does not move.
enum Values {
    Ints(Box<[i64]>),
    Floats(Box<[f64]>),
    Texts(
        Box<[kiln_str]>,
        #[allow(dead_code, reason = "keeps the texts that the views refer to")] Vec<String>,
    ),
}

/// Fields in the order of their definitions, for the time of a call.
pub(super) struct FieldViews {
    views: Vec<kiln_field>,
    _values: Vec<Values>,
}

// SAFETY: the views refer to memory of this object, which does not change.
unsafe impl Send for FieldViews {}
// SAFETY: as above.
unsafe impl Sync for FieldViews {}

impl FieldViews {
    /// Views of complete fields.
    pub(super) fn new(defs: &[FieldDef], fields: &Attrs) -> FieldViews {
        let values: Vec<(u32, Values)> =
            defs.iter().map(|d| values(fields.get(&d.name).unwrap_or(&d.default))).collect();
        let view = |(kind, v): &(u32, Values)| {
            let (data, count): (*const c_void, usize) = match v {
                Values::Ints(v) => (v.as_ptr().cast(), v.len()),
                Values::Floats(v) => (v.as_ptr().cast(), v.len()),
                Values::Texts(v, _) => (v.as_ptr().cast(), v.len()),
            };
            kiln_field { kind: *kind, reserved: 0, data, count: count as u64 }
        };
        FieldViews {
            views: values.iter().map(view).collect(),
            _values: values.into_iter().map(|v| v.1).collect(),
        }
    }

    pub(super) fn as_ptr(&self) -> *const kiln_field {
        self.views.as_ptr()
    }

    pub(super) fn len(&self) -> u64 {
        self.views.len() as u64
    }
}

fn values(attr: &Attr) -> (u32, Values) {
    let texts = |kind, all: Vec<String>| {
        let views = all.iter().map(|s| kiln_str::new(s)).collect();
        (kind, Values::Texts(views, all))
    };
    match attr {
        Attr::Int(n) => (KILN_FIELD_INT, Values::Ints([*n].into())),
        Attr::Float(x) => (KILN_FIELD_FLOAT, Values::Floats([*x].into())),
        Attr::Ints(v) => (KILN_FIELD_INTS, Values::Ints(v.clone().into())),
        Attr::Floats(v) => (KILN_FIELD_FLOATS, Values::Floats(v.clone().into())),
        Attr::Str(s) => texts(KILN_FIELD_STRING, vec![s.clone()]),
        Attr::Strs(v) => texts(KILN_FIELD_STRINGS, v.clone()),
        // Definitions are made of the kinds above only.
        Attr::Bool(_) | Attr::DType(_) | Attr::Bytes(_) | _ => (0, Values::Ints([].into())),
    }
}

/// The value of a field that a library defines.
///
/// # Safety
/// The field and what it refers to are valid for the call.
pub(super) unsafe fn read(f: &kiln_field) -> Result<Attr, BackendError> {
    if f.count > MAX_COUNT {
        return Err(invalid(format!("{} values, at most {MAX_COUNT} are taken", f.count)));
    }
    let one = |n: usize| match n {
        1 => Ok(()),
        n => Err(invalid(format!("{n} values of a kind that has one"))),
    };
    // SAFETY: as this function's contract says.
    unsafe {
        let ints = || view::slice(f.data.cast::<i64>(), f.count);
        let floats = || view::slice(f.data.cast::<f64>(), f.count);
        let texts = || -> Result<Vec<String>, BackendError> {
            let all = view::slice(f.data.cast::<kiln_str>(), f.count)?;
            all.iter().map(|s| view::text(*s, "a text", MAX_COUNT).map(str::to_owned)).collect()
        };
        Ok(match f.kind {
            KILN_FIELD_INT => {
                one(ints()?.len())?;
                Attr::Int(ints()?[0])
            }
            KILN_FIELD_FLOAT => {
                one(floats()?.len())?;
                Attr::Float(floats()?[0])
            }
            KILN_FIELD_STRING => {
                let mut all = texts()?;
                one(all.len())?;
                Attr::Str(all.swap_remove(0))
            }
            KILN_FIELD_INTS => Attr::Ints(ints()?.to_vec()),
            KILN_FIELD_FLOATS => Attr::Floats(floats()?.to_vec()),
            KILN_FIELD_STRINGS => Attr::Strs(texts()?),
            kind => return Err(BackendError::Incompatible(format!("kind {kind}, which is not known here"))),
        })
    }
}

fn invalid(message: String) -> BackendError {
    BackendError::InvalidArgument(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_field_is_read_back() {
        let values = [
            Attr::Int(-3),
            Attr::Float(0.5),
            Attr::Str("größer".into()),
            Attr::Ints(vec![1, 2]),
            Attr::Floats(Vec::new()),
            Attr::Strs(vec!["a".into(), String::new()]),
        ];
        let def = |(i, v): (usize, &Attr)| FieldDef {
            name: format!("f{i}"),
            doc: String::new(),
            required: false,
            default: v.clone(),
        };
        let defs: Vec<FieldDef> = values.iter().enumerate().map(def).collect();
        let views = FieldViews::new(&defs, &Attrs::new());
        assert_eq!(views.len(), 6);
        for (view, value) in views.views.iter().zip(&values) {
            // SAFETY: the views live.
            assert_eq!(unsafe { read(view) }.as_ref(), Ok(value));
        }
        let two = [1i64, 2];
        for (kind, count, says) in [(1, 2, "2 values"), (9, 1, "kind 9"), (4, u64::MAX, "at most")] {
            let f = kiln_field { kind, reserved: 0, data: two.as_ptr().cast(), count };
            // SAFETY: only as many values are read as are there.
            let e = unsafe { read(&f) }.unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
    }
}
