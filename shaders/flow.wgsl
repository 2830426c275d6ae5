// Loops: tensors cut along an axis into slots, and stacked from slots.

// ---- pieces
@group(0) @binding(0) var<storage, read> args: array<u32>;
@group(0) @binding(1) var<storage, read_write> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;

// args: words of the result, bits of a unit, is it stacked, rows, length, units behind the axis, units of a slot, slots that
// are filled, is the last slot the first.

fn unit_at(at: u32) -> u32 {
    let bits = args[1];
    let each = 32u / bits;
    let word = source[at / each];
    if (bits == 32u) { return word; }
    return (word >> (at % each * bits)) & ((1u << bits) - 1u);
}

// Unit `at` of a tensor that slots are stacked to.
fn stacked(at: u32) -> u32 {
    let inner = args[5];
    let row = at / (args[4] * inner);
    let place = at / inner % args[4];
    let trips = args[7];
    if (row >= args[3] || place >= trips) { return 0u; }
    let slot = select(place, trips - 1u - place, args[8] != 0u);
    return unit_at(slot * args[6] + row * inner + at % inner);
}

// Unit `at` of the slots that a tensor is cut into.
fn cut(at: u32) -> u32 {
    let inner = args[5];
    let slot = at / args[6];
    let within = at % args[6];
    let row = within / inner;
    if (row >= args[3] || slot >= args[4]) { return 0u; }
    return unit_at((row * args[4] + slot) * inner + within % inner);
}

THREADS pieces {
    let bits = args[1];
    let each = 32u / bits;
    var word = 0u;
    for (var i = 0u; i < each; i++) {
        let at = t * each + i;
        var unit = 0u;
        if (args[2] != 0u) { unit = stacked(at); } else { unit = cut(at); }
        word |= unit << (i * bits);
    }
    result[t] = word;
}
