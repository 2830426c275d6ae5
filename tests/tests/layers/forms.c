/* Layers whose forms use what few layers need: formats in memory, outputs in place, sizes that are found, and wrong forms of each. */
#include "kiln_plugin.h"

#include <string.h>

static const kiln_host *host;

static int32_t refuse(kiln_error *err, const char *why) {
    kiln_str text = {why, strlen(why)};
    host->error_set(err, KILN_INVALID_ARGUMENT, text);
    return KILN_INVALID_ARGUMENT;
}

/* y[n, c, ...] = (c + 1) * x[n, c, ...]; a vector is multiplied by 1. */
static int32_t planes(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t d[4] = {1, 1, 1, 1}, s[4] = {0, 0, 0, 0}, t[4] = {0, 0, 0, 0};
    (void)instance;
    if (x->ndim > 4) return refuse(err, "wants at most 4 dimensions");
    for (uint32_t i = 0; i < x->ndim; i++) d[i] = x->dims[i], s[i] = x->strides[i], t[i] = y->strides[i];
    for (int64_t a = 0; a < d[0]; a++)
        for (int64_t b = 0; b < d[1]; b++)
            for (int64_t c = 0; c < d[2]; c++)
                for (int64_t e = 0; e < d[3]; e++)
                    ((float *)y->data)[a * t[0] + b * t[1] + c * t[2] + e * t[3]] =
                        ((const float *)x->data)[a * s[0] + b * s[1] + c * s[2] + e * s[3]] * (float)(b + 1);
    return KILN_OK;
}

#define PLANES_PARAMS KILN_STR("u32 c = i0.d1; u32 plane = i0.d2 * i0.d3; u32 all = i0.d0 * ceildiv(i0.d1, 32) * 32 * i0.d2 * i0.d3")

static const kiln_layer_kernel planes_wgsl = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_WGSL,
    .tactic = KILN_STR("vectors"),
    .types = KILN_STR("f32@hwc:f32@chw32"),
    .source = KILN_STR(
        "@compute @workgroup_size(64) fn planes(@builtin(global_invocation_id) at: vec3<u32>) {\n"
        "    let i = at.x;\n"
        "    if i >= params.all { return; }\n"
        "    let lane = i % 32u; let p = i / 32u % params.plane; let block = i / 32u / params.plane;\n"
        "    let blocks = (params.c + 31u) / 32u; let n = block / blocks; let c = block % blocks * 32u + lane;\n"
        "    if c < params.c { o0[i] = i0[(n * params.plane + p) * params.c + c] * f32(c + 1u); } else { o0[i] = 0.0; }\n"
        "}\n"),
    .entry = KILN_STR("planes"),
    .grid = KILN_STR("ceildiv(i0.d0 * ceildiv(i0.d1, 32) * 32 * i0.d2 * i0.d3, 64)"),
    .params = PLANES_PARAMS,
};
static const kiln_layer_kernel planes_cuda = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_CUDA,
    .tactic = KILN_STR("vectors"),
    .types = KILN_STR("f32@hwc:f32@chw32"),
    .source = KILN_STR(
        "extern \"C\" __global__ void planes(const float *x, float *y, Params p) {\n"
        "    const unsigned int i = blockIdx.x * 64u + threadIdx.x;\n"
        "    if (i >= p.all) return;\n"
        "    const unsigned int lane = i % 32u, at = i / 32u % p.plane, block = i / 32u / p.plane;\n"
        "    const unsigned int blocks = (p.c + 31u) / 32u, n = block / blocks, c = block % blocks * 32u + lane;\n"
        "    y[i] = c < p.c ? x[(n * p.plane + at) * p.c + c] * (float)(c + 1u) : 0.0f;\n"
        "}\n"),
    .entry = KILN_STR("planes"),
    .grid = KILN_STR("ceildiv(i0.d0 * ceildiv(i0.d1, 32) * 32 * i0.d2 * i0.d3, 64)"),
    .block = KILN_STR("64"),
    .params = PLANES_PARAMS,
};
static const kiln_layer_kernel *const planes_kernels[] = {&planes_wgsl, &planes_cuda};

