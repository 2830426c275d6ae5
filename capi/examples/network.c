/* Writes LeNet layer by layer and classifies images: network WEIGHTS.npz IMAGES.f32 COUNT [BACKEND] [int8]
 *
 * Prints a digit a line. With int8 layers may run in 8 bits: their ranges are measured on the images, in batches of four. */
#include "common.h"
#include "kiln.h"

static char *archive;
static long archive_size;

/* The elements of an array that an archive of NumPy holds as it is. */
static float *array(const char *name) {
    size_t length = strlen(name);
    for (long at = 0; at + 30 + (long)length < archive_size; at++) {
        const unsigned char *entry = (const unsigned char *)archive + at;
        if (memcmp(entry, "PK\3\4", 4) == 0 && (size_t)(entry[26] | entry[27] << 8) == length + 4 &&
            memcmp(entry + 30, name, length) == 0) {
            const unsigned char *array = entry + 30 + length + 4 + (entry[28] | entry[29] << 8);
            return (float *)(void *)(array + 10 + (array[8] | array[9] << 8));
        }
    }
    fprintf(stderr, "%s is not in the archive\n", name);
    exit(1);
}

/* Parameters with one tensor, or with the two of a layer that has weights and bias. */
static kiln_params_t *weights(const char *layer, int64_t *shape, int32_t ndim) {
    kiln_params_t *params = NULL;
    char name[64];
    check(kiln_params_create(&params), "parameters");
    snprintf(name, sizeof name, "%s.weight", layer);
    DLTensor kernel = floats(array(name), shape, ndim);
    check(kiln_params_set_tensor(params, "kernel", KILN_CSTR, &kernel), name);
    snprintf(name, sizeof name, "%s.bias", layer);
    DLTensor bias = floats(array(name), shape, 1);
    check(kiln_params_set_tensor(params, "bias", KILN_CSTR, &bias), name);
    return params;
}

static int32_t add(kiln_network_t *net, const char *kind, int32_t input, kiln_params_t *params) {
    int32_t output = KILN_NO_TENSOR;
    check(kiln_network_add_layer(net, kind, KILN_CSTR, &input, 1, params, NULL, &output), kind);
    kiln_params_destroy(params);
    return output;
}

static int32_t relu(kiln_network_t *net, int32_t input) {
    kiln_params_t *params = NULL;
    check(kiln_params_create(&params), "parameters");
    check(kiln_params_set_text(params, "type", KILN_CSTR, "relu", KILN_CSTR), "type");
    return add(net, "activation", input, params);
}

static int32_t convolution(kiln_network_t *net, int32_t input, const char *name, int64_t maps, int64_t channels) {
    int64_t shape[4] = {maps, channels, 5, 5}, window[2] = {5, 5}, half[2] = {2, 2};
    kiln_params_t *params = weights(name, shape, 4), *pool = NULL;
    check(kiln_params_set_int(params, "maps", KILN_CSTR, maps), "maps");
    check(kiln_params_set_ints(params, "kernel_size", KILN_CSTR, window, 2), "kernel_size");
    int32_t found = relu(net, add(net, "convolution", input, params));
    check(kiln_params_create(&pool), "parameters");
    check(kiln_params_set_text(pool, "type", KILN_CSTR, "max", KILN_CSTR), "type");
    check(kiln_params_set_ints(pool, "window_size", KILN_CSTR, half, 2), "window_size");
    check(kiln_params_set_ints(pool, "stride", KILN_CSTR, half, 2), "stride");
    return add(net, "pooling", found, pool);
}

static int32_t dense(kiln_network_t *net, int32_t input, const char *name, int64_t outputs, int64_t inputs) {
    int64_t shape[2] = {outputs, inputs};
    kiln_params_t *params = weights(name, shape, 2);
    check(kiln_params_set_int(params, "outputs", KILN_CSTR, outputs), "outputs");
    return add(net, "fully_connected", input, params);
}

typedef struct {
    float *images;
    int count, next;
} batches_t;

