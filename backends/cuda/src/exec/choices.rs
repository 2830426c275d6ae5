//! Tactics of control flow, for builds.

use super::loops::{MOST, USUAL};
use super::moves::PTX;
use super::reasons::ITERATIONS;
use kiln_backend::assisted::Reason;
use kiln_backend::{Region, Tactic, flow};
use kiln_ops::control::LOOP;

/// The ways to run a region of control flow, the most promising first; none for other regions. A loop whose
/// iteration count is known when it is built may be timed unrolled and as a node.
pub fn choices(region: &Region) -> Option<Vec<Tactic>> {
    let mut walked = flow::tactic(region)?;
    if let Some(Reason { why, advice }) = sure(region) {
        walked.note = format!("each run waits for the host here: {why}; {advice}");
    }
    let Some(iterations) = flow::iterations(region).filter(|n| (2..=MOST).contains(n)) else {
        return Some(vec![walked]);
    };
    let limits = [USUAL, 0, MOST].into_iter().filter(|&most| most == 0 || iterations <= most);
    let source_hash = Tactic::hash_of(PTX);
    let with =
        |most| Tactic { source_hash: source_hash.clone(), ..walked.clone() }.with(flow::UNROLLED, most);
    Some(limits.map(with).collect())
}

/// Why the host will walk a region whatever the shapes of a run are, as far as that is known when it is built.
fn sure(region: &Region) -> Option<Reason> {
    let (_, node) = region.graph.nodes().next().filter(|(_, n)| n.op.is(LOOP))?;
    let s = node.loop_shape(node.inputs.len()).ok()?;
    (!s.count && s.has_slices()).then_some(ITERATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::Graph;

    /// The limits that are offered for a loop of so many iterations, ended by a condition or not.
    fn offered(iterations: &str, condition: bool) -> Vec<Option<i64>> {
        let test = if condition { "graph \"test\" { input %x: bool[] output %x }" } else { "" };
        let text = format!(
            "graph \"g\" {{ input %a: bool[] weight %n: i64[] = [{iterations}] %o: bool[] = loop(%n, %a) \
             {{body_captures=0,carried=1,count=true,iter_axes=[],iter_reverse=[],out_axes=[0],out_index=[0],\
             out_kinds=s[\"last\"],out_length=[0],while={condition}}} @l graph \"body\" {{ input %x: bool[] \
             %y = not(%x) output %y }} {test} output %o }}"
        );
        let g = Graph::from_text(&text).unwrap_or_else(|e| panic!("{e}"));
        let region = Region::extract(&g, g.order()).unwrap_or_else(|e| panic!("{e}"));
        let all = choices(&region).unwrap_or_default();
        all.iter().map(|t| t.params.get(flow::UNROLLED).copied()).collect()
    }

    #[test]
    fn counted_loops_are_offered_written_out_and_as_a_node() {
        let all = [320, 0, 4096].map(Some);
        assert_eq!(offered("2", false), all);
        assert_eq!(offered("320", false), all);
        assert_eq!(offered("321", false), all[1..]);
        assert_eq!(offered("4096", false), all[1..]);
        for (iterations, condition) in
            [("0", false), ("1", false), ("4097", false), ("-1", false), ("8", true)]
        {
            assert_eq!(
                offered(iterations, condition),
                [None],
                "{iterations} iterations, condition: {condition}"
            );
        }
    }
}
