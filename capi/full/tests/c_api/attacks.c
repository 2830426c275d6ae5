/* What crosses the line and is wrong becomes an error: attacks MODEL.onnx */
#include "check.h"

static float image[8 * 28 * 28];
static int64_t shape[4] = {1, 1, 28, 28};

/* NULL in the place of objects and of places for results. */
static void nulls(kiln_engine_t *engine, kiln_context_t *context) {
    kiln_engine_t *none = NULL;
    kiln_bytes_t *bytes = NULL;
    DLManagedTensorVersioned *out = NULL;
    DLTensor t = floats(image, shape, 4);
    REFUSED(kiln_engine_open("x", 1, NULL, NULL), KILN_ERROR_INVALID_ARGUMENT, "engine is NULL");
    REFUSED(kiln_engine_open(NULL, 3, NULL, &none), KILN_ERROR_INVALID_ARGUMENT, "path is NULL");
    REFUSED(kiln_engine_open("", 0, NULL, &none), KILN_ERROR_INVALID_ARGUMENT, "path is empty");
    REFUSED(kiln_engine_open("/nothing/there", KILN_CSTR, NULL, &none), KILN_ERROR_INVALID_ARGUMENT, "/nothing/there");
    REFUSED(kiln_engine_from_bytes(NULL, 7, NULL, &none), KILN_ERROR_INVALID_ARGUMENT, "data is NULL");
    REFUSED(kiln_engine_from_bytes("nonsense", 8, NULL, &none), KILN_ERROR_INVALID_ARGUMENT, "");
    REFUSED(kiln_engine_from_bytes(NULL, 0, NULL, &none), KILN_ERROR_INVALID_ARGUMENT, "");
    REFUSED(kiln_context_create(NULL, &context), KILN_ERROR_INVALID_ARGUMENT, "engine is NULL");
    TRUE(context == NULL);
    REFUSED(kiln_context_create(engine, NULL), KILN_ERROR_INVALID_ARGUMENT, "context is NULL");
    REFUSED(kiln_context_run(NULL), KILN_ERROR_INVALID_ARGUMENT, "context is NULL");
    REFUSED(kiln_context_wait(NULL), KILN_ERROR_INVALID_ARGUMENT, "context is NULL");
    REFUSED(kiln_context_enqueue(NULL, NULL), KILN_ERROR_INVALID_ARGUMENT, "context is NULL");
    REFUSED(kiln_context_set_input(NULL, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "context is NULL");
    REFUSED(kiln_context_output(NULL, "logits", 6, &out), KILN_ERROR_INVALID_ARGUMENT, "context is NULL");
    REFUSED(kiln_engine_inspect(NULL, &bytes), KILN_ERROR_INVALID_ARGUMENT, "engine is NULL");
    REFUSED(kiln_refitter_create(NULL, NULL), KILN_ERROR_INVALID_ARGUMENT, "refitter is NULL");
    REFUSED(kiln_builder_build(NULL, NULL, NULL), KILN_ERROR_INVALID_ARGUMENT, "build is NULL");
    REFUSED(kiln_builder_set_backend(NULL, "cpu", 3), KILN_ERROR_INVALID_ARGUMENT, "builder is NULL");
    REFUSED(kiln_engine_io(engine, 0, NULL), KILN_ERROR_INVALID_ARGUMENT, "io is NULL");
    TRUE(kiln_engine_io_count(NULL) == 0 && kiln_engine_name(NULL, NULL) == NULL && kiln_bytes_size(NULL) == 0);
    TRUE(kiln_bytes_data(NULL) == NULL && kiln_error_code(NULL) == KILN_OK && !kiln_error_is_cancelled(NULL));
    TRUE(kiln_error_message(NULL, NULL) == NULL && kiln_error_cause_count(NULL) == 0);
    kiln_engine_destroy(NULL);
    kiln_context_destroy(NULL);
    kiln_model_destroy(NULL);
    kiln_builder_destroy(NULL);
    kiln_build_destroy(NULL);
    kiln_refitter_destroy(NULL);
    kiln_header_destroy(NULL);
    kiln_canceller_destroy(NULL);
    kiln_bytes_destroy(NULL);
    kiln_error_destroy(NULL);
    kiln_tensor_destroy(NULL);
}

/* Sizes of structs: of older programs, of newer ones, and nonsense. */
static void sizes(const kiln_engine_t *engine) {
    union {
        kiln_options_t options;
        unsigned char bytes[256];
    } given;
    kiln_bytes_t *json = NULL;
    memset(&given, 0, sizeof given);
    for (size_t size = sizeof(size_t); size <= sizeof given; size += sizeof(size_t)) {
        given.options.struct_size = size;
        OK(kiln_backends(&given.options, &json));
        kiln_bytes_destroy(json);
    }
    given.bytes[sizeof given - 1] = 1;
    given.options.struct_size = sizeof given;
    REFUSED(kiln_backends(&given.options, &json), KILN_ERROR_INVALID_ARGUMENT, "compiled for a newer version");
    TRUE(json == NULL);
    const size_t wrong[] = {0, 1, sizeof(size_t) - 1, 4097, (size_t)-1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        given.options.struct_size = wrong[i];
        REFUSED(kiln_backends(&given.options, &json), KILN_ERROR_INVALID_ARGUMENT, "struct_size");
    }
    memset(&given, 0, sizeof given);
    given.options.struct_size = sizeof(kiln_options_t);
    given.options.level = 9;
    REFUSED(kiln_backends(&given.options, &json), KILN_ERROR_INVALID_ARGUMENT, "level is 9");
    /* What an older program has no room for is not written. */
    union {
        kiln_io_t io;
        unsigned char bytes[sizeof(kiln_io_t)];
    } found;
    memset(&found, 0xEE, sizeof found);
    size_t old = offsetof(kiln_io_t, mode);
    found.io.struct_size = old;
    OK(kiln_engine_io(engine, 0, &found.io));
    TRUE(found.io.name_length == 5 && memcmp(found.io.name, "input", 5) == 0);
    for (size_t i = old; i < sizeof found; i++) {
        TRUE(found.bytes[i] == 0xEE);
    }
    found.io.struct_size = sizeof found.io;
    REFUSED(kiln_engine_io(engine, 2, &found.io), KILN_ERROR_INVALID_ARGUMENT, "no input or output 2");
}

/* Names and paths. */
static void strings(kiln_engine_t *engine, kiln_context_t *context) {
    DLTensor t = floats(image, shape, 4);
    int64_t dims[4];
    size_t ndim = 4;
    REFUSED(kiln_context_set_input(context, "in\xffput", 6, &t), KILN_ERROR_INVALID_ARGUMENT, "not UTF-8: byte 2");
    REFUSED(kiln_context_set_input(context, "\xc3", 1, &t), KILN_ERROR_INVALID_ARGUMENT, "not UTF-8");
    REFUSED(kiln_context_set_input(context, "inputs", 6, &t), KILN_ERROR_INVALID_ARGUMENT, "no input \"inputs\"");
    REFUSED(kiln_context_set_input(context, NULL, 4, &t), KILN_ERROR_INVALID_ARGUMENT, "name is NULL");
    REFUSED(kiln_context_set_input(context, "input", (size_t)-2, &t), KILN_ERROR_INVALID_ARGUMENT, "more than memory");
    REFUSED(kiln_context_bind(context, "x", 1, &t), KILN_ERROR_INVALID_ARGUMENT, "no input \"x\"");
    REFUSED(kiln_context_infer_shape(context, "x", 1, dims, &ndim), KILN_ERROR_INVALID_STATE, "");
    REFUSED(kiln_context_output_shape(context, "x", 1, dims, &ndim), KILN_ERROR_INVALID_ARGUMENT, "no output \"x\"");
    REFUSED(kiln_context_output_shape(context, "logits", 6, dims, &ndim), KILN_ERROR_INVALID_STATE, "run the context");
    REFUSED(kiln_engine_profile_shape(engine, 0, "y", 1, 0, dims, &ndim), KILN_ERROR_INVALID_ARGUMENT, "it has input");
    REFUSED(kiln_engine_profile_shape(engine, 1, "input", 5, 0, dims, &ndim), KILN_ERROR_INVALID_ARGUMENT, "no profile 1");
    REFUSED(kiln_engine_profile_shape(engine, 0, "input", 5, 3, dims, &ndim), KILN_ERROR_INVALID_ARGUMENT, "which is 3");
    ndim = 2;
    REFUSED(kiln_engine_profile_shape(engine, 0, "input", 5, 0, dims, &ndim), KILN_ERROR_INVALID_ARGUMENT, "room for 2");
    TRUE(ndim == 4);
    REFUSED(kiln_context_set_profile(context, 7), KILN_ERROR_INVALID_ARGUMENT, "no profile 7");
    REFUSED(kiln_context_set_profile(context, -2), KILN_ERROR_INVALID_ARGUMENT, "-2");
}

/* Tensors of wrong types, shapes, strides and devices. */
static void tensors(kiln_context_t *context) {
    DLTensor t = floats(image, shape, 4);
    REFUSED(kiln_context_set_input(context, "input", 5, NULL), KILN_ERROR_INVALID_ARGUMENT, "NULL");
    t.dtype.bits = 16;
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "f16");
    t.dtype.bits = 64;
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "64 bits");
    t = floats(image, shape, 4);
    t.dtype.lanes = 4;
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "4 lanes");
    t = floats(image, shape, 3);
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "");
    t = floats(image, shape, -1);
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "-1 dimensions");
    t = floats(image, shape, INT32_MAX);
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "dimensions");
    t = floats(image, NULL, 4);
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "shape is NULL");
    t = floats(NULL, shape, 4);
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "data is NULL");
    int64_t negative[4] = {1, 1, -28, 28}, huge[4] = {INT64_MAX, INT64_MAX, 2, 2}, other[4] = {1, 1, 28, 27};
    t = floats(image, negative, 4);
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "negative");
    t = floats(image, huge, 4);
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "larger than memory");
    t = floats(image, other, 4);
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "27");
    t = floats(image, shape, 4);
    t.byte_offset = UINT64_MAX;
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "byte_offset");
    t = floats(image, shape, 4);
    t.device.device_type = kDLCUDA;
    REFUSED(kiln_context_set_input(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "device of type 2");
    REFUSED(kiln_context_bind(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "device of type 2");
    t = floats(image, shape, 4);
    int64_t strides[4] = {784, 784, 1, 28};
    t.strides = strides;
    REFUSED(kiln_context_bind(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "strides");
    t = tensor(image, kDLInt, 32, shape, 4);
    REFUSED(kiln_context_bind(context, "input", 5, &t), KILN_ERROR_INVALID_ARGUMENT, "i32");
    int64_t large[4] = {9, 1, 28, 28}, flat[1] = {10};
    REFUSED(kiln_context_set_input_shape(context, "input", 5, large, 65), KILN_ERROR_INVALID_ARGUMENT, "65");
    REFUSED(kiln_context_set_input_shape(context, "input", 5, NULL, 4), KILN_ERROR_INVALID_ARGUMENT, "NULL");
    REFUSED(kiln_context_run(context), KILN_ERROR_INVALID_STATE, "input");
    t = floats(image, shape, 4);
    OK(kiln_context_set_input(context, "input", 5, &t));
    float few[4];
    flat[0] = 4;
    t = floats(few, flat, 1);
    OK(kiln_context_bind(context, "logits", 6, &t));
    kiln_error_t *error = kiln_context_run(context);
    TRUE(error != NULL && strstr(kiln_error_message(error, NULL), "logits") != NULL);
    kiln_error_destroy(error);
    OK(kiln_context_bind(context, "logits", 6, NULL));
    OK(kiln_context_run(context));
}

static int freed;

static void freeing(DLManagedTensorVersioned *self) {
    freed++;
    (void)self;
}

/* Tensors that are given away are freed, refused ones too. */
static void gifts(kiln_context_t *context) {
    DLManagedTensorVersioned gift;
    memset(&gift, 0, sizeof gift);
    gift.version.major = 1;
    gift.deleter = freeing;
    gift.dl_tensor = floats(image, shape, 4);
    OK(kiln_context_give_input(context, "input", 5, &gift));
    OK(kiln_context_run(context));
    OK(kiln_context_give_input(context, "input", 5, &gift));
    OK(kiln_context_run(context));
    OK(kiln_context_clear_inputs(context));
    TRUE(freed >= 1);
    freed = 0;
    gift.version.major = 2;
    REFUSED(kiln_context_give_input(context, "input", 5, &gift), KILN_ERROR_INVALID_ARGUMENT, "DLPack 2");
    gift.version.major = 1;
    REFUSED(kiln_context_give_input(context, "other", 5, &gift), KILN_ERROR_INVALID_ARGUMENT, "other");
    REFUSED(kiln_context_give_input(context, "\xff", 1, &gift), KILN_ERROR_INVALID_ARGUMENT, "UTF-8");
    gift.dl_tensor.dtype.bits = 1;
    REFUSED(kiln_context_give_input(context, "input", 5, &gift), KILN_ERROR_INVALID_ARGUMENT, "1 bits");
    REFUSED(kiln_context_give_input(context, "input", 5, NULL), KILN_ERROR_INVALID_ARGUMENT, "NULL");
    TRUE(freed >= 4);
}

/* Options of builds. */
static void builds(const char *path) {
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    kiln_model_t *model = NULL;
    DLDataType type = {kDLFloat, 64, 1};
    OK(kiln_builder_create(&builder));
    REFUSED(kiln_model_from_bytes("no model", 8, NULL, 0, &model), KILN_ERROR_INVALID_ARGUMENT, "the model in memory");
    OK(kiln_model_open(path, KILN_CSTR, &model));
    REFUSED(kiln_builder_set(builder, "nothing", 7, "1", 1), KILN_ERROR_INVALID_ARGUMENT, "no option \"nothing\"");
    REFUSED(kiln_builder_set(builder, "fuse", 4, "maybe", 5), KILN_ERROR_INVALID_ARGUMENT, "not a switch");
    REFUSED(kiln_builder_permit_type(builder, type), KILN_ERROR_INVALID_ARGUMENT, "64 bits");
    REFUSED(kiln_builder_set_refit(builder, 3), KILN_ERROR_INVALID_ARGUMENT, "refit is 3");
    REFUSED(kiln_builder_set_sparsity(builder, -1), KILN_ERROR_INVALID_ARGUMENT, "sparsity is -1");
    REFUSED(kiln_builder_set_constraints(builder, 5), KILN_ERROR_INVALID_ARGUMENT, "constraints are 5");
    REFUSED(kiln_builder_set_memory_pool_limit(builder, 3, 1), KILN_ERROR_INVALID_ARGUMENT, "pool is 3");
    REFUSED(kiln_builder_set_optimization_level(builder, 6), KILN_ERROR_INVALID_ARGUMENT, "0 to 5");
    REFUSED(kiln_builder_set_timing_cache(builder, "x", 1), KILN_ERROR_INVALID_ARGUMENT, "timing cache");
    REFUSED(kiln_builder_set_range(builder, "x", 1, 2.0f, 1.0f), KILN_ERROR_INVALID_ARGUMENT, "range");
    REFUSED(kiln_builder_set_io(builder, "input", 5, NULL, "hwc9", 4), KILN_ERROR_INVALID_ARGUMENT, "hwc9");
    REFUSED(kiln_builder_set_shape(builder, 1, "input", 5, shape, shape, shape, 4), KILN_ERROR_INVALID_ARGUMENT, "no profile 1");
    REFUSED(kiln_builder_set_shape(builder, 0, "input", 5, NULL, NULL, NULL, 4), KILN_ERROR_INVALID_ARGUMENT, "NULL");
    OK(kiln_builder_set_backend(builder, "none", 4));
    REFUSED(kiln_builder_build(builder, model, &build), KILN_ERROR_INVALID_ARGUMENT, "no backend \"none\"");
    TRUE(build == NULL);
    OK(kiln_builder_set_backend(builder, "cpu", 3));
    OK(kiln_builder_set_shape(builder, 0, "nowhere", 7, shape, shape, shape, 4));
    REFUSED(kiln_builder_build(builder, model, &build), KILN_ERROR_INVALID_ARGUMENT, "no such input");
    kiln_model_destroy(model);
    kiln_builder_destroy(builder);
}

/* Refits. */
static void refits(kiln_engine_t *engine) {
    kiln_refitter_t *refitter = NULL;
    kiln_bytes_t *plan = NULL;
    int64_t one[1] = {1};
    float value = 1;
    bool set = true;
    DLTensor t = floats(&value, one, 1);
    OK(kiln_refitter_create(engine, &refitter));
    REFUSED(kiln_refitter_set(refitter, "nothing", 7, &t), KILN_ERROR_INVALID_ARGUMENT, "nothing");
    REFUSED(kiln_refitter_set(refitter, "conv1.bias", KILN_CSTR, &t), KILN_ERROR_INVALID_ARGUMENT, "conv1.bias");
    REFUSED(kiln_refitter_set_role(refitter, "conv1", 5, 7, &t), KILN_ERROR_INVALID_ARGUMENT, "role is 7");
    REFUSED(kiln_refitter_set_role(refitter, "conv9", 5, KILN_ROLE_BIAS, &t), KILN_ERROR_INVALID_ARGUMENT, "conv9");
    REFUSED(kiln_refitter_set_file(refitter, "/nothing", KILN_CSTR, NULL), KILN_ERROR_INVALID_ARGUMENT, "/nothing");
    OK(kiln_refitter_unset(refitter, "conv1.bias", KILN_CSTR, &set));
    TRUE(!set);
    OK(kiln_refitter_plan(refitter, &plan));
    REFUSED(kiln_refitter_refit(refitter, NULL), KILN_ERROR_INVALID_STATE, "was taken");
    kiln_refitter_destroy(refitter);
    REFUSED(kiln_refitter_of_plan("x", 1, &refitter), KILN_ERROR_INVALID_ARGUMENT, "");
    kiln_bytes_destroy(plan);
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    TRUE(kiln_api_version() == (KILN_API_MAJOR << 16 | KILN_API_MINOR));
    size_t length = 0;
    TRUE(strlen(kiln_version(&length)) == length && length > 0);
    kiln_engine_t *engine = engine_of(argv[1], "cpu", NULL);
    kiln_context_t *context = NULL;
    OK(kiln_context_create(engine, &context));
    nulls(engine, context);
    sizes(engine);
    strings(engine, context);
    tensors(context);
    gifts(context);
    builds(argv[1]);
    refits(engine);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    return 0;
}
