//! Affine functions whose factor and summand are one number for many neighbouring elements, as those of channels are: no lanes are filled
//! with such numbers.

use super::block::{Made, Source};
use super::code::{Code, From, Work};
use super::loops;
use super::walk::Walk;
use crate::threads::{self, Parts};
use crate::value::Val;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ir::expr::Num;

/// Elements that a task makes at least.
const TASK: usize = 8 << 10;

/// Number of an element: a constant, or an element of a tensor with the same for neighbours.
enum Number<'a> {
    Constant(f64),
    Of(&'a Val, &'a Walk),
}

impl Number<'_> {
    /// Neighbours that have the same number.
    fn stretch(&self) -> usize {
        match self {
            Number::Constant(_) => usize::MAX,
            Number::Of(_, walk) => walk.stretch(),
        }
    }

    /// The number of an element of the result.
    fn at(&self, element: usize) -> f64 {
        let Number::Of(v, walk) = self else {
            return if let Number::Constant(x) = self { *x } else { 0.0 };
        };
        let mut place = 0;
        walk.segments(element, 1, |_, from, _, _| place = from);
        let elements = |of: Option<f64>| of.unwrap_or(0.0);
        match v.dtype() {
            DType::F32 => elements(v.view::<f32>().and_then(|v| v.get(place)).map(|&x| x.into())),
            DType::I32 => elements(v.view::<i32>().and_then(|v| v.get(place)).map(|&x| x.into())),
            DType::I8 => elements(v.view::<i8>().and_then(|v| v.get(place)).map(|&x| x.into())),
            _ => elements(v.view::<u8>().and_then(|v| v.get(place)).map(|&x| x.into())),
        }
    }
}

/// The number that a step reads, if it is one for stretches of neighbours.
fn number<'s>(made: &Made, code: &Code, sources: &'s [Source<'_>], from: From) -> Option<Number<'s>> {
    match from {
        From::Constant(i) => Some(Number::Constant(match code.constants.get(i)?.1 {
            Num::F(x) => f64::from(x as f32),
            Num::I(x) => x as f64,
        })),
        From::Input(i) => {
            let known = [DType::F32, DType::I32, DType::I8, DType::U8].contains(made.expr.inputs.get(i)?);
            match sources.get(i)? {
                Source::Given(v, walk) if known && walk.is_constant() => Some(Number::Of(v, walk)),
                _ => None,
            }
        }
        From::Lane(_) => None,
    }
}

/// Elements that a function is of.
enum Elements<'a> {
    /// Elements in the place of the results.
    Own,
    Floats(&'a [f32]),
    Signed(&'a [u8]),
    Unsigned(&'a [u8]),
}

impl<'a> Elements<'a> {
    fn of(made: &Made, sources: &[Source<'a>], from: From) -> Option<Elements<'a>> {
        let From::Input(i) = from else { return None };
        match (sources.get(i)?, made.expr.inputs.get(i)?) {
            (Source::Output, DType::F32) => Some(Elements::Own),
            (Source::Given(v, walk), ty) if walk.is_whole() => match ty {
                DType::F32 => v.view().map(Elements::Floats),
                DType::I8 => Some(Elements::Signed(v.bytes())),
                DType::U8 => Some(Elements::Unsigned(v.bytes())),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Computes all elements of an expression; false if it is not such a function.
pub fn run(made: &Made, sources: &[Source<'_>], to: &mut [u8]) -> bool {
    let Some(code) = made.code.as_ref().filter(|_| made.expr.result_type() == DType::F32) else {
        return false;
    };
    let [step] = &code.steps[..] else { return false };
    let of = |from: From| Elements::of(made, sources, from);
    let [a, b, c] = step.args;
    let (x, factor) = match step.work {
        Work::Affine => match of(a) {
            Some(x @ (Elements::Own | Elements::Floats(_))) => (x, b),
            _ => match of(b) {
                Some(x @ (Elements::Own | Elements::Floats(_))) => (x, a),
                _ => return false,
            },
        },
        Work::Dequantize => match of(a) {
            Some(x @ (Elements::Signed(_) | Elements::Unsigned(_))) => (x, b),
            _ => return false,
        },
        _ => return false,
    };
    let all = |from: From| number(made, code, sources, from);
    let (Some(factor), Some(term)) = (all(factor), all(c)) else { return false };
    let (Ok(y), true) = (bytemuck::try_cast_slice_mut::<u8, f32>(to), code.result == From::Lane(step.to))
    else {
        return false;
    };
    let (short, long) = (factor.stretch().min(term.stretch()), factor.stretch().max(term.stretch()));
    if short < super::FEW || long != usize::MAX && long % short != 0 {
        return false;
    }
    let (count, points) = (y.len(), Checkpoints::here());
    let parts = Parts::new(y);
    threads::ranges(count.div_ceil(TASK), 1, |tasks| {
        let (mut at, end) = (tasks.start * TASK, count.min(tasks.end * TASK));
        points.pass();
        while at < end {
            let next = at.checked_div(short).map_or(end, |i| (i + 1).saturating_mul(short)).min(end);
            // SAFETY: each element belongs to one task.
            let y = unsafe { parts.part(at, next) };
            let (f, t) = (factor.at(at) as f32, term.at(at));
            match &x {
                Elements::Own => loops::affine_own(f, t as f32, y),
                Elements::Floats(x) => loops::affine_of(&x[at..next], f, t as f32, y),
                Elements::Signed(x) => loops::signed_codes(&x[at..next], f, t as i32, y),
                Elements::Unsigned(x) => loops::unsigned_codes(&x[at..next], f, t as i32, y),
            }
            at = next;
        }
    });
    true
}