/* table[places[m]] += updates[m], in place. */
static int32_t add_at(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *places = &call->inputs[1], *updates = &call->inputs[2], *table = &call->outputs[0];
    (void)instance;
    if (table->ndim != 1 || places->ndim != 1 || updates->ndim != 1 || updates->dims[0] != places->dims[0])
        return refuse(err, "wants vectors, and as many places as updates");
    for (int64_t m = 0; m < places->dims[0]; m++) {
        const int32_t at = ((const int32_t *)places->data)[m * places->strides[0]];
        if (at >= 0 && at < table->dims[0])
            ((float *)table->data)[at * table->strides[0]] += ((const float *)updates->data)[m * updates->strides[0]];
    }
    return KILN_OK;
}

#define ADD_BODY                                                                                                                \
    "    for (var m = 0u; m < params.m; m++) {\n"                                                                              \
    "        let to = i1[m];\n"                                                                                                \
    "        if to >= 0 && u32(to) < params.n { o0[to] += i2[m]; }\n"                                                          \
    "    }\n"

static const kiln_layer_kernel add_wgsl = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_WGSL,
    .tactic = KILN_STR("serial"),
    .source = KILN_STR("@compute @workgroup_size(1) fn add_at() {\n" ADD_BODY "}\n"),
    .entry = KILN_STR("add_at"),
    .grid = KILN_STR("1"),
    .params = KILN_STR("u32 n = i0.d0; u32 m = i1.d0"),
};
static const kiln_layer_kernel add_cuda = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_CUDA,
    .tactic = KILN_STR("serial"),
    .source = KILN_STR("extern \"C\" __global__ void add_at(const float *x, const int *places, const float *v, float *y, Params p) {\n"
                       "    for (unsigned int m = 0; m < p.m; m++)\n"
                       "        if (x == y && places[m] >= 0 && (unsigned int)places[m] < p.n) y[places[m]] += v[m];\n"
                       "}\n"),
    .entry = KILN_STR("add_at"),
    .grid = KILN_STR("1"),
    .block = KILN_STR("1"),
    .params = KILN_STR("u32 n = i0.d0; u32 m = i1.d0"),
};
static const kiln_layer_kernel *const add_kernels[] = {&add_wgsl, &add_cuda};

/* Ways in which the native form on wgpu is wrong: the field `wrong`. */
static int32_t add_enqueue(kiln_layer_instance *i, kiln_native_state *s, const kiln_native_call *call, kiln_error *err) {
    static const char text[] =
        "@group(0) @binding(0) var<storage, read> params: array<u32>;\n"
        "@group(0) @binding(1) var<storage, read_write> o0: array<f32>;\n"
        "@group(0) @binding(2) var<storage, read_write> i1: array<i32>;\n"
        "@group(0) @binding(3) var<storage, read_write> i2: array<f32>;\n"
        "@compute @workgroup_size(1) fn add_at() {\n"
        "    for (var m = 0u; m < params[1]; m++) {\n"
        "        let to = i1[m];\n"
        "        if to >= 0 && u32(to) < params[0] { o0[to] += i2[m]; }\n"
        "    }\n"
        "}\n";
    const kiln_wgpu_stream *stream = call->stream;
    const int64_t wrong = *(const int64_t *)call->fields[0].data;
    const uint32_t words[2] = {(uint32_t)call->inputs[0].dims[0], (uint32_t)call->inputs[1].dims[0]};
    uint64_t memory[3] = {call->outputs[0].address, call->inputs[1].address, call->inputs[2].address};
    kiln_wgpu_dispatch d = {
        .struct_size = sizeof d,
        .groups = {1, 1, 1},
        .source = {text, sizeof text - 1},
        .entry = KILN_STR("add_at"),
        .words = words,
        .word_count = 2,
        .memory = memory,
        .memory_count = 3,
    };
    (void)i, (void)s;
    if (call->inputs[0].address != call->outputs[0].address) return refuse(err, "the output has another address than its alias");
    switch (wrong) {
    case 1: d.source.len = 40; break;
    case 2: memory[1] = 12345; break;
    case 3: memory[1] += 4; break;
    case 4: d.groups[1] = 70000; break;
    case 5: d.entry.ptr = "nothing", d.entry.len = 7; break;
    case 6: d.words = NULL; break;
    case 7: d.struct_size = 0; break;
    case 8: stream->copy(stream->ctx, call->outputs[0].address, call->inputs[1].address, 1 << 20); return KILN_OK;
    case 9: stream->clear(stream->ctx, call->outputs[0].address + 2, 4); return KILN_OK;
    case 10: return refuse(err, "not on a Monday");
    case 11: return KILN_PANICKED;
    }
    /* The status is passed over: the host fails the run all the same. */
    stream->dispatch(stream->ctx, &d);
    return KILN_OK;
}

