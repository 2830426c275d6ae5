/* What attacks and examples leave out: headers, blobs, roles, options: surface MODEL.onnx BACKEND FOLDER LAYERS.so */
#include "check.h"

static float image[8 * 28 * 28];
static int64_t shape[4] = {1, 1, 28, 28};

static void has(kiln_bytes_t *bytes, const char *words) {
    TRUE(bytes != NULL && strlen(kiln_bytes_data(bytes)) == kiln_bytes_size(bytes));
    if (strstr(kiln_bytes_data(bytes), words) == NULL) {
        FAIL("\"%s\" is not in %s", words, kiln_bytes_data(bytes));
    }
    kiln_bytes_destroy(bytes);
}

static void *slurp(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    TRUE(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *size = (size_t)ftell(file);
    void *data = malloc(*size);
    rewind(file);
    TRUE(fread(data, 1, *size, file) == *size);
    fclose(file);
    return data;
}

static kiln_build_t *build_with(const char *path, const char *backend, void (*more)(kiln_builder_t *)) {
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    size_t size = 0;
    void *data = slurp(path, &size);
    OK(kiln_model_from_bytes(data, size, NULL, 0, &model));
    free(data);
    kiln_bytes_t *notes = NULL;
    OK(kiln_model_notes(model, &notes));
    has(notes, "[");
    kiln_io_t io;
    memset(&io, 0, sizeof io);
    io.struct_size = sizeof io;
    TRUE(kiln_model_io_count(model) == 2);
    OK(kiln_model_io(model, 1, &io));
    TRUE(io.mode == KILN_OUTPUT && io.ndim == 2 && io.dims[0] == -1 && io.dims[1] == 10);
    TRUE(io.dtype.code == kDLFloat && io.dtype.bits == 32 && memcmp(io.format, "linear", 6) == 0);
    OK(kiln_builder_create(&builder));
    OK(kiln_builder_set_backend(builder, backend, KILN_CSTR));
    OK(kiln_builder_set(builder, "estimates", 9, "1", 1));
    more(builder);
    OK(kiln_builder_build(builder, model, &build));
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
    return build;
}

static void two_profiles(kiln_builder_t *builder) {
    const int64_t few[4] = {1, 1, 28, 28}, some[4] = {2, 1, 28, 28}, many[4] = {8, 1, 28, 28};
    OK(kiln_builder_set_shape(builder, 0, "input", 5, few, NULL, NULL, 4));
    OK(kiln_builder_set_shape(builder, 1, "input", 5, some, NULL, many, 4));
    OK(kiln_builder_set_refit(builder, KILN_REFIT_ALL));
    OK(kiln_builder_set(builder, "verbosity", 9, "detailed", 8));
}

static void strip(kiln_builder_t *builder) {
    OK(kiln_builder_set_strip_weights(builder, true));
    OK(kiln_builder_set_version_compatible(builder, true));
}

static void one_weight(kiln_builder_t *builder) {
    OK(kiln_builder_add_refit_weight(builder, "conv1.bias", KILN_CSTR));
    OK(kiln_builder_add_refit_weight(builder, "fc2.bias", KILN_CSTR));
}

static void narrow(kiln_builder_t *builder) {
    DLDataType half = {kDLFloat, 16, 1};
    OK(kiln_builder_permit_type(builder, half));
    OK(kiln_builder_set(builder, "narrowing", 9, "everywhere", KILN_CSTR));
    OK(kiln_builder_set(builder, "verbosity", 9, "detailed", 8));
    OK(kiln_builder_set_io(builder, "input", 5, &half, "linear,hwc8", KILN_CSTR));
    OK(kiln_builder_set_memory_pool_limit(builder, KILN_POOL_WORKSPACE, 1 << 30));
    OK(kiln_builder_set_sparsity(builder, KILN_SPARSITY_ENABLE));
    OK(kiln_builder_set_constraints(builder, KILN_CONSTRAINTS_PREFER));
    OK(kiln_builder_set_range(builder, "input", 5, 0.0f, 1.0f));
}

static void wrong_layer(kiln_builder_t *builder) {
    DLDataType half = {kDLFloat, 16, 1};
    OK(kiln_builder_set_layer_types(builder, "no such layer", KILN_CSTR, &half, &half, 1));
}

static void tiny_pool(kiln_builder_t *builder) {
    OK(kiln_builder_set_memory_pool_limit(builder, KILN_POOL_TACTIC_DRAM, 16));
    OK(kiln_builder_set(builder, "estimates", 9, "0", 1));
}

static void refused_by(const char *path, void (*more)(kiln_builder_t *), const char *words) {
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    OK(kiln_model_open(path, KILN_CSTR, &model));
    OK(kiln_builder_create(&builder));
    OK(kiln_builder_set_backend(builder, "cpu", 3));
    OK(kiln_builder_set(builder, "estimates", 9, "1", 1));
    more(builder);
    kiln_error_t *error = kiln_builder_build(builder, model, &build);
    TRUE(error != NULL);
    int found = 0;
    for (size_t i = 0; i < kiln_error_cause_count(error); i++) {
        found |= strstr(kiln_error_cause(error, i, NULL), words) != NULL;
    }
    TRUE(found);
    kiln_error_destroy(error);
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
}

static void headers(const char *path, const char *backend, const char *folder) {
    char file[4096];
    kiln_header_t *header = NULL;
    kiln_bytes_t *json = NULL, *plan = NULL;
    bool runs = false;
    kiln_io_t io;
    snprintf(file, sizeof file, "%s/surface.kiln", folder);
    kiln_build_t *build = build_with(path, backend, two_profiles);
    OK(kiln_build_write(build, file, KILN_CSTR));
    OK(kiln_header_open(file, KILN_CSTR, &header));
    memset(&io, 0, sizeof io);
    io.struct_size = sizeof io;
    TRUE(kiln_header_io_count(header) == 2);
    OK(kiln_header_io(header, 0, &io));
    TRUE(io.name_length == 5 && io.mode == KILN_INPUT && io.is_shape_input == 0);
    OK(kiln_header_describe(header, &json));
    has(json, "\"refittable\":true");
    OK(kiln_header_check(header, NULL, &runs, &json));
    TRUE(runs);
    has(json, "\"refusal\":null");
    kiln_header_destroy(header);
    OK(kiln_build_plan(build, &plan));
    OK(kiln_header_from_bytes(kiln_bytes_data(plan), kiln_bytes_size(plan), &header));
    kiln_header_destroy(header);

    kiln_engine_t *engine = NULL;
    kiln_context_t *context = NULL;
    OK(kiln_engine_from_bytes(kiln_bytes_data(plan), kiln_bytes_size(plan), NULL, &engine));
    size_t length = 0;
    TRUE(strncmp(kiln_engine_backend(engine, &length), backend, strlen(backend)) == 0 && length == strlen(backend));
    TRUE(kiln_engine_name(engine, &length) != NULL && kiln_engine_profile_count(engine) == 2);
    OK(kiln_engine_describe(engine, &json));
    TRUE(strstr(kiln_bytes_data(json), "\"least_weight_budget\":") != NULL);
    TRUE(strstr(kiln_bytes_data(json), "\"weights_size\":0") == NULL && strstr(kiln_bytes_data(json), "\"weights_size\":") != NULL);
    TRUE(strstr(kiln_bytes_data(json), "\"stripped_weights_size\":null") != NULL);
    has(json, "\"debug_tensors\":[]");
    /* Weights of the processor are in host memory anyway. */
    kiln_error_t *refusal = kiln_engine_set_weight_budget(engine, 1000);
    TRUE(refusal != NULL);
    kiln_error_destroy(refusal);
    OK(kiln_engine_set_weight_budget(engine, 0));
    OK(kiln_engine_inspect(engine, &json));
    has(json, "TacticName");
    OK(kiln_context_create(engine, &context));
    OK(kiln_context_missing_inputs(context, &json));
    has(json, "[\"input\"]");
    int64_t two[4] = {2, 1, 28, 28}, dims[4];
    size_t ndim = 4;
    OK(kiln_context_set_input_shape(context, "input", 5, two, 4));
    OK(kiln_context_infer_shape(context, "logits", 6, dims, &ndim));
    TRUE(ndim == 2 && dims[0] == 2 && dims[1] == 10);
    OK(kiln_context_inspect(context, &json));
    has(json, "Layers");
    OK(kiln_context_set_profile(context, 0));
    kiln_error_t *error = kiln_context_infer_shape(context, "logits", 6, dims, &ndim);
    TRUE(error != NULL);
    kiln_error_destroy(error);
    OK(kiln_context_set_profile(context, 1));
    DLTensor t = floats(image, two, 4);
    OK(kiln_context_set_input(context, "input", 5, &t));
    OK(kiln_context_layer_times(context, &json));
    kiln_bytes_destroy(json);
    OK(kiln_context_run(context));
    OK(kiln_context_layer_times(context, &json));
    has(json, "\"ns\"");
    OK(kiln_context_host_layers(context, &json));
    has(json, "[");
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    kiln_bytes_destroy(plan);
    kiln_build_destroy(build);
    kiln_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.device = "9";
    options.device_length = 1;
    engine = NULL;
    error = kiln_engine_open(file, KILN_CSTR, &options, &engine);
    TRUE(error != NULL && engine == NULL);
    kiln_error_destroy(error);
    options.device = "0";
    options.weight_budget = 1000;
    error = kiln_engine_open(file, KILN_CSTR, &options, &engine);
    TRUE(error != NULL && engine == NULL);
    kiln_error_destroy(error);
    options.weight_budget = 0;
    OK(kiln_engine_open(file, KILN_CSTR, &options, &engine));
    kiln_engine_destroy(engine);
}

/* A strided tensor has the elements of the dense one. */
static void strides(const char *path, const char *backend) {
    int64_t turned[4] = {784, 784, 1, 28};
    float back[28 * 28], first[10];
    DLManagedTensorVersioned *out = NULL;
    kiln_context_t *context = NULL;
    kiln_engine_t *engine = engine_of(path, backend, NULL);
    OK(kiln_context_create(engine, &context));
    for (int y = 0; y < 28; y++) {
        for (int x = 0; x < 28; x++) {
            back[x * 28 + y] = image[y * 28 + x];
        }
    }
    DLTensor t = floats(image, shape, 4);
    OK(kiln_context_set_input(context, "input", 5, &t));
    OK(kiln_context_run(context));
    OK(kiln_context_output(context, "logits", 6, &out));
    memcpy(first, out->dl_tensor.data, sizeof first);
    kiln_tensor_destroy(out);
    t = floats(back, shape, 4);
    t.strides = turned;
    OK(kiln_context_set_input(context, "input", 5, &t));
    OK(kiln_context_run(context));
    OK(kiln_context_output(context, "logits", 6, &out));
    TRUE(memcmp(first, out->dl_tensor.data, sizeof first) == 0);
    kiln_tensor_destroy(out);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
}

static void *no_memory(void *user, uint64_t bytes, uint64_t alignment, void *stream) {
    (void)user, (void)bytes, (void)alignment, (void)stream;
    return NULL;
}

static void weights(const char *path, const char *backend) {
    kiln_engine_t *engine = NULL;
    kiln_refitter_t *refitter = NULL;
    kiln_context_t *context = NULL;
    kiln_bytes_t *json = NULL, *plan = NULL;
    kiln_build_t *build = build_with(path, backend, one_weight);
    OK(kiln_build_plan(build, &plan));
    kiln_build_destroy(build);
    int64_t ten[1] = {10};
    float bias[10] = {0, 0, 0, 1e6f}, first[20] = {0};
    int64_t twenty[1] = {20};
    DLTensor t = floats(bias, ten, 1), of_conv = floats(first, twenty, 1);
    OK(kiln_refitter_of_plan(kiln_bytes_data(plan), kiln_bytes_size(plan), &refitter));
    kiln_bytes_destroy(plan);
    OK(kiln_refitter_weights(refitter, &json));
    has(json, "\"role\":\"bias\"");
    OK(kiln_refitter_weights(refitter, &json));
    has(json, "\"ranges\":[]");
    OK(kiln_refitter_set(refitter, "fc2.bias", KILN_CSTR, &t));
    OK(kiln_refitter_set_role(refitter, "/conv1/Conv", KILN_CSTR, KILN_ROLE_BIAS, &of_conv));
    OK(kiln_refitter_missing(refitter, &json));
    has(json, "[]");
    OK(kiln_refitter_set_validation(refitter, false));
    OK(kiln_refitter_times(refitter, &json));
    has(json, "\"checked\":0.0,");
    OK(kiln_refitter_refit(refitter, &json));
    has(json, "\"replaced\":2");
    OK(kiln_refitter_times(refitter, &json));
    const char *checked = strstr(kiln_bytes_data(json), "\"checked\":");
    TRUE(checked != NULL && strtod(checked + strlen("\"checked\":"), NULL) > 0.0);
    kiln_bytes_destroy(json);
    OK(kiln_refitter_plan(refitter, &plan));
    kiln_refitter_destroy(refitter);
    OK(kiln_engine_from_bytes(kiln_bytes_data(plan), kiln_bytes_size(plan), NULL, &engine));
    kiln_bytes_destroy(plan);
    OK(kiln_context_create(engine, &context));
    t = floats(image, shape, 4);
    DLManagedTensorVersioned *out = NULL;
    OK(kiln_context_set_input(context, "input", 5, &t));
    OK(kiln_context_run(context));
    OK(kiln_context_output(context, "logits", 6, &out));
    TRUE(((const float *)out->dl_tensor.data)[3] > 1e5f);
    kiln_tensor_destroy(out);
    kiln_context_destroy(context);
    OK(kiln_engine_plan(engine, &plan));
    kiln_bytes_destroy(plan);
    kiln_engine_destroy(engine);

    build = build_with(path, backend, strip);
    OK(kiln_build_engine(build, NULL, &engine));
    kiln_build_destroy(build);
    OK(kiln_engine_describe(engine, &json));
    TRUE(strstr(kiln_bytes_data(json), "\"version_compatible\":true") != NULL);
    TRUE(strstr(kiln_bytes_data(json), "\"stripped_weights_size\":null") == NULL);
    has(json, "\"absent\":[\"");
    OK(kiln_context_create(engine, &context));
    OK(kiln_context_set_input(context, "input", 5, &t));
    REFUSED(kiln_context_run(context), KILN_ERROR_INVALID_STATE, "stripped");
    OK(kiln_refitter_create(engine, &refitter));
    OK(kiln_refitter_set_file(refitter, path, KILN_CSTR, &json));
    has(json, "\"set\":[\"");
    REFUSED(kiln_refitter_set_dynamic_range(refitter, "input", KILN_CSTR, -1.0f, 1.0f), KILN_ERROR_INVALID_ARGUMENT, "input");
    REFUSED(kiln_refitter_set_on_device(refitter, "fc2.bias", KILN_CSTR, &t, 3), KILN_ERROR_INVALID_ARGUMENT, "3 bytes");
    OK(kiln_refitter_set_stream(refitter, NULL));
    REFUSED(kiln_refitter_wait(refitter, NULL), KILN_ERROR_INVALID_STATE, "no refit was started");
    OK(kiln_refitter_start(refitter));
    REFUSED(kiln_refitter_refit(refitter, NULL), KILN_ERROR_INVALID_STATE, "kiln_refitter_wait");
    OK(kiln_refitter_wait(refitter, &json));
    TRUE(strstr(kiln_bytes_data(json), "\"replaced\":") != NULL);
    kiln_bytes_destroy(json);
    OK(kiln_refitter_refit(refitter, NULL));
    REFUSED(kiln_context_set_temporary_allocator(context, no_memory, NULL, NULL, NULL), KILN_ERROR_INVALID_ARGUMENT, "free is NULL");
    REFUSED(kiln_context_set_temporary_allocator(context, NULL, NULL, NULL, NULL), KILN_ERROR_UNSUPPORTED_STATE, "device memory");
    int handle = 0;
    void *other[1] = {&handle};
    REFUSED(kiln_context_set_aux_streams(context, NULL, 1), KILN_ERROR_INVALID_ARGUMENT, "streams is NULL");
    REFUSED(kiln_context_set_aux_streams(context, other, 1), KILN_ERROR_UNSUPPORTED_STATE, "");
    OK(kiln_context_set_aux_streams(context, NULL, 0));
    OK(kiln_context_run(context));
    kiln_refitter_destroy(refitter);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
}

/* Inputs in a format and type of their own. */
static void formats(const char *path) {
    kiln_engine_t *engine = NULL;
    kiln_context_t *context = NULL;
    kiln_io_t io;
    kiln_bytes_t *json = NULL;
    kiln_build_t *build = build_with(path, "cpu", narrow);
    OK(kiln_build_report(build, &json));
    has(json, "f16");
    OK(kiln_build_record(build, &json));
    has(json, "kiln_tactics");
    OK(kiln_build_engine(build, NULL, &engine));
    kiln_build_destroy(build);
    memset(&io, 0, sizeof io);
    io.struct_size = sizeof io;
    OK(kiln_engine_io(engine, 0, &io));
    TRUE(io.dtype.code == kDLFloat && io.dtype.bits == 16);
    OK(kiln_context_create(engine, &context));
    static uint16_t halves[28 * 28 * 8];
    size_t bytes = (io.format_length == 4 ? 8 : 1) * 28 * 28 * sizeof *halves;
    REFUSED(kiln_context_set_packed_input(context, "input", 5, shape, 4, halves, bytes - 1), KILN_ERROR_INVALID_ARGUMENT, "input");
    OK(kiln_context_set_packed_input(context, "input", 5, shape, 4, halves, bytes));
    OK(kiln_context_set_packed_outputs(context, true));
    OK(kiln_context_run(context));
    DLTensor t = tensor(halves, kDLFloat, 16, shape, 4);
    OK(kiln_context_set_input(context, "input", 5, &t));
    OK(kiln_context_run(context));
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
}

static kiln_header_t *of_cpu;

static void for_target(kiln_builder_t *builder) {
    OK(kiln_builder_set_target(builder, of_cpu));
}

/* A plan for the device of another plan; the backend of the builder must be that of the device. */
static void targets(const char *path) {
    kiln_bytes_t *plan = NULL;
    kiln_build_t *build = build_with(path, "cpu", two_profiles);
    OK(kiln_build_plan(build, &plan));
    kiln_build_destroy(build);
    OK(kiln_header_from_bytes(kiln_bytes_data(plan), kiln_bytes_size(plan), &of_cpu));
    kiln_bytes_destroy(plan);
    build = build_with(path, "cpu", for_target);
    kiln_build_destroy(build);
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    OK(kiln_model_open(path, KILN_CSTR, &model));
    OK(kiln_builder_create(&builder));
    OK(kiln_builder_set_backend(builder, "reference", KILN_CSTR));
    OK(kiln_builder_set_target(builder, of_cpu));
    REFUSED(kiln_builder_build(builder, model, &build), KILN_ERROR_INVALID_ARGUMENT, "of the backend \"cpu\"");
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
    kiln_header_destroy(of_cpu);
}

/* A network as text, whose output has the shape that an input says. */
static void shape_inputs(void) {
    const char *network = "graph \"g\" {\n  input %x: f32[6]\n  input %s: i64[2]\n  %y = reshape(%x, %s)\n  output %y\n}\n";
    const int64_t least[2] = {1, 1}, usual[2] = {2, 3}, most[2] = {6, 6};
    int64_t dims[2], two[1] = {2}, six[1] = {6}, values[2] = {3, 2};
    size_t count = 2;
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    kiln_engine_t *engine = NULL;
    kiln_context_t *context = NULL;
    kiln_options_t options;
    kiln_io_t io;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.level = KILN_PLUGINS_OFF;
    OK(kiln_model_from_bytes(network, strlen(network), NULL, 0, &model));
    OK(kiln_builder_create(&builder));
    OK(kiln_builder_set_options(builder, &options));
    OK(kiln_builder_set_backend(builder, "wgpu", KILN_CSTR));
    REFUSED(kiln_builder_build(builder, model, &build), KILN_ERROR_INVALID_ARGUMENT, "only cpu, reference");
    OK(kiln_builder_set_backend(builder, "cpu", KILN_CSTR));
    OK(kiln_builder_set(builder, "estimates", KILN_CSTR, "1", KILN_CSTR));
    OK(kiln_builder_set_values(builder, 0, "s", 1, least, usual, most, 2));
    OK(kiln_builder_build(builder, model, &build));
    OK(kiln_build_engine(build, &options, &engine));
    memset(&io, 0, sizeof io);
    io.struct_size = sizeof io;
    OK(kiln_engine_io(engine, 1, &io));
    TRUE(io.is_shape_input == 1 && io.dtype.code == kDLInt && io.dtype.bits == 64);
    OK(kiln_engine_profile_values(engine, 0, "s", 1, KILN_PROFILE_OPT, dims, &count));
    TRUE(count == 2 && dims[0] == 2 && dims[1] == 3);
    OK(kiln_context_create(engine, &context));
    DLTensor x = floats(image, six, 1), s = tensor(values, kDLInt, 64, two, 1);
    OK(kiln_context_set_input(context, "x", 1, &x));
    OK(kiln_context_set_input(context, "s", 1, &s));
    OK(kiln_context_run(context));
    OK(kiln_context_output_shape(context, "y", 1, dims, &count));
    TRUE(dims[0] == 3 && dims[1] == 2);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    kiln_build_destroy(build);
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
}

/* Differences from another backend, the layer at fault, and layers that a backend refuses. */
static void comparisons(const char *backend) {
    const char *text = "graph \"f\" { input %x: f32[1024] %a = neg(%x) %b = exp(%a) %c = abs(%b) output %c }";
    const char *names[2] = {"x", NULL};
    static float numbers[1024];
    const int64_t length[1] = {1024};
    for (int i = 0; i < 1024; i++) {
        numbers[i] = (float)(i - 512) / 77.0f;
    }
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_bytes_t *json = NULL;
    OK(kiln_model_from_bytes(text, strlen(text), NULL, 0, &model));
    OK(kiln_builder_create(&builder));
    OK(kiln_builder_set_backend(builder, backend, KILN_CSTR));
    OK(kiln_builder_set(builder, "estimates", KILN_CSTR, "1", KILN_CSTR));
    DLTensor x = floats(numbers, (int64_t *)length, 1);
    OK(kiln_builder_compare(builder, model, "reference", KILN_CSTR, names, &x, 1, 1e-3, 1e-5, true, &json));
    has(json, "\"agrees\":true");
    if (strcmp(backend, "cpu") == 0) {
        /* Bit for bit exp is the first that differs, and its neighbours are exact. */
        OK(kiln_builder_compare(builder, model, "reference", KILN_CSTR, names, &x, 1, 0, 0, true, &json));
        has(json, "\"layers\":[\"b\"]");
        OK(kiln_builder_compare(builder, model, "reference", KILN_CSTR, names, &x, 1, 0, 0, false, &json));
        has(json, "\"at_fault\":null");
    }
    REFUSED(kiln_builder_compare(builder, model, "none", KILN_CSTR, names, &x, 1, 0, 0, false, &json),
            KILN_ERROR_INVALID_ARGUMENT, "no backend \"none\"");
    REFUSED(kiln_builder_compare(builder, model, "reference", KILN_CSTR, names, &x, 1, -1, 0, false, &json),
            KILN_ERROR_INVALID_ARGUMENT, "tolerance");
    REFUSED(kiln_builder_compare(builder, model, "reference", KILN_CSTR, NULL, &x, 1, 0, 0, false, &json),
            KILN_ERROR_INVALID_ARGUMENT, "NULL");
    REFUSED(kiln_builder_compare(builder, model, "reference", KILN_CSTR, names + 1, &x, 1, 0, 0, false, &json),
            KILN_ERROR_INVALID_ARGUMENT, "NULL");
    kiln_error_t *missing =
        kiln_builder_compare(builder, model, "reference", KILN_CSTR, NULL, NULL, 0, 0, 0, false, &json);
    TRUE(missing != NULL && strstr(kiln_error_message(missing, NULL), "\"x\"") != NULL);
    kiln_error_destroy(missing);
    OK(kiln_builder_network_support(builder, model, &json));
    has(json, "\"refused\":null");
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
}

/* Layers of a library. */
static void layers(const char *library) {
    kiln_bytes_t *json = NULL;
    kiln_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.level = KILN_PLUGINS_OFF;
    kiln_error_t *error = kiln_load_layers(library, KILN_CSTR, &options, &json);
    TRUE(error != NULL && json == NULL);
    kiln_error_destroy(error);
    error = kiln_load_layers("/nothing/libkiln_layers_x.so", KILN_CSTR, NULL, NULL);
    TRUE(error != NULL);
    kiln_error_destroy(error);
    OK(kiln_load_layers(library, KILN_CSTR, NULL, &json));
    has(json, "\"version\":");
}

int main(int argc, char **argv) {
    TRUE(argc == 5);
    kiln_error_t *error = NULL;
    kiln_bytes_t *json = NULL;
    for (int i = 0; i < 8 * 28 * 28; i++) {
        image[i] = (float)(i % 89) / 89.0f;
    }
    OK(kiln_backends(NULL, &json));
    has(json, "\"name\":\"cpu\"");
    OK(kiln_backend_types("cpu", KILN_CSTR, NULL, &json));
    has(json, "\"conv\":{\"bf16\":");
    error = kiln_backend_types("none", KILN_CSTR, NULL, &json);
    TRUE(error != NULL);
    kiln_error_destroy(error);
    OK(kiln_builder_settings(&json));
    has(json, "\"name\":\"deterministic\"");
    headers(argv[1], argv[2], argv[3]);
    strides(argv[1], argv[2]);
    weights(argv[1], argv[2]);
    formats(argv[1]);
    targets(argv[1]);
    shape_inputs();
    comparisons(argv[2]);
    layers(argv[4]);
    refused_by(argv[1], wrong_layer, "no such layer");
    refused_by(argv[1], tiny_pool, "tactic-dram");
    return 0;
}
