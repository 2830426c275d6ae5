//! Random programs of nested loops and conditionals, each from a seed, with data for their inputs.

mod body;
mod branches;
mod loops;

use super::coverage::{Pair, Place};
use super::grow::{Grow, Val};
use crate::random::Sample;
use kiln_ir::DType;
use kiln_ir::problem::Rng;
use kiln_network::NetworkError;
use std::collections::VecDeque;

/// The most constructs around a layer.
const DEPTH: usize = 4;

/// The program of a seed. `pairs` are all that may be tried: programs of successive seeds go through them in turns.
pub fn program(seed: u64, pairs: &[Pair]) -> Result<Sample, NetworkError> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let dynamic = rng.int(0, 3) == 0;
    // One program of three is large, the others so small that what they find can be read.
    let (turn, most, left) = match seed.is_multiple_of(3) {
        true => (seed / 3, 24, 7),
        false => (seed, 4, 3),
    };
    let mut wishes: VecDeque<Pair> = pairs.to_vec().into();
    wishes.rotate_left((turn as usize).wrapping_mul(most) % pairs.len().max(1));
    wishes.truncate(most);
    let mut p = Program { g: Grow::new(&format!("program {seed}"), seed, dynamic), wishes, left };
    p.outermost()?;
    Ok(Sample { network: p.g.net, inputs: p.g.inputs })
}

struct Program {
    g: Grow,
    wishes: VecDeque<Pair>,
    /// Number of constructs that may still be added.
    left: usize,
}

impl Program {
    fn outermost(&mut self) -> Result<(), NetworkError> {
        for _ in 0..2 {
            let shape = self.g.shape();
            let x = self.g.input(DType::F32, &shape, None)?;
            self.g.frame().push(x);
        }
        let mut marked = 0;
        while self.left > 0 && (marked == 0 || !self.wishes.is_empty()) {
            let made = self.construct(0)?;
            for v in made {
                self.g.net.mark_output(v.id, &format!("y{marked}"))?;
                marked += 1;
                self.g.frame().push(v);
            }
        }
        Ok(())
    }

    /// A construct of the kind that the next wish is about.
    fn construct(&mut self, depth: usize) -> Result<Vec<Val>, NetworkError> {
        self.left = self.left.saturating_sub(1);
        let place = match self.wishes.front() {
            Some(w) if self.g.rng.int(0, 3) > 0 => w.1,
            _ => [Place::Counted, Place::While, Place::Both, Place::Branch][self.g.rng.int(0, 3) as usize],
        };
        match place {
            Place::Branch => self.conditional(depth),
            place => self.looping(place, depth),
        }
    }

    /// The next few wishes for a place.
    fn wanted(&mut self, place: Place) -> Vec<Pair> {
        let mut taken = Vec::new();
        let most = self.g.rng.int(3, 6) as usize;
        self.wishes.retain(|w| {
            let take = w.1 == place && taken.len() < most;
            if take {
                taken.push(*w);
            }
            !take
        });
        taken
    }
}
