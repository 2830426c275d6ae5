// Sums of 4 x 4 products in registers. Written out, as drivers may keep arrays that loops index in memory.

struct Quad {
    a: vec4<Value>,
    b: vec4<Value>,
    c: vec4<Value>,
    d: vec4<Value>,
}

// The products of a row with four columns. A generated module may define its own.
fn times(row: Operand, columns: vec4<Operand>) -> vec4<Value> {
    return row * columns;
}

// The sums, and the products of four rows and four columns.
fn multiply_quad(s: Quad, rows: vec4<Operand>, columns: vec4<Operand>) -> Quad {
    return Quad(
        s.a + times(rows.x, columns),
        s.b + times(rows.y, columns),
        s.c + times(rows.z, columns),
        s.d + times(rows.w, columns),
    );
}

fn add_quad(s: Quad, t: Quad) -> Quad {
    return Quad(s.a + t.a, s.b + t.b, s.c + t.c, s.d + t.d);
}

// Stand-ins for what a generated module defines.

alias Value = f32;

alias Operand = f32;
