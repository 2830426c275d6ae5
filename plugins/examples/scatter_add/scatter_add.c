/* A layer that works in place: example::ScatterAdd adds rows of updates to rows of a table.
 *
 * Inputs: table f32[n, d], rows i64[m], updates f32[m, d]. Output: the table, which is the memory of input 0. */
#include "kiln_plugin.h"

#include <string.h>

static const kiln_host *host;

static int32_t run(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *rows = &call->inputs[1], *updates = &call->inputs[2], *table = &call->outputs[0];
    (void)instance;
    if (table->ndim != 2 || rows->ndim != 1 || updates->ndim != 2 || updates->dims[0] != rows->dims[0] ||
        updates->dims[1] != table->dims[1]) {
        static const char why[] = "wants a table [n, d], rows [m] and updates [m, d]";
        kiln_str text = {why, sizeof why - 1};
        host->error_set(err, KILN_INVALID_ARGUMENT, text);
        return KILN_INVALID_ARGUMENT;
    }
    for (int64_t m = 0; m < rows->dims[0]; m++) {
        const int64_t row = ((const int64_t *)rows->data)[m * rows->strides[0]];
        if (row < 0 || row >= table->dims[0]) {
            static const char why[] = "a row number is out of range, wants 0 to the number of rows";
            kiln_str text = {why, sizeof why - 1};
            host->error_set(err, KILN_INVALID_ARGUMENT, text);
            return KILN_INVALID_ARGUMENT;
        }
        for (int64_t c = 0; c < table->dims[1]; c++)
            ((float *)table->data)[row * table->strides[0] + c * table->strides[1]] +=
                ((const float *)updates->data)[m * updates->strides[0] + c * updates->strides[1]];
    }
    return KILN_OK;
}

static const kiln_layer scatter_add = {
    .struct_size = sizeof(kiln_layer),
    .name = KILN_STR("ScatterAdd"),
    .space = KILN_STR("example"),
    .version = KILN_STR("1"),
    .doc = KILN_STR("Adds rows of updates to rows of a table, in place."),
    .types = KILN_STR("f32,i64,f32:f32"),
    .outputs = KILN_STR("[i0.d*]"),
    .aliases = KILN_STR("0:0"),
    .tolerance = KILN_STR("sum"),
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
    .min_host_minor = 8,
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("scatter_add"),
    .vendor = KILN_STR("Kiln"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
