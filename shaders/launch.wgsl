// A kernel's view of its launch. `args` has the size of the grid, the place of the words of a fused expression, the span
// of the launch, the number of the step, and then the words of the kernel's parameters. The first ones are a uniform buffer, too:
// GPUs read these from memory of constants, and all threads at once.

@group(0) @binding(0) var<storage, read> args: array<u32>;

// Numbers behind the fields of a structure of parameters.
struct List {
    first: u32,
    count: u32,
}

// Words of the uniform buffer.
const HEAD_WORDS: u32 = 256u;

// Word k of `args`.
fn arg(k: u32) -> u32 {
    if (k < HEAD_WORDS) {
        return head[k / 4u][k % 4u];
    }
    return args[k];
}

// Word k of the parameters.
fn word(k: u32) -> u32 {
    return arg(k + 5u);
}

// Place of the words of a fused expression.
fn fused_words() -> u32 {
    return head[0].y;
}

// Number i of a list.
fn item(list: List, i: u32) -> u32 {
    return word(list.first + i);
}

// Number i of a list, where threads read different ones: memory of constants serves these one by one.
fn far_item(list: List, i: u32) -> u32 {
    return args[list.first + i + 5u];
}

fn item_i32(list: List, i: u32) -> i32 {
    return bitcast<i32>(item(list, i));
}

fn item_f32(list: List, i: u32) -> f32 {
    return bitcast<f32>(item(list, i));
}

// Place of element `at` of an array of sizes `dims`, the last one innermost, by these strides.
fn strided(dims: List, strides: List, at: u32) -> u32 {
    var rest = at;
    var found = 0u;
    for (var d = dims.count; d > 0u; d--) {
        let n = item(dims, d - 1u);
        found += rest % n * item(strides, d - 1u);
        rest = rest / n;
    }
    return found;
}

// How many threads or blocks the launch has; there may be more.
fn grid() -> u32 {
    return head[0].x;
}

// Bounds of the part of a loop that this launch does.
fn lo() -> u32 {
    return head[0].z;
}

fn hi() -> u32 {
    return head[0].w;
}

// The number of the step in its program.
fn step_number() -> u32 {
    return head[1].x;
}

// The number of a block, of a dispatch that may be folded into rows.
fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.y * count.x + id.x;
}

// Stand-ins for what a generated module declares.

@group(0) @binding(1) var<uniform> head: array<vec4<u32>, 64>;
