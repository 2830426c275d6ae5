//! Offers of a backend for every operator's problems, alone and with pointwise layers after them: `supports` and `tactics`
//! agree and write no kernel's text, and whatever is offered has one.
//!
//! `KILN_OFFERS=FILE` writes all offers and refusals to a file, to compare two versions of the backend; `KILN_SNAPSHOT=FOLDER`
//! the hashes of all texts.

use super::snapshot::Snapshot;
use kiln_backend::{Backend, BackendError, Program, Region, Tactic, Target};
use kiln_codegen::offer::texts;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, Op};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The region of a problem, and the same with pointwise layers behind its first result.
pub fn regions(program: &Program) -> Vec<(&'static str, Region)> {
    let alone = program.region(&program.steps[0]).unwrap();
    let mut all = vec![("alone", alone.clone())];
    for (name, op, twice) in [("relu", "relu", false), ("add", "add", true), ("sigmoid", "sigmoid", false)] {
        let mut fused = alone.clone();
        let Some(&y) = fused.graph.outputs.first() else { continue };
        let other = fused.graph.ty(y).clone();
        let mut inputs = vec![Some(y)];
        if twice {
            inputs.push(Some(fused.graph.add_input("other", kiln_ir::Fact::of(other))));
            fused.inputs.push(y);
        }
        let Ok(outs) = fused.graph.add_node("behind", Op::new(op, Attrs::new()).unwrap(), &inputs) else {
            continue;
        };
        fused.graph.outputs = outs;
        fused.outputs.truncate(1);
        all.push((name, fused));
    }
    all
}

/// Text of the kernel that a tactic stands for.
type Written = fn(&Region, &Tactic, &Target) -> Result<Vec<u8>, BackendError>;

/// Checks what a backend offers for these targets, and writes what the environment asks for.
pub fn check(backend: &dyn Backend, targets: &[Target], written: Written) {
    let (mut all, mut seen) = (String::new(), BTreeSet::new());
    let mut snapshot = Snapshot::new(backend.name());
    for target in targets {
        all += &offers(backend, target, written, &mut seen, &mut snapshot);
    }
    snapshot.finish();
    if let Some(path) = std::env::var_os("KILN_OFFERS") {
        std::fs::write(path, &all).unwrap();
    }
}

/// All offers and refusals, a line each; what is offered for the first time is written.
fn offers(
    backend: &dyn Backend,
    target: &Target,
    written: Written,
    seen: &mut BTreeSet<String>,
    snapshot: &mut Snapshot,
) -> String {
    let mut text = String::new();
    for def in kiln_ops::all() {
        for (i, p) in (def.problems)(&mut Rng::new(3)).into_iter().enumerate() {
            let Ok((program, _)) = Program::single(&p.op, &p.inputs) else { continue };
            for (form, region) in regions(&program) {
                let what = format!("{} {} {i} ({}) {form}:", target.arch, def.name, p.label);
                let before = texts();
                let (supported, offered) =
                    (backend.supports(&region, target), backend.tactics(&region, target));
                assert_eq!(texts(), before, "{what} a text was written");
                assert_eq!(supported.as_ref().err(), offered.as_ref().err(), "{what}");
                text += &what;
                match offered {
                    Ok(found) => {
                        assert!(!found.is_empty(), "{what} neither offers nor a refusal");
                        let names: BTreeSet<String> = found.iter().map(Tactic::id).collect();
                        assert_eq!(names.len(), found.len(), "{what} tactics of one name");
                        for t in found {
                            let (id, estimate) = (t.id(), t.estimate_ns);
                            let _ = write!(text, " {id} {estimate:?} {} {};", t.workspace, t.note);
                            let first = seen.insert(format!("{} {form} {id} {}", def.name, types(&region)));
                            if first || snapshot.wanted() {
                                let text = written(&region, &t, target);
                                let text = text.unwrap_or_else(|e| panic!("{what} {id}: {e}"));
                                snapshot.add(&what, &id, &text);
                            }
                        }
                    }
                    Err(e) => {
                        let _ = write!(text, " refused: {e}");
                    }
                }
                text.push('\n');
            }
        }
    }
    text
}

/// Element types of a region's inputs and outputs.
fn types(region: &Region) -> String {
    let g = &region.graph;
    let all = g.inputs.iter().chain(&g.outputs).map(|&v| g.ty(v).dtype.to_string());
    all.collect::<Vec<_>>().join(",")
}
