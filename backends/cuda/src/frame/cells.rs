//! Bindings whose address changes with each iteration of a loop: the parameter may have the address of a
//! cell, 8 bytes of memory that have the binding's address. Texts of kernels without such bindings do not
//! mention cells.

use crate::parameter::MOST_CELLS;
use kiln_backend::{Tactic, flow};
use kiln_codegen::expression::Slot;
use kiln_codegen::site::Site;
use kiln_ir::ValueId;
use std::fmt::Write;

/// One member of the parameter.
pub struct Field {
    /// Its type, of one element where it is an array.
    pub of: String,
    pub name: String,
    /// Elements of an array.
    pub count: Option<usize>,
    /// The bit of the parameter's `marks` that says whether it is the address of a cell.
    pub cell: Option<usize>,
}

impl Field {
    pub fn new(of: &str, name: &str) -> Field {
        Field { of: of.to_owned(), name: name.to_owned(), count: None, cell: None }
    }

    pub fn array(of: &str, name: &str, count: usize) -> Field {
        Field { count: Some(count), ..Field::new(of, name) }
    }

    fn plain(&self) -> String {
        let Field { of, name, .. } = self;
        match self.count {
            Some(n) => format!("    {of} {name}[{n}];\n"),
            None => format!("    {of} {name};\n"),
        }
    }
}

/// The parameter's members in order.
pub fn plain(fields: &[Field]) -> String {
    fields.iter().map(Field::plain).collect()
}

/// The bindings of a tactic's kernel that may be cells, by bits; those beyond `MOST_CELLS` never are.
pub fn cells(site: &Site<'_>, slots: &[Slot], tactic: &Tactic) -> u32 {
    let (inputs, outputs) = (&site.graph.inputs, &site.graph.outputs);
    let at = |all: &[ValueId], v: Option<ValueId>| all.iter().position(|x| Some(*x) == v);
    let taken = |v| at(inputs, v).is_some_and(|i| flow::takes_slice(tactic, i));
    let may = |slot: &Slot| match *slot {
        Slot::Input(k) => taken(site.bound(k)),
        Slot::Extra(k) => taken(site.extras.get(k).copied()),
        Slot::Output(j) => at(outputs, site.stored_value(j)).is_some_and(|j| flow::gives_slice(tactic, j)),
        Slot::Scratch | Slot::Sizes | Slot::Faults => false,
    };
    let found = slots.iter().take(MOST_CELLS).enumerate().filter(|(_, s)| may(s));
    found.fold(0, |bits, (s, _)| bits | 1 << s)
}

/// The text of a structure `Parameter`, and of the members of `K` that are made from it, cells looked up: once, in registers.
pub fn looked_up(fields: &[Field]) -> (String, String) {
    let (mut members, mut made) = (String::new(), Vec::new());
    for Field { of, name, count, cell } in fields {
        let _ = match count {
            Some(n) => writeln!(members, "    const {of} (&{name})[{n}];"),
            None => writeln!(members, "    {of} {name};"),
        };
        made.push(match cell {
            Some(bit) => format!("{name}(in_cell(p.{name}, p.marks, {bit}u))"),
            None => format!("{name}(p.{name})"),
        });
    }
    let parameter = format!(
        "struct Parameter {{\n{}}};\n\
         template <class T> DEV T* in_cell(T* p, u32 cells, u32 bit) {{\n    \
         if ((cells >> bit & 1u) != 0u) {{\n        p = reinterpret_cast<T*>(*reinterpret_cast<const volatile u64*>(p));\n    \
         }}\n    return p;\n}}\n",
        plain(fields)
    );
    let _ = writeln!(members, "    DEV explicit K(const Parameter& p) : {} {{}}", made.join(", "));
    (parameter, members)
}
