// A layer in C++17 that finds how large its results are: example::Compact keeps the elements above a limit.
//
// Input: f32[n]. Outputs: the kept elements f32[k] and their places i32[k]. Each form is there: the reference form `run`, kernels in
// CUDA C++ and WGSL of two launches, and a native form for wgpu, which is called twice in each run.
// Kernels that find sizes came with this version.
#define KILN_LEAST_HOST_MINOR 11
#include "kiln_layer.hpp"

namespace {

// The layer with its field.
class Compact {
  public:
    explicit Compact(const kiln::Fields &fields) : limit_(static_cast<float>(fields.number(0))) {
        if (!(limit_ == limit_)) throw std::invalid_argument("field \"limit\" is not a number");
    }

    void run(const kiln_layer_call &call) const {
        const kiln_host_tensor &x = call.inputs[0], &kept = call.outputs[0], &places = call.outputs[1];
        if (x.ndim != 1) throw std::invalid_argument("wants a vector, found " + std::to_string(x.ndim) + " dimensions");
        int64_t found = 0;
        for (int64_t i = 0; i < x.dims[0]; i++) {
            const float v = static_cast<const float *>(x.data)[i * x.strides[0]];
            if (!(v > limit_)) continue;
            static_cast<float *>(kept.data)[found * kept.strides[0]] = v;
            static_cast<int32_t *>(places.data)[found * places.strides[0]] = static_cast<int32_t>(i);
            found++;
        }
        kept.dims[0] = places.dims[0] = found;
    }

    // Puts one launch of the kernel into the stream of a call: the one that finds the size, or the other.
    void enqueue(const kiln_native_call &call) const;

  private:
    float limit_;
};

// 256 threads have a part of the vector each. The first launch leaves in the workspace where each part's results begin.
const char cuda[] = R"(
extern "C" __global__ void count(const float *x, unsigned int *sizes, void *workspace, Params p) {
    __shared__ unsigned int sums[256];
    const unsigned int t = threadIdx.x, part = (p.n + 255u) / 256u;
    unsigned int mine = 0;
    for (unsigned int i = t * part; i < min((t + 1u) * part, p.n); i++) mine += x[i] > p.limit;
    sums[t] = mine;
    __syncthreads();
    if (t == 0) {
        unsigned int sum = 0;
        for (int k = 0; k < 256; k++) {
            ((unsigned int *)workspace)[k] = sum;
            sum += sums[k];
        }
        sizes[0] = sum;
    }
}
extern "C" __global__ void fill(const float *x, float *kept, int *places, void *workspace, Params p) {
    const unsigned int t = threadIdx.x, part = (p.n + 255u) / 256u;
    unsigned int to = ((const unsigned int *)workspace)[t];
    for (unsigned int i = t * part; i < min((t + 1u) * part, p.n); i++) {
        if (x[i] > p.limit) {
            kept[to] = x[i];
            places[to++] = (int)i;
        }
    }
}
)";

const char wgsl[] = R"(
var<workgroup> sums: array<u32, 256>;
@compute @workgroup_size(256) fn count(@builtin(local_invocation_index) t: u32) {
    let part = (params.n + 255u) / 256u;
    var mine = 0u;
    for (var i = t * part; i < min((t + 1u) * part, params.n); i++) { mine += u32(i0[i] > params.limit); }
    sums[t] = mine;
    workgroupBarrier();
    if t == 0u {
        var sum = 0u;
        for (var k = 0u; k < 256u; k++) {
            workspace[k] = sum;
            sum += sums[k];
        }
        sizes[0] = sum;
    }
}
@compute @workgroup_size(256) fn fill(@builtin(local_invocation_index) t: u32) {
    let part = (params.n + 255u) / 256u;
    var to = workspace[t];
    for (var i = t * part; i < min((t + 1u) * part, params.n); i++) {
        if i0[i] > params.limit {
            o0[to] = i0[i];
            o1[to] = i32(i);
            to++;
        }
    }
}
)";

