/* A layer that is wrong in the one way that a macro asks for; it doubles its input otherwise. */
#include "kiln_plugin.h"

#include <string.h>

#ifndef KINDS
#define KINDS KILN_KIND_LAYERS
#endif
#ifndef MINOR
#define MINOR KILN_ABI_MINOR
#endif
#ifndef GET
#define GET get_interface
#endif
#ifndef TABLE_SIZE
#define TABLE_SIZE sizeof(kiln_layers_v1)
#endif
#ifndef LAYER_SIZE
#define LAYER_SIZE sizeof(kiln_layer)
#endif
#ifndef COUNT
#define COUNT 1
#endif
#ifndef ENTRY
#define ENTRY &layer.l
#endif
#ifndef NAME
#define NAME KILN_STR(LAYER)
#endif
#ifndef TYPES
#define TYPES KILN_STR("f32:f32")
#endif
#ifndef OUTPUTS
#define OUTPUTS KILN_STR("[i0.d*]")
#endif
#ifndef ALIASES
#define ALIASES {NULL, 0}
#endif
#ifndef WORKSPACE
#define WORKSPACE KILN_STR("5")
#endif
#ifndef EXPRESSION
#define EXPRESSION {NULL, 0}
#endif
#ifndef TOLERANCE
#define TOLERANCE {NULL, 0}
#endif
#ifndef FIELD_COUNT
#define FIELD_COUNT 1
#endif
#ifndef FIELD_KIND
#define FIELD_KIND KILN_FIELD_INT
#endif
#ifndef FIELD_VALUES
#define FIELD_VALUES 1
#endif
#ifndef KERNEL
#define KERNEL &kernel
#endif
#ifndef KERNEL_SIZE
#define KERNEL_SIZE sizeof(kiln_layer_kernel)
#endif
#ifndef LANGUAGE
#define LANGUAGE KILN_LANGUAGE_CUDA
#endif
#ifndef GRID
#define GRID KILN_STR("1")
#endif
#ifndef COUNT_ENTRY
#define COUNT_ENTRY {NULL, 0}
#endif
#ifndef PARAMS
#define PARAMS {NULL, 0}
#endif
#ifndef NATIVE
#define NATIVE &native
#endif
#ifndef NATIVE_SIZE
#define NATIVE_SIZE sizeof(kiln_layer_native)
#endif
#ifndef NATIVE_COUNT
#define NATIVE_COUNT 1
#endif
#ifndef NATIVE_DEVICE
#define NATIVE_DEVICE KILN_DEVICE_CUDA
#endif
#ifndef NATIVE_CONDITION
#define NATIVE_CONDITION KILN_STR("0")
#endif
#ifndef NATIVE_TYPES
#define NATIVE_TYPES {NULL, 0}
#endif
#ifndef ATTACH
#define ATTACH attach
#endif
#ifndef DETACH
#define DETACH detach
#endif
#ifndef ENQUEUE
#define ENQUEUE enqueue
#endif
#ifndef PATTERNS
#define PATTERNS {NULL, 0}
#endif
#ifndef CREATE
#define CREATE create
#endif
#ifndef DESTROY
#define DESTROY destroy
#endif
#ifndef RUN
#define RUN run
#endif
#ifndef BAD
#define BAD 0
#endif

static const kiln_host *host;
static int instance;

int32_t create(const kiln_field *f, uint64_t n, kiln_layer_instance **out, kiln_error *err);
int32_t create_nothing(const kiln_field *f, uint64_t n, kiln_layer_instance **out, kiln_error *err);
int32_t create_refuses(const kiln_field *f, uint64_t n, kiln_layer_instance **out, kiln_error *err);
void destroy(kiln_layer_instance *i);
int32_t run(kiln_layer_instance *i, const kiln_layer_call *call, kiln_error *err);
int32_t describe(kiln_layer_instance *i, const kiln_layer_call *call, kiln_sink *out, kiln_error *err);
const void *get_interface(kiln_str id);
const void *no_table(kiln_str id);

static int32_t attach(kiln_layer_instance *i, const kiln_native_call *c, kiln_native_state **out, kiln_error *err) {
    (void)i, (void)c, (void)out, (void)err;
    return KILN_OK;
}

static void detach(kiln_native_state *s) { (void)s; }

static int32_t enqueue(kiln_layer_instance *i, kiln_native_state *s, const kiln_native_call *c, kiln_error *err) {
    (void)i, (void)s, (void)c, (void)err;
    return KILN_OK;
}

static kiln_str str(const char *s) {
    kiln_str view = {s, strlen(s)};
    return view;
}

int32_t create(const kiln_field *f, uint64_t n, kiln_layer_instance **out, kiln_error *err) {
    (void)f, (void)n, (void)err;
    *out = (kiln_layer_instance *)&instance;
    return KILN_OK;
}

