/* A layer that finds how large its results are: example::BestBoxes, non-maximum suppression.
 *
 * Inputs: boxes f32[n, 4] as x1, y1, x2, y2, and scores f32[n]. Outputs: the kept boxes, best first, and their numbers. */
#include "kiln_plugin.h"

#include <string.h>

static const kiln_host *host;
static const double half = 0.5;
static const int64_t hundred = 100;

static const kiln_field_def fields[] = {
    {
        .name = KILN_STR("overlap"),
        .doc = KILN_STR("Boxes that overlap a better one by more than this are left out: intersection over union, 0 to 1."),
        .value = {.kind = KILN_FIELD_FLOAT, .data = &half, .count = 1},
    },
    {
        .name = KILN_STR("most"),
        .doc = KILN_STR("Greatest number of boxes that are kept."),
        .value = {.kind = KILN_FIELD_INT, .data = &hundred, .count = 1},
    },
};

static int32_t refuse(kiln_error *err, const char *why) {
    kiln_str text = {why, strlen(why)};
    host->error_set(err, KILN_INVALID_ARGUMENT, text);
    return KILN_INVALID_ARGUMENT;
}

/* An instance has no state here; `create` only refuses fields. */
static int instance;

static int32_t create(const kiln_field *f, uint64_t count, kiln_layer_instance **out, kiln_error *err) {
    const double overlap = *(const double *)f[0].data;
    (void)count;
    if (!(overlap >= 0.0 && overlap <= 1.0)) return refuse(err, "field \"overlap\" wants a number from 0 to 1");
    if (*(const int64_t *)f[1].data < 0) return refuse(err, "field \"most\" wants 0 or more");
    *out = (kiln_layer_instance *)&instance;
    return KILN_OK;
}

static void destroy(kiln_layer_instance *i) { (void)i; }

static float at(const kiln_host_tensor *t, int64_t row, int64_t column) {
    return ((const float *)t->data)[row * t->strides[0] + (t->ndim > 1 ? column * t->strides[1] : 0)];
}

static float area(const kiln_host_tensor *b, int64_t n) {
    return (at(b, n, 2) - at(b, n, 0)) * (at(b, n, 3) - at(b, n, 1));
}

static float lesser(float a, float b) { return a < b ? a : b; }
static float greater(float a, float b) { return a > b ? a : b; }

static float overlap_of(const kiln_host_tensor *b, int64_t m, int64_t n) {
    const float width = lesser(at(b, m, 2), at(b, n, 2)) - greater(at(b, m, 0), at(b, n, 0));
    const float height = lesser(at(b, m, 3), at(b, n, 3)) - greater(at(b, m, 1), at(b, n, 1));
    const float both = width > 0 && height > 0 ? width * height : 0;
    const float either = area(b, m) + area(b, n) - both;
    return either > 0 ? both / either : 0;
}

static int32_t run(kiln_layer_instance *i, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *boxes = &call->inputs[0], *scores = &call->inputs[1];
    const kiln_host_tensor *kept = &call->outputs[0], *numbers = &call->outputs[1];
    const float overlap = (float)*(const double *)call->fields[0].data;
    const int64_t n = boxes->ndim > 0 ? boxes->dims[0] : 0, most = kept->dims[0];
    uint8_t *gone = call->workspace; /* One byte a box. */
    int64_t found = 0;
    (void)i;
    if (boxes->ndim != 2 || boxes->dims[1] != 4) return refuse(err, "boxes want the shape [n, 4]");
    if (scores->ndim != 1 || scores->dims[0] != n) return refuse(err, "scores want the shape [n], one for each box");
    for (int64_t b = 0; b < n; b++) gone[b] = 0;
    while (found < most) {
        int64_t best = -1;
        for (int64_t b = 0; b < n; b++)
            if (!gone[b] && (best < 0 || at(scores, b, 0) > at(scores, best, 0))) best = b;
        if (best < 0) break;
        for (int64_t c = 0; c < 4; c++)
            ((float *)kept->data)[found * kept->strides[0] + c * kept->strides[1]] = at(boxes, best, c);
        ((int64_t *)numbers->data)[found * numbers->strides[0]] = best;
        found++;
        gone[best] = 1;
        for (int64_t b = 0; b < n; b++)
            if (!gone[b] && overlap_of(boxes, best, b) > overlap) gone[b] = 1;
    }
    kept->dims[0] = found;
    numbers->dims[0] = found;
    return KILN_OK;
}

static const kiln_layer best_boxes = {
    .struct_size = sizeof(kiln_layer),
    .name = KILN_STR("BestBoxes"),
    .space = KILN_STR("example"),
    .version = KILN_STR("1"),
    .doc = KILN_STR("Boxes that no better box overlaps, best first, and their numbers."),
    .fields = fields,
    .field_count = 2,
    .types = KILN_STR("f32,f32:f32,i64"),
    .outputs = KILN_STR("[found <= min(i0.d0, most), 4]; [found <= min(i0.d0, most)]"),
    .workspace = KILN_STR("i0.d0"),
    .tolerance = KILN_STR("exact"),
    .create = create,
    .destroy = destroy,
    .run = run,
};

static const kiln_layer *const layers[] = {&best_boxes};
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
    .min_host_minor = 8,
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("nms"),
    .vendor = KILN_STR("Kiln"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