static int32_t next_batch(void *user, kiln_batch_t *batch) {
    batches_t *all = user;
    int64_t shape[4] = {4, 1, 28, 28};
    if (all->next + 4 > all->count) {
        return KILN_BATCH_END;
    }
    DLTensor images = floats(all->images + 784 * all->next, shape, 4);
    check(kiln_batch_set(batch, "input", KILN_CSTR, &images), "batch");
    all->next += 4;
    return KILN_BATCH_FILLED;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: network WEIGHTS.npz IMAGES.f32 COUNT [BACKEND] [int8]\n");
        return 2;
    }
    FILE *file = fopen(argv[1], "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (archive_size = ftell(file)) <= 0) {
        fprintf(stderr, "%s: cannot read it\n", argv[1]);
        return 1;
    }
    fclose(file);
    archive = malloc((size_t)archive_size);
    read_file(argv[1], 0, archive, (size_t)archive_size);
    int count = atoi(argv[3]);
    batches_t batches = {malloc((size_t)count * 784 * sizeof(float)), count, 0};
    read_file(argv[2], 0, batches.images, (size_t)count * 784 * sizeof(float));

    const DLDataType f32 = {kDLFloat, 32, 1}, i8 = {kDLInt, 8, 1};
    const int64_t any[4] = {-1, 1, 28, 28}, one[4] = {1, 1, 28, 28}, usual[4] = {4, 1, 28, 28}, most[4] = {8, 1, 28, 28};
    kiln_network_t *net = NULL;
    int32_t x = KILN_NO_TENSOR;
    check(kiln_network_create("lenet", KILN_CSTR, false, &net), "network");
    check(kiln_network_add_input(net, "input", KILN_CSTR, f32, any, 4, &x), "input");
    x = convolution(net, x, "conv1", 20, 1);
    x = convolution(net, x, "conv2", 50, 20);
    x = relu(net, dense(net, x, "fc1", 128, 800));
    x = dense(net, x, "fc2", 10, 128);
    check(kiln_network_mark_output(net, x, "logits", KILN_CSTR), "output");
    free(archive);

    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    kiln_engine_t *engine = NULL;
    kiln_context_t *context = NULL;
    check(kiln_model_of_network(net, &model), "model");
    check(kiln_builder_create(&builder), "builder");
    check(kiln_builder_set_backend(builder, argc > 4 ? argv[4] : "cpu", KILN_CSTR), "backend");
    check(kiln_builder_set(builder, "estimates", KILN_CSTR, "1", KILN_CSTR), "estimates");
    check(kiln_builder_set_shape(builder, 0, "input", KILN_CSTR, one, usual, most, 4), "shapes");
    if (argc > 5) {
        check(kiln_builder_permit_type(builder, i8), "int8");
        check(kiln_builder_set(builder, "narrowing", KILN_CSTR, "everywhere", KILN_CSTR), "narrowing");
        check(kiln_builder_set_calibration(builder, "entropy", KILN_CSTR, next_batch, &batches, NULL), "calibration");
    }
    check(kiln_builder_build(builder, model, &build), "build");
    if (argc > 5) {
        kiln_bytes_t *table = NULL;
        check(kiln_build_calibration_table(build, &table), "table");
        fprintf(stderr, "%s", kiln_bytes_data(table));
        kiln_bytes_destroy(table);
    }
    check(kiln_build_engine(build, NULL, &engine), "engine");
    check(kiln_context_create(engine, &context), "context");
    for (int i = 0; i < count; i++) {
        int64_t shape[4] = {1, 1, 28, 28};
        DLTensor input = floats(batches.images + 784 * i, shape, 4);
        DLManagedTensorVersioned *logits = NULL;
        check(kiln_context_set_input(context, "input", KILN_CSTR, &input), "input");
        check(kiln_context_run(context), "run");
        check(kiln_context_output(context, "logits", KILN_CSTR, &logits), "output");
        printf("%d\n", greatest(logits->dl_tensor.data, 10));
        kiln_tensor_destroy(logits);
    }
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    kiln_build_destroy(build);
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
    kiln_network_destroy(net);
    free(batches.images);
    return 0;
}
