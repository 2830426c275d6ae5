/* A layer with a native form for the driver of tests: rolls a vector by `by` elements, by copies within the device. What the host
 * passes is checked and counted; `kiln_test_fail` makes a function fail. */
#include "kiln_plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* attach, detach, enqueue, enqueue while a graph is recorded, wrong calls. */
extern KILN_EXPORT uint64_t kiln_test_counts[5];
extern KILN_EXPORT int kiln_test_fail;
uint64_t kiln_test_counts[5];
int kiln_test_fail;

enum { ATTACH, DETACH, ENQUEUE, RECORDED, WRONG };

static const kiln_host *host;
static int instance;
typedef int (*copy_function)(uint64_t to, uint64_t from, size_t n, void *stream);

struct state {
    uint64_t from, to;
    int64_t n;
    copy_function copy;
};

static int32_t refuse(kiln_error *err, int32_t code, const char *why) {
    kiln_str text = {why, strlen(why)};
    host->error_set(err, code, text);
    return code;
}

static int32_t create(const kiln_field *f, uint64_t n, kiln_layer_instance **out, kiln_error *err) {
    (void)f, (void)n, (void)err;
    *out = (kiln_layer_instance *)&instance;
    return KILN_OK;
}

static void destroy(kiln_layer_instance *i) { kiln_test_counts[WRONG] += i != (kiln_layer_instance *)&instance; }

static int64_t by(const kiln_field *f, int64_t n) { return n ? *(const int64_t *)f->data % n : 0; }

static int32_t run(kiln_layer_instance *i, const kiln_layer_call *c, kiln_error *err) {
    const kiln_host_tensor *x = c->inputs, *y = c->outputs;
    int64_t n = x->dims[0], shift = by(c->fields, n);
    (void)i, (void)err;
    for (int64_t k = 0; k < n; k++)
        ((float *)y->data)[k * y->strides[0]] = ((float *)x->data)[(k + shift) % n * x->strides[0]];
    return KILN_OK;
}

/* What a call must say, apart from its stream. */
static int wrong(kiln_layer_instance *i, const kiln_native_call *c) {
    const kiln_native_tensor *x = c->inputs, *y = c->outputs;
    return i != (kiln_layer_instance *)&instance || c->struct_size != sizeof *c || c->field_count != 1 ||
           c->fields->kind != KILN_FIELD_INT || c->input_count != 1 || c->output_count != 1 || x->dtype != 1 || y->dtype != 1 ||
           x->ndim != 1 || y->ndim != 1 || x->dims[0] != y->dims[0] || x->bytes != (uint64_t)x->dims[0] * 4 ||
           y->bytes != x->bytes || !x->address || !y->address || c->workspace_bytes != (uint64_t)x->dims[0] * 8 ||
           !c->workspace || c->device != 0 || c->reserved != 0;
}

static int32_t attach(kiln_layer_instance *i, const kiln_native_call *c, kiln_native_state **out, kiln_error *err) {
    if (kiln_test_fail == 3) return refuse(err, KILN_UNSUPPORTED, "no such device");
    if (kiln_test_fail == 4) return KILN_OK;
    const char *driver = getenv("KILN_CUDA_DRIVER");
    void *library = driver ? dlopen(driver, RTLD_NOW) : NULL;
    struct state *s = calloc(1, sizeof *s);
    kiln_test_counts[ATTACH]++;
    kiln_test_counts[WRONG] += wrong(i, c) || c->stream || c->flags || !library;
    *s = (struct state){c->inputs->address, c->outputs->address, c->inputs->dims[0], NULL};
    if (library) *(void **)&s->copy = dlsym(library, "cuMemcpyDtoDAsync_v2");
    *out = (kiln_native_state *)s;
    return KILN_OK;
}

static void detach(kiln_native_state *s) {
    kiln_test_counts[DETACH]++;
    free(s);
}

