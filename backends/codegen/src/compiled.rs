//! Conversion of a kernel's body to the compiled kernel that a plan stores: entry points, bindings and parameter.

use crate::expression::Slot;
use crate::{Body, Entry};
use kiln_backend::{Binding, CompiledKernel, EntryPoint, Parameter};

/// A kernel of this body and code. `entries` are names of entry points in the code, with the threads of a block; the parameter
/// has the body's tensor maps, and cells by bits.
pub fn compiled(
    body: &Body,
    entries: Vec<(String, u32)>,
    bindings: Vec<Binding>,
    cells: u32,
    code: Vec<u8>,
) -> CompiledKernel {
    let numbers = |all: &[usize]| all.iter().map(|&n| n as u32).collect();
    let entry = |(e, (name, threads)): (&Entry, (String, u32))| EntryPoint {
        name,
        threads,
        maps: e.mapped().map(|j| j as u32),
        cluster: match e {
            Entry::Blocks(b) => b.cluster,
            _ => 1,
        },
        together: matches!(e, Entry::Blocks(b) if b.together),
        early: matches!(e, Entry::Blocks(b) if b.early),
    };
    CompiledKernel {
        entries: body.entries.iter().zip(entries).map(entry).collect(),
        bindings,
        parameter: Parameter { cells, maps: body.maps },
        shared: body.shared,
        unwritten: numbers(&body.unwritten),
        checks: numbers(&body.checks),
        checking: body.checking,
        ..CompiledKernel::of(code)
    }
}

/// The binding of a slot.
pub fn binding(slot: &Slot) -> Binding {
    match *slot {
        Slot::Input(k) => Binding::Input(k as u32, 0),
        Slot::Extra(k) => Binding::Extra(k as u32, 0),
        Slot::Output(j) => Binding::Output(j as u32, 0),
        Slot::Scratch => Binding::Scratch,
        Slot::Sizes => Binding::Sizes,
        Slot::Faults => Binding::Faults,
    }
}

/// The slot of a binding; `None` for argument words and pieces.
pub fn slot(binding: &Binding) -> Option<Slot> {
    match *binding {
        Binding::Input(k, 0) => Some(Slot::Input(k as usize)),
        Binding::Extra(k, 0) => Some(Slot::Extra(k as usize)),
        Binding::Output(j, 0) => Some(Slot::Output(j as usize)),
        Binding::Scratch => Some(Slot::Scratch),
        Binding::Sizes => Some(Slot::Sizes),
        Binding::Faults => Some(Slot::Faults),
        _ => None,
    }
}
