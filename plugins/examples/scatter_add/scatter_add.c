/* A layer that works in place: example::ScatterAdd adds rows of updates to rows of a table.
 *
 * Inputs: table f32[n, d], rows i64[m], updates f32[m, d]. Output: the table, which is the memory of input 0. Updates of one row are
 * added in their order, so that results are the same everywhere. Kernels pass over rows that the table does not have; the reference
 * form refuses them. */
#include "kiln_plugin.h"

#include <string.h>

/* Tests build it without kernels, in another namespace. */
#ifndef SPACE
#define SPACE "example"
#endif

static const kiln_host *host;

static int32_t refuse(kiln_error *err, const char *why) {
    kiln_str text = {why, strlen(why)};
    host->error_set(err, KILN_INVALID_ARGUMENT, text);
    return KILN_INVALID_ARGUMENT;
}

static int differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

/* The shape of the table; sizes that are not known are -1. */
static int32_t describe(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_sink *out, kiln_error *err) {
    const kiln_host_tensor *table = &call->inputs[0], *rows = &call->inputs[1], *updates = &call->inputs[2];
    static const char shape[] = "[i0.d*]";
    (void)instance;
    if (table->ndim != 2 || rows->ndim != 1 || updates->ndim != 2 || differ(updates->dims[0], rows->dims[0]) ||
        differ(updates->dims[1], table->dims[1]))
        return refuse(err, "wants a table [n, d], rows [m] and updates [m, d]");
    return host->sink_write(out, (const uint8_t *)shape, sizeof shape - 1);
}

static int32_t run(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *rows = &call->inputs[1], *updates = &call->inputs[2], *table = &call->outputs[0];
    (void)instance;
    if (table->ndim != 2 || rows->ndim != 1 || updates->ndim != 2 || updates->dims[0] != rows->dims[0] ||
        updates->dims[1] != table->dims[1])
        return refuse(err, "wants a table [n, d], rows [m] and updates [m, d]");
    for (int64_t m = 0; m < rows->dims[0]; m++) {
        const int64_t row = ((const int64_t *)rows->data)[m * rows->strides[0]];
        if (row < 0 || row >= table->dims[0]) return refuse(err, "a row number is out of range, wants 0 to the number of rows");
        for (int64_t c = 0; c < table->dims[1]; c++)
            ((float *)table->data)[row * table->strides[0] + c * table->strides[1]] +=
                ((const float *)updates->data)[m * updates->strides[0] + c * updates->strides[1]];
    }
    return KILN_OK;
}

#ifndef HOST_ONLY
/* A thread for each column: no two threads write to one element. */
static const kiln_layer_kernel cuda = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_CUDA,
    .tactic = KILN_STR("columns"),
    .source = KILN_STR(
        "extern \"C\" __global__ void scatter_add(const float *, const long long *rows, const float *updates, float *table, Params p) {\n"
        "    const unsigned int c = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (c >= p.columns) return;\n"
        "    for (unsigned int m = 0; m < p.updates; m++) {\n"
        "        const long long row = rows[m];\n"
        "        if (row >= 0 && row < p.rows) table[row * p.columns + c] += updates[(unsigned long long)m * p.columns + c];\n"
        "    }\n"
        "}\n"),
    .entry = KILN_STR("scatter_add"),
    .grid = KILN_STR("ceildiv(i0.d1, 64)"),
    .block = KILN_STR("64"),
    .params = KILN_STR("u32 rows = i0.d0; u32 columns = i0.d1; u32 updates = i1.d0"),
};
/* The table is the output alone: an input that is an alias has no array. */
static const kiln_layer_kernel wgsl = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_WGSL,
    .tactic = KILN_STR("columns"),
    .source = KILN_STR(
        "@compute @workgroup_size(64) fn scatter_add(@builtin(global_invocation_id) at: vec3<u32>) {\n"
        "    let c = at.x;\n"
        "    if c >= params.columns { return; }\n"
        "    for (var m = 0u; m < params.updates; m++) {\n"
        "        let row = i1[m];\n"
        "        if row >= i64(0) && row < i64(params.rows) {\n"
        "            o0[u32(row) * params.columns + c] += i2[m * params.columns + c];\n"
        "        }\n"
        "    }\n"
        "}\n"),
    .entry = KILN_STR("scatter_add"),
    .grid = KILN_STR("ceildiv(i0.d1, 64)"),
    .params = KILN_STR("u32 rows = i0.d0; u32 columns = i0.d1; u32 updates = i1.d0"),
};
static const kiln_layer_kernel *const kernels[] = {&cuda, &wgsl};
#endif

static const kiln_layer scatter_add = {
    .struct_size = sizeof(kiln_layer),
    .name = KILN_STR("ScatterAdd"),
    .space = KILN_STR(SPACE),
    .version = KILN_STR("1"),
    .doc = KILN_STR("Adds rows of updates to rows of a table, in place."),
    .types = KILN_STR("f32,i64,f32:f32"),
    .aliases = KILN_STR("0:0"),
    .tolerance = KILN_STR("sum"),
#ifndef HOST_ONLY
    .kernels = kernels,
    .kernel_count = 2,
#endif
    .describe = describe,
    .run = run,
};

static const kiln_layer *const layers[] = {&scatter_add};
static const kiln_layers_v1 layer_table = {.struct_size = sizeof(kiln_layers_v1), .layers = layers, .layer_count = 1};

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
    .min_host_minor = 11, /* Kernels with aliases came with this version. */
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("scatter_add"),
    .vendor = KILN_STR("Kiln"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