static int32_t enqueue(kiln_layer_instance *i, kiln_native_state *state, const kiln_native_call *c, kiln_error *err) {
    struct state *s = (struct state *)state;
    const kiln_native_tensor *x = c->inputs, *y = c->outputs;
    uint64_t head = (uint64_t)by(c->fields, x->dims[0]) * 4;
    kiln_test_counts[ENQUEUE]++;
    kiln_test_counts[RECORDED] += c->flags == KILN_NATIVE_RECORDING;
    kiln_test_counts[WRONG] += wrong(i, c) || !c->stream || (c->flags & ~(uint32_t)KILN_NATIVE_RECORDING);
    if (!(FLAGS & KILN_NATIVE_MOVABLE))
        kiln_test_counts[WRONG] += s->from != x->address || s->to != y->address || s->n != x->dims[0];
    if (kiln_test_fail == 1) return refuse(err, KILN_INVALID_ARGUMENT, "not on a Monday");
    if (kiln_test_fail == 2) return refuse(err, KILN_PANICKED, "as a panic of Rust says");
    if (s->copy(y->address, x->address + head, x->bytes - head, c->stream)) return refuse(err, KILN_INTERNAL, "a copy fails");
    if (head && s->copy(y->address + x->bytes - head, x->address, head, c->stream)) return refuse(err, KILN_INTERNAL, "a copy fails");
    return KILN_OK;
}

static const int64_t one = 1;
static const kiln_field_def fields[] = {
    {.name = KILN_STR("by"), .value = {.kind = KILN_FIELD_INT, .data = &one, .count = 1}},
};

static const kiln_layer_native forms[] = {
    {
        .struct_size = sizeof(kiln_layer_native),
        .device = KILN_DEVICE_CUDA,
        .flags = FLAGS,
        .tactic = KILN_STR("half"),
        .types = KILN_STR("f16:f16"),
        .enqueue = enqueue,
    },
    {
        .struct_size = sizeof(kiln_layer_native),
        .device = KILN_DEVICE_CUDA,
        .flags = FLAGS,
        .tactic = KILN_STR("never"),
        .condition = KILN_STR("i0.rank == 2"),
        .enqueue = enqueue,
    },
    {
        .struct_size = sizeof(kiln_layer_native),
        .device = KILN_DEVICE_CUDA,
        .flags = FLAGS,
        .tactic = KILN_STR("copies"),
        .attach = attach,
        .detach = detach,
        .enqueue = enqueue,
    },
    {.struct_size = sizeof(kiln_layer_native), .device = 99},
};
static const kiln_layer_native *const natives[] = {&forms[0], &forms[1], &forms[2], &forms[3]};

static const kiln_layer roll = {
    .struct_size = sizeof(kiln_layer),
    .name = KILN_STR(LAYER),
    .space = KILN_STR("native"),
    .version = KILN_STR("1"),
    .fields = fields,
    .field_count = 1,
    .types = KILN_STR("f32:f32; f16:f16"),
    .outputs = KILN_STR("[i0.d*]"),
    .workspace = KILN_STR("8 * i0.d0"),
    .tolerance = KILN_STR("exact"),
    .create = create,
    .destroy = destroy,
    .run = run,
    .natives = natives,
    .native_count = 4,
};

static const kiln_layer *const layers[] = {&roll};
static const kiln_layers_v1 table = {.struct_size = sizeof(kiln_layers_v1), .layers = layers, .layer_count = 1};

static int32_t init(const kiln_host *h, kiln_error *err) {
    (void)err;
    host = h;
    return KILN_OK;
}

static const void *get_interface(kiln_str id) {
    (void)id;
    return &table;
}

const kiln_descriptor kiln_plugin_descriptor = {
    .magic = KILN_MAGIC,
    .struct_size = sizeof(kiln_descriptor),
    .abi_major = KILN_ABI_MAJOR,
    .abi_minor = KILN_ABI_MINOR,
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("native"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