// A native form declares its arrays itself.
const char head_of_count[] = R"(
struct Params { n: u32, limit: f32 }
@group(0) @binding(0) var<storage, read> params: Params;
@group(0) @binding(1) var<storage, read_write> i0: array<f32>;
@group(0) @binding(2) var<storage, read_write> workspace: array<u32>;
@group(0) @binding(3) var<storage, read_write> sizes: array<u32>;
@group(0) @binding(4) var<storage, read_write> o0: array<f32>;
@group(0) @binding(5) var<storage, read_write> o1: array<i32>;
)";

void Compact::enqueue(const kiln_native_call &call) const {
    static const std::string text = std::string(head_of_count) + wgsl;
    const kiln_wgpu_stream &stream = *static_cast<const kiln_wgpu_stream *>(call.stream);
    const bool counting = (call.flags & KILN_NATIVE_COUNTING) != 0;
    const kiln_native_tensor &x = call.inputs[0];
    uint32_t words[2] = {static_cast<uint32_t>(x.dims[0]), 0};
    std::memcpy(&words[1], &limit_, sizeof limit_);
    // A binding that a launch does not use may be any memory: an empty vector has none of its own.
    const uint64_t any = call.workspace, in = x.address ? x.address : any;
    const uint64_t memory[] = {in, call.workspace, counting ? call.sizes : any, counting ? any : call.outputs[0].address,
                               counting ? any : call.outputs[1].address};
    kiln_wgpu_dispatch d{};
    d.struct_size = sizeof d;
    d.groups[0] = d.groups[1] = d.groups[2] = 1;
    d.source = {text.data(), text.size()};
    d.entry = kiln::view(counting ? "count" : "fill");
    d.words = words;
    d.word_count = 2;
    d.memory = memory;
    d.memory_count = 5;
    if (stream.dispatch(stream.ctx, &d) != KILN_OK) throw std::runtime_error("the host refuses the dispatch");
}

const double zero = 0.0;

// C++17 has no designated initializers: functions fill in the tables, and what they leave out is zero.
kiln_layer_kernel kernel(uint32_t language, kiln_str source, kiln_str block) {
    kiln_layer_kernel k{};
    k.struct_size = sizeof k;
    k.language = language;
    k.tactic = KILN_STR("parts");
    k.source = source;
    k.entry = KILN_STR("fill");
    k.grid = KILN_STR("select(k > 0, 1, 0)");
    k.block = block;
    k.params = KILN_STR("u32 n = i0.d0; f32 limit = limit");
    k.count_entry = KILN_STR("count");
    k.count_grid = KILN_STR("1");
    k.count_block = block;
    return k;
}

const kiln_field_def fields[] = {kiln::field("limit", "Elements above it are kept.", zero)};
const kiln_layer_kernel kernels_of[] = {kernel(KILN_LANGUAGE_CUDA, KILN_STR(cuda), KILN_STR("256")),
                                        kernel(KILN_LANGUAGE_WGSL, KILN_STR(wgsl), kiln_str{nullptr, 0})};
const kiln_layer_kernel *const kernels[] = {&kernels_of[0], &kernels_of[1]};

const kiln_layer_native native =
    kiln::native<Compact>(KILN_DEVICE_WGPU, "stream", KILN_NATIVE_MOVABLE | KILN_NATIVE_COUNTS);
const kiln_layer_native *const natives[] = {&native};

kiln_layer compact() {
    kiln_layer l = kiln::layer<Compact>("Compact");
    l.space = KILN_STR("example");
    l.doc = KILN_STR("The elements above a limit, and their places.");
    l.fields = fields;
    l.field_count = 1;
    l.types = KILN_STR("f32:f32,i32");
    l.outputs = KILN_STR("[k <= i0.d0]; [k <= i0.d0]");
    l.workspace = KILN_STR("1024");
    l.tolerance = KILN_STR("exact");
    l.kernels = kernels;
    l.kernel_count = 2;
    l.natives = natives;
    l.native_count = 1;
    return l;
}

const kiln_layer layer = compact();

} // namespace

KILN_EXPORT_LAYERS("compact", "Kiln", "1.0.0", &layer);
