// The contents of index inputs. IDX is the type of the indices, HIGH the upper half of one.

// ---- check
// One thread an element. Words: count of bounds, whether a value is excepted, its halves, least and greatest values.
THREADS checkINPUT {
    let v = xINPUT(t);
    let low = u32(i32(v));
    let high = HIGH;
    let k = 4u + (t % m(0u)) * 2u;
    let excepted = m(1u) == 1u && low == m(2u) && high == m(3u);
    if ((v < IDX(mi(k)) || v > IDX(mi(k + 1u))) && !excepted) {
        fault(u32(INPUT), t, low, high, m(k), m(k + 1u));
    }
}