static const kiln_layer_native add_native = {
    .struct_size = sizeof(kiln_layer_native),
    .device = KILN_DEVICE_WGPU,
    .flags = KILN_NATIVE_MOVABLE,
    .tactic = KILN_STR("stream"),
    .enqueue = add_enqueue,
};
static const kiln_layer_native *const add_natives[] = {&add_native};

static const int64_t no = 0;
static const kiln_field_def wrong_field[] = {
    {.name = KILN_STR("wrong"), .doc = KILN_STR("What is wrong."), .value = {.kind = KILN_FIELD_INT, .data = &no, .count = 1}},
};

/* Says that it finds at most as many elements as there are, and finds `wrong` more. */
static int32_t most(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *y = &call->outputs[0];
    (void)instance, (void)err;
    for (int64_t i = 0; i < y->dims[0]; i++) ((float *)y->data)[i * y->strides[0]] = 1;
    return KILN_OK;
}

static const kiln_layer_kernel most_wgsl = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_WGSL,
    .tactic = KILN_STR("ones"),
    .source = KILN_STR("@compute @workgroup_size(1) fn count() { sizes[0] = params.n + params.wrong; }\n"
                       "@compute @workgroup_size(1) fn fill(@builtin(workgroup_id) at: vec3<u32>) {\n"
                       "    if i0[at.x] < 1e30 { o0[at.x] = 1.0; }\n}\n"),
    .entry = KILN_STR("fill"),
    .grid = KILN_STR("k"),
    .params = KILN_STR("u32 n = i0.d0; u32 wrong = wrong"),
    .count_entry = KILN_STR("count"),
    .count_grid = KILN_STR("1"),
};
static const kiln_layer_kernel *const most_kernels[] = {&most_wgsl};

static const kiln_layer all[] = {
    {
        .struct_size = sizeof(kiln_layer),
        .name = KILN_STR("Planes"),
        .space = KILN_STR("forms"),
        .version = KILN_STR("1"),
        .types = KILN_STR("f32@hwc:f32@chw32; f32:f32"),
        .outputs = KILN_STR("[i0.d*]"),
        .tolerance = KILN_STR("exact"),
        .run = planes,
        .kernels = planes_kernels,
        .kernel_count = 2,
    },
    {
        .struct_size = sizeof(kiln_layer),
        .name = KILN_STR("AddAt"),
        .space = KILN_STR("forms"),
        .version = KILN_STR("1"),
        .types = KILN_STR("f32,i32,f32:f32"),
        .outputs = KILN_STR("[i0.d*]"),
        .aliases = KILN_STR("0:0"),
        .tolerance = KILN_STR("sum"),
        .fields = wrong_field,
        .field_count = 1,
        .run = add_at,
        .kernels = add_kernels,
        .kernel_count = 2,
        .natives = add_natives,
        .native_count = 1,
    },
    {
        .struct_size = sizeof(kiln_layer),
        .name = KILN_STR("Most"),
        .space = KILN_STR("forms"),
        .version = KILN_STR("1"),
        .types = KILN_STR("f32:f32"),
        .outputs = KILN_STR("[k <= i0.d0]"),
        .fields = wrong_field,
        .field_count = 1,
        .run = most,
        .kernels = most_kernels,
        .kernel_count = 1,
    },
};

static const kiln_layer *const layers[] = {&all[0], &all[1], &all[2]};
static const kiln_layers_v1 layer_table = {.struct_size = sizeof(kiln_layers_v1), .layers = layers, .layer_count = 3};

static int32_t init(const kiln_host *h, kiln_error *err) {
    (void)err;
    host = h;
    return KILN_OK;
}

static const void *get_interface(kiln_str id) {
    (void)id;
    return &layer_table;
}

const kiln_descriptor kiln_plugin_descriptor = {
    .magic = KILN_MAGIC,
    .struct_size = sizeof(kiln_descriptor),
    .abi_major = KILN_ABI_MAJOR,
    .abi_minor = KILN_ABI_MINOR,
    .min_host_minor = 11,
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("forms"),
    .vendor = KILN_STR("Kiln"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