int32_t create_nothing(const kiln_field *f, uint64_t n, kiln_layer_instance **out, kiln_error *err) {
    (void)f, (void)n, (void)out, (void)err;
    return KILN_OK;
}

int32_t create_refuses(const kiln_field *f, uint64_t n, kiln_layer_instance **out, kiln_error *err) {
    (void)f, (void)n, (void)out;
    host->error_set(err, KILN_INVALID_ARGUMENT, str("not on a Monday"));
    return KILN_INVALID_ARGUMENT;
}

void destroy(kiln_layer_instance *i) { (void)i; }

int32_t run(kiln_layer_instance *i, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    float *to = y->data;
    (void)i;
    if (BAD == 1) return KILN_INTERNAL;
    if (BAD == 6) {
        host->error_set(err, KILN_PANICKED, str("as a panic of Rust says"));
        return KILN_PANICKED;
    }
    if (BAD == 7) return -4711;
    if (BAD == 10) return KILN_OK;
    for (int64_t n = 0; n < x->dims[0]; n++) to[n * y->strides[0]] = 2 * ((float *)x->data)[n * x->strides[0]];
    if (BAD == 2) y->dims[0] += 1;
    if (BAD == 3) y->dims[0] = -1;
    if (BAD == 4) to[x->dims[0]] = 0;
    if (BAD == 5) to[-1] = 0;
    if (BAD == 8) ((float *)x->data)[x->dims[0]] = 0;
    if (BAD == 9) ((uint8_t *)call->workspace)[call->workspace_bytes] = 0;
    if (BAD == 11) y->dims[1] = 1;
    return KILN_OK;
}

#ifdef DESCRIBE
int32_t describe(kiln_layer_instance *i, const kiln_layer_call *call, kiln_sink *out, kiln_error *err) {
    static const char text[] = DESCRIBE;
    (void)i, (void)call, (void)err;
    return host->sink_write(out, (const uint8_t *)text, sizeof text - 1);
}
#define DESCRIBES describe
#else
#define DESCRIBES NULL
#endif

static const int64_t values[2] = {1, 2};
static const kiln_field_def fields[1] = {
    {.name = KILN_STR("n"), .value = {.kind = FIELD_KIND, .data = values, .count = FIELD_VALUES}},
};

static const kiln_layer_kernel kernel = {
    .struct_size = KERNEL_SIZE,
    .language = LANGUAGE,
    .tactic = KILN_STR("k"),
    .source = KILN_STR("none"),
    .entry = KILN_STR("k"),
    .grid = GRID,
    .block = KILN_STR("1"),
    .condition = KILN_STR("0"),
    .count_entry = COUNT_ENTRY,
    .params = PARAMS,
};
static const kiln_layer_kernel *const kernels[] = {KERNEL};

static const kiln_layer_native native = {
    .struct_size = NATIVE_SIZE,
    .device = NATIVE_DEVICE,
    .tactic = KILN_STR("n"),
    .types = NATIVE_TYPES,
    .condition = NATIVE_CONDITION,
    .attach = ATTACH,
    .detach = DETACH,
    .enqueue = ENQUEUE,
};
static const kiln_layer_native *const natives[] = {NATIVE, &native};

/* More than a layer of this version, so that a larger one may be claimed. */
typedef struct larger {
    kiln_layer l;
    uint64_t more[8];
} larger;

static const larger layer = {
    .l =
        {
            .struct_size = LAYER_SIZE,
            .name = NAME,
            .space = KILN_STR("mutant"),
            .version = KILN_STR("1"),
            .fields = fields,
            .field_count = FIELD_COUNT,
            .types = TYPES,
            .outputs = OUTPUTS,
            .aliases = ALIASES,
            .workspace = WORKSPACE,
            .expression = EXPRESSION,
            .tolerance = TOLERANCE,
            .kernels = kernels,
            .kernel_count = 1,
            .create = CREATE,
            .destroy = DESTROY,
            .describe = DESCRIBES,
            .run = RUN,
            .natives = natives,
            .native_count = NATIVE_COUNT,
            .patterns = PATTERNS,
        },
};

static const kiln_layer *const layers[] = {ENTRY};
static const kiln_layers_v1 table = {.struct_size = TABLE_SIZE, .layers = layers, .layer_count = COUNT};

static int32_t init(const kiln_host *h, kiln_error *err) {
    (void)err, (void)kernel, (void)layer, (void)native, (void)attach, (void)detach, (void)enqueue;
    host = h;
    return KILN_OK;
}

const void *get_interface(kiln_str id) {
    (void)id;
    return &table;
}

const void *no_table(kiln_str id) {
    (void)id;
    return NULL;
}

const kiln_descriptor kiln_plugin_descriptor = {
    .magic = KILN_MAGIC,
    .struct_size = sizeof(kiln_descriptor),
    .abi_major = KILN_ABI_MAJOR,
    .abi_minor = MINOR,
    .kinds = KINDS,
    .name = KILN_STR("mutant"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = GET,
};
