/* A pointwise layer: example::Swish, x * sigmoid(beta * x).
 *
 * The expression is all that backends need: it is fused like Kiln's own pointwise operators. The reference form is what
 * `kiln plugin check` compares it with. */
#include "kiln_plugin.h"

#include <math.h>

static const double one = 1.0;

static const kiln_field_def fields[] = {
    {
        .name = KILN_STR("beta"),
        .doc = KILN_STR("Factor of the sigmoid's argument."),
        .value = {.kind = KILN_FIELD_FLOAT, .data = &one, .count = 1},
    },
};

/* Row-major loops over any number of dimensions: the place of element n by strides. */
static int64_t place(const kiln_host_tensor *t, int64_t n) {
    int64_t at = 0;
    for (uint32_t axis = t->ndim; axis-- > 0;) {
        at += n % t->dims[axis] * t->strides[axis];
        n /= t->dims[axis];
    }
    return at;
}

static int32_t run(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const float beta = (float)*(const double *)call->fields[0].data;
    int64_t count = 1;
    (void)instance, (void)err;
    for (uint32_t axis = 0; axis < x->ndim; axis++) count *= x->dims[axis];
    for (int64_t n = 0; n < count; n++) {
        const float v = ((const float *)x->data)[place(x, n)];
        ((float *)y->data)[place(y, n)] = v / (1.0f + expf(-beta * v));
    }
    return KILN_OK;
}

static const kiln_layer swish = {
    .struct_size = sizeof(kiln_layer),
    .name = KILN_STR("Swish"),
    .space = KILN_STR("example"),
    .version = KILN_STR("1"),
    .doc = KILN_STR("x * sigmoid(beta * x)"),
    .fields = fields,
    .field_count = 1,
    .types = KILN_STR("f32:f32"),
    .outputs = KILN_STR("[i0.d*]"),
    .patterns = KILN_STR("a = mul(i0, $beta); b = sigmoid(a); mul(i0, b) | b = sigmoid(i0); mul(i0, b)"),
    .expression = KILN_STR("x0 / (1 + exp(-beta * x0))"),
    .run = run,
};

static const kiln_layer *const layers[] = {&swish};
static const kiln_layers_v1 table = {.struct_size = sizeof(kiln_layers_v1), .layers = layers, .layer_count = 1};

static int32_t init(const kiln_host *host, kiln_error *err) {
    (void)host, (void)err;
    return KILN_OK;
}

static const void *get_interface(kiln_str id) {
    (void)id; /* A library of one kind is asked for one interface only. */
    return &table;
}

const kiln_descriptor kiln_plugin_descriptor = {
    .magic = KILN_MAGIC,
    .struct_size = sizeof(kiln_descriptor),
    .abi_major = KILN_ABI_MAJOR,
    .abi_minor = KILN_ABI_MINOR,
    .min_host_minor = 8,
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("swish"),
    .vendor = KILN_STR("Kiln"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
