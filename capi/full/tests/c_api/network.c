/* Networks that are written layer by layer: each function does what it says, and wrong calls are errors: network BACKEND LAYERS.so */
#include "check.h"

static const DLDataType F32 = {kDLFloat, 32, 1}, I32 = {kDLInt, 32, 1}, BOOLS = {kDLBool, 8, 1}, F16 = {kDLFloat, 16, 1};

static kiln_network_t *network(const char *name) {
    kiln_network_t *net = NULL;
    OK(kiln_network_create(name, KILN_CSTR, false, &net));
    return net;
}

static int32_t input(kiln_network_t *net, const char *name, DLDataType type, int64_t size) {
    int32_t t = KILN_NO_TENSOR;
    OK(kiln_network_add_input(net, name, KILN_CSTR, type, &size, size == 0 ? 0 : 1, &t));
    return t;
}

static kiln_params_t *text(const char *name, const char *value) {
    kiln_params_t *params = NULL;
    OK(kiln_params_create(&params));
    OK(kiln_params_set_text(params, name, KILN_CSTR, value, KILN_CSTR));
    return params;
}

static int32_t layer(kiln_network_t *net, const char *kind, int32_t a, int32_t b, kiln_params_t *params) {
    int32_t inputs[2] = {a, b}, number = -7, output = -7, again = -7;
    OK(kiln_network_add_layer(net, kind, KILN_CSTR, inputs, b == KILN_NO_TENSOR ? 1 : 2, params, &number, &output));
    OK(kiln_network_layer_output(net, number, 0, &again));
    TRUE(number >= 0 && output >= 0 && again == output);
    kiln_params_destroy(params);
    return output;
}

static kiln_context_t *context(kiln_network_t *net, const char *backend, kiln_engine_t **engine, void (*more)(kiln_builder_t *)) {
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    kiln_context_t *made = NULL;
    OK(kiln_model_of_network(net, &model));
    kiln_network_destroy(net);
    OK(kiln_builder_create(&builder));
    OK(kiln_builder_set_backend(builder, backend, KILN_CSTR));
    OK(kiln_builder_set(builder, "estimates", KILN_CSTR, "1", KILN_CSTR));
    if (more != NULL) {
        more(builder);
    }
    OK(kiln_builder_build(builder, model, &build));
    OK(kiln_build_engine(build, NULL, engine));
    OK(kiln_context_create(*engine, &made));
    kiln_build_destroy(build);
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
    return made;
}

static void result(kiln_context_t *c, const char *name, const float *wanted, int count) {
    DLManagedTensorVersioned *t = NULL;
    OK(kiln_context_output(c, name, KILN_CSTR, &t));
    const float *found = t->dl_tensor.data;
    for (int i = 0; i < count; i++) {
        if (found[i] != wanted[i]) {
            FAIL("%s[%d] is %g, wanted %g", name, i, (double)found[i], (double)wanted[i]);
        }
    }
    kiln_tensor_destroy(t);
}

static void set(kiln_context_t *c, const char *name, DLTensor t) {
    OK(kiln_context_set_input(c, name, KILN_CSTR, &t));
}

/* y = x summed by a loop n times; z = p ? x + x : x * x. */
static void flow(const char *backend) {
    kiln_network_t *net = network("flow");
    int32_t x = input(net, "x", F32, 3), n = input(net, "n", I32, 0), p = input(net, "p", BOOLS, 0);
    int32_t loop = -1, recurrence = -1, sum = -1, last = -1, all = -1, output = -1, one = 1;
    OK(kiln_network_add_loop(net, &loop));
    OK(kiln_network_add_trip_limit(net, loop, n, KILN_TRIP_COUNT));
    REFUSED(kiln_network_add_trip_limit(net, loop, n, 5), KILN_ERROR_INVALID_ARGUMENT, "KILN_TRIP_WHILE");
    OK(kiln_network_add_recurrence(net, loop, x, &recurrence, &sum));
    int32_t next = layer(net, "elementwise", sum, x, text("op", "sum"));
    OK(kiln_network_set_layer(net, recurrence, NULL, &one, &next, 1));
    OK(kiln_network_add_loop_output(net, loop, sum, KILN_LOOP_LAST, 0, NULL, &last));
    REFUSED(kiln_network_add_loop_output(net, loop, sum, 9, 0, NULL, &last), KILN_ERROR_INVALID_ARGUMENT, "KILN_LOOP_LAST");
    OK(kiln_network_mark_output(net, last, "y", KILN_CSTR));
    int32_t branch = -1, passed = -1, chosen = -1;
    OK(kiln_network_add_conditional(net, &branch));
    OK(kiln_network_set_condition(net, branch, p));
    OK(kiln_network_add_if_input(net, branch, x, &passed));
    int32_t twice = layer(net, "elementwise", passed, passed, text("op", "sum"));
    int32_t square = layer(net, "elementwise", passed, passed, text("op", "prod"));
    OK(kiln_network_add_if_output(net, branch, twice, square, &chosen));
    OK(kiln_network_mark_output(net, chosen, "z", KILN_CSTR));
    /* Each element of x, doubled, the last one first. */
    int32_t each = -1, three = -1, loop2 = -1;
    int32_t length = 3;
    int64_t none = 0;
    DLTensor scalar = tensor(&length, kDLInt, 32, &none, 0);
    OK(kiln_network_add_weights(net, NULL, 0, &scalar, &three));
    OK(kiln_network_add_loop(net, &loop2));
    OK(kiln_network_add_trip_limit(net, loop2, three, KILN_TRIP_COUNT));
    OK(kiln_network_add_iterator(net, loop2, x, 0, true, &each));
    int32_t doubled = layer(net, "elementwise", each, each, text("op", "sum"));
    OK(kiln_network_add_loop_output(net, loop2, doubled, KILN_LOOP_CONCATENATE, 0, &all, &output));
    OK(kiln_network_set_layer(net, all, NULL, &one, &three, 1));
    OK(kiln_network_layer_output(net, all, 0, &output));
    OK(kiln_network_mark_output(net, output, "r", KILN_CSTR));

    kiln_engine_t *engine = NULL;
    kiln_context_t *c = context(net, backend, &engine, NULL);
    float data[3] = {1, 2, 5};
    int64_t dims = 3;
    set(c, "x", floats(data, &dims, 1));
    for (int32_t trips = 0; trips < 4; trips += 3) {
        bool condition = trips == 0;
        set(c, "n", tensor(&trips, kDLInt, 32, &none, 0));
        set(c, "p", tensor(&condition, kDLBool, 8, &none, 0));
        OK(kiln_context_run(c));
        float y[3], z[3], r[3];
        for (int i = 0; i < 3; i++) {
            y[i] = data[i] * (float)(1 + trips);
            z[i] = condition ? data[i] + data[i] : data[i] * data[i];
            r[i] = 2 * data[2 - i];
        }
        result(c, "y", y, 3);
        result(c, "z", z, 3);
        result(c, "r", r, 3);
    }
    kiln_context_destroy(c);
    kiln_engine_destroy(engine);
}

static void debugged(kiln_builder_t *builder) {
    OK(kiln_builder_set_refit(builder, KILN_REFIT_ALL));
}

/* Names, types, values of all kinds, and a refit by the name that weights were given. */
static void settings(const char *backend) {
    kiln_network_t *net = network("settings");
    int32_t x = input(net, "x", F32, 4), number = -1, scaled = -1, clipped = -1, hidden = -1;
    float scale[1] = {2}, shift[1] = {-1};
    int64_t one = 1;
    DLTensor s = floats(scale, &one, 1), b = floats(shift, &one, 1);
    kiln_params_t *params = text("mode", "uniform");
    OK(kiln_params_set_tensor(params, "scale", KILN_CSTR, &s));
    OK(kiln_params_set_tensor(params, "shift", KILN_CSTR, &b));
    int64_t shape[4] = {1, 4, 1, 1};
    kiln_params_t *reshape = NULL;
    OK(kiln_params_create(&reshape));
    OK(kiln_params_set_ints(reshape, "reshape_dims", KILN_CSTR, shape, 4));
    int32_t wide = layer(net, "shuffle", x, KILN_NO_TENSOR, reshape);
    OK(kiln_network_add_layer(net, "scale", KILN_CSTR, &wide, 1, params, &number, &scaled));
    kiln_params_destroy(params);
    OK(kiln_network_set_layer_name(net, number, "scaling", KILN_CSTR));
    OK(kiln_network_set_weights_name(net, number, KILN_ROLE_SCALE, "factor", KILN_CSTR));
    REFUSED(kiln_network_set_weights_name(net, number, 40, "factor", KILN_CSTR), KILN_ERROR_INVALID_ARGUMENT, "the role is 40");
    OK(kiln_network_set_layer_precision(net, number, F32));
    OK(kiln_network_set_layer_output_type(net, number, 0, F32));
    kiln_params_t *clip = text("type", "clip");
    OK(kiln_params_set_float(clip, "alpha", KILN_CSTR, -0.5));
    OK(kiln_params_set_int(clip, "beta", KILN_CSTR, 6));
    OK(kiln_network_add_layer(net, "activation", KILN_CSTR, &scaled, 1, clip, &hidden, &clipped));
    kiln_params_destroy(clip);
    kiln_params_t *more = NULL;
    OK(kiln_params_create(&more));
    OK(kiln_params_set_float(more, "beta", KILN_CSTR, 5));
    OK(kiln_network_set_layer(net, hidden, more, NULL, NULL, 0));
    kiln_params_destroy(more);
    kiln_params_t *reduce = text("op", "sum");
    OK(kiln_params_set_int(reduce, "axes", KILN_CSTR, 1 << 2 | 1 << 3));
    OK(kiln_params_set_bool(reduce, "keep_dims", KILN_CSTR, false));
    int32_t y = layer(net, "reduce", clipped, KILN_NO_TENSOR, reduce);
    OK(kiln_network_set_tensor_name(net, clipped, "clipped", KILN_CSTR));
    OK(kiln_network_set_range(net, clipped, -1, 6));
    OK(kiln_network_mark_debug(net, clipped));
    DLDataType type;
    int64_t dims[4];
    size_t count = 4;
    OK(kiln_network_tensor_type(net, y, &type, dims, &count));
    TRUE(count == 2 && dims[0] == 1 && dims[1] == 4 && type.code == kDLFloat && type.bits == 32);
    count = 1;
    REFUSED(kiln_network_tensor_type(net, y, NULL, dims, &count), KILN_ERROR_INVALID_ARGUMENT, "room for 1");
    OK(kiln_network_mark_output(net, y, "y", KILN_CSTR));
    kiln_params_t *cast = NULL;
    OK(kiln_params_create(&cast));
    OK(kiln_params_set_type(cast, "to", KILN_CSTR, I32));
    int32_t whole = layer(net, "cast", y, KILN_NO_TENSOR, cast);
    OK(kiln_network_tensor_type(net, whole, &type, dims, &count));
    TRUE(type.code == kDLInt && type.bits == 32);
    OK(kiln_network_mark_output(net, whole, NULL, 0));
    OK(kiln_network_set_tensor_type(net, y, F16));
    OK(kiln_network_set_tensor_type(net, y, F32));

    kiln_engine_t *engine = NULL;
    kiln_context_t *c = context(net, backend, &engine, debugged);
    float data[4] = {0, 1, 2, 30}, wanted[4] = {-0.5F, 1, 3, 5}, after[4] = {-0.5F, 0.5F, 2, 5};
    int64_t four = 4;
    set(c, "x", floats(data, &four, 1));
    OK(kiln_context_run(c));
    result(c, "y", wanted, 4);
    kiln_bytes_t *names = NULL;
    OK(kiln_engine_describe(engine, &names));
    TRUE(strstr(kiln_bytes_data(names), "clipped") != NULL);
    kiln_bytes_destroy(names);
    kiln_refitter_t *refitter = NULL;
    scale[0] = 1.5F;
    OK(kiln_refitter_create(engine, &refitter));
    OK(kiln_refitter_set(refitter, "factor", KILN_CSTR, &s));
    OK(kiln_refitter_refit(refitter, NULL));
    kiln_refitter_destroy(refitter);
    OK(kiln_context_run(c));
    result(c, "y", after, 4);
    kiln_context_destroy(c);
    kiln_engine_destroy(engine);
}

/* A resize by scales and a size that a plug-in's field gives. */
static void lists(const char *backend, const char *library) {
    kiln_network_t *net = network("lists");
    int64_t dims[4] = {1, 1, -1, 2};
    int32_t x = -1;
    OK(kiln_network_add_input(net, "x", KILN_CSTR, F32, dims, 4, &x));
    OK(kiln_network_set_dimension_name(net, x, 2, "height", KILN_CSTR));
    REFUSED(kiln_network_set_dimension_name(net, x, 4, "depth", KILN_CSTR), KILN_ERROR_INVALID_ARGUMENT, "no dimension 4");
    double scales[4] = {1, 1, 1, 2};
    kiln_params_t *params = text("mode", "nearest");
    OK(kiln_params_set_floats(params, "size", KILN_CSTR, scales, 4));
    int32_t y = layer(net, "resize", x, KILN_NO_TENSOR, params);
    OK(kiln_network_mark_output(net, y, "y", KILN_CSTR));
    OK(kiln_load_layers(library, KILN_CSTR, NULL, NULL));
    float ones[4] = {1, 2, 1, 2}, rms = 3.5355339F;
    int64_t width = 4;
    DLTensor scale = floats(ones, &width, 1);
    int32_t inputs[2] = {y, -1}, normed = -1;
    OK(kiln_network_add_weights(net, "scale", KILN_CSTR, &scale, &inputs[1]));
    kiln_params_t *fields = NULL;
    OK(kiln_params_create(&fields));
    OK(kiln_params_set_float(fields, "eps", KILN_CSTR, 1e-9));
    OK(kiln_network_add_plugin(net, "example", KILN_CSTR, "RowNorm", KILN_CSTR, NULL, 0, inputs, 2, fields, NULL, &normed));
    OK(kiln_network_mark_output(net, normed, "n", KILN_CSTR));
    const int bad = KILN_ERROR_FAILED_COMPUTATION, absent = KILN_ERROR_UNSUPPORTED_STATE;
    REFUSED(kiln_network_add_plugin(net, "example", KILN_CSTR, "NoSuch", KILN_CSTR, NULL, 0, inputs, 2, fields, NULL, NULL), absent, "NoSuch");
    REFUSED(kiln_network_add_plugin(net, "example", KILN_CSTR, "RowNorm", KILN_CSTR, "77", KILN_CSTR, inputs, 2, fields, NULL, NULL), absent, "77");
    OK(kiln_params_set_float(fields, "eps", KILN_CSTR, -1));
    REFUSED(kiln_network_add_plugin(net, "example", KILN_CSTR, "RowNorm", KILN_CSTR, NULL, 0, inputs, 2, fields, NULL, NULL), bad, "above 0");
    kiln_params_destroy(fields);
    kiln_engine_t *engine = NULL;
    kiln_context_t *c = context(net, backend, &engine, NULL);
    float data[2] = {3, 4}, wanted[4] = {3, 3, 4, 4};
    dims[2] = 1;
    set(c, "x", floats(data, dims, 4));
    OK(kiln_context_run(c));
    result(c, "y", wanted, 4);
    DLManagedTensorVersioned *t = NULL;
    OK(kiln_context_output(c, "n", KILN_CSTR, &t));
    for (int i = 0; i < 4; i++) {
        float off = ((const float *)t->dl_tensor.data)[i] - wanted[i] / rms * ones[i];
        TRUE(off < 1e-5F && off > -1e-5F);
    }
    kiln_tensor_destroy(t);
    kiln_context_destroy(c);
    kiln_engine_destroy(engine);
}

static void wrong(void) {
    kiln_network_t *net = network("wrong"), *other = NULL;
    kiln_params_t *params = NULL;
    int32_t x = input(net, "x", F32, 4), out = -5;
    const int code = KILN_ERROR_INVALID_ARGUMENT;
    int64_t size = 4;
    REFUSED(kiln_network_create("n", KILN_CSTR, false, NULL), code, "network is NULL");
    REFUSED(kiln_network_add_input(NULL, "y", KILN_CSTR, F32, &size, 1, &out), code, "network is NULL");
    REFUSED(kiln_network_add_input(net, "y", KILN_CSTR, F32, &size, 65, &out), code, "65 numbers");
    REFUSED(kiln_network_add_input(net, "y", KILN_CSTR, F32, &size, 1, NULL), code, "tensor is NULL");
    REFUSED(kiln_network_add_input(net, "x", KILN_CSTR, F32, &size, 1, &out), code, "used twice");
    REFUSED(kiln_network_add_layer(net, "concolution", KILN_CSTR, &x, 1, NULL, NULL, NULL), code, "convolution");
    REFUSED(kiln_network_add_layer(net, "unary", KILN_CSTR, &out, 1, NULL, NULL, NULL), code, "no tensor -5");
    REFUSED(kiln_network_add_layer(net, "unary", KILN_CSTR, NULL, 1, NULL, NULL, NULL), code, "inputs is NULL");
    REFUSED(kiln_network_add_layer(net, "unary", KILN_CSTR, &x, 5000, NULL, NULL, NULL), code, "at most 4096");
    REFUSED(kiln_network_layer_output(net, 3, 0, &out), code, "no layer 3");
    REFUSED(kiln_network_mark_output(net, 9, NULL, 0), code, "no tensor 9");
    REFUSED(kiln_network_add_trip_limit(net, 0, x, KILN_TRIP_COUNT), code, "no loop 0");
    REFUSED(kiln_network_set_condition(net, 2, x), code, "no conditional 2");
    params = text("op", "expp");
    REFUSED(kiln_network_add_layer(net, "unary", KILN_CSTR, &x, 1, params, NULL, NULL), code, "one of exp log");
    OK(kiln_params_set_int(params, "op", KILN_CSTR, 3));
    REFUSED(kiln_network_add_layer(net, "unary", KILN_CSTR, &x, 1, params, NULL, NULL), code, "wanted a text");
    OK(kiln_params_set_text(params, "op", KILN_CSTR, "exp", KILN_CSTR));
    OK(kiln_params_set_float(params, "speed", KILN_CSTR, 3));
    REFUSED(kiln_network_add_layer(net, "unary", KILN_CSTR, &x, 1, params, NULL, NULL), code, "no parameter \"speed\"; they have op");
    REFUSED(kiln_params_set_tensor(params, "op", KILN_CSTR, NULL), code, "NULL");
    REFUSED(kiln_params_set_floats(params, "op", KILN_CSTR, NULL, 3), code, "NULL");
    DLDataType odd = {77, 3, 1};
    REFUSED(kiln_params_set_type(params, "op", KILN_CSTR, odd), code, "code 77");
    kiln_params_destroy(params);
    params = text("ops", "none");
    int32_t two[2] = {x, x};
    REFUSED(kiln_network_add_layer(net, "matrix_multiply", KILN_CSTR, two, 2, params, NULL, NULL), code, "two operations");
    kiln_params_destroy(params);
    params = NULL;
    OK(kiln_params_create(&params));
    OK(kiln_params_set_int(params, "axes", KILN_CSTR, -1));
    REFUSED(kiln_network_add_layer(net, "reduce", KILN_CSTR, &x, 1, params, NULL, NULL), code, "not negative");
    kiln_params_destroy(params);
    kiln_bytes_t *kinds = NULL;
    OK(kiln_network_kinds(&kinds));
    TRUE(strstr(kiln_bytes_data(kinds), "\"pooling\":[") != NULL);
    kiln_bytes_destroy(kinds);
    kiln_model_t *model = NULL;
    REFUSED(kiln_model_of_network(NULL, &model), code, "network is NULL");
    OK(kiln_model_of_network(net, &model));
    TRUE(kiln_model_io_count(model) == 1);
    kiln_model_destroy(model);
    OK(kiln_network_create("strong", KILN_CSTR, true, &other));
    int32_t a = input(other, "a", F32, 4), b = input(other, "b", F16, 4);
    int32_t both[2] = {a, b};
    params = text("op", "sum");
    REFUSED(kiln_network_add_layer(other, "elementwise", KILN_CSTR, both, 2, params, NULL, NULL), KILN_ERROR_INVALID_CONFIG, "f16");
    kiln_params_destroy(params);
    kiln_network_destroy(other);
    kiln_network_destroy(net);
    kiln_network_destroy(NULL);
    kiln_params_destroy(NULL);
}

typedef struct {
    int answers, freed;
} script_t;

static int32_t batch(void *user, kiln_batch_t *b) {
    script_t *s = user;
    float data[4] = {1, 2, 3, 4};
    int64_t four = 4;
    DLTensor t = floats(data, &four, 1);
    if (s->answers-- > 0) {
        OK(kiln_batch_set(b, "x", KILN_CSTR, &t));
        OK(kiln_batch_set(b, "x", KILN_CSTR, &t));
        REFUSED(kiln_batch_set(b, "x", KILN_CSTR, NULL), KILN_ERROR_INVALID_ARGUMENT, "NULL");
        return KILN_BATCH_FILLED;
    }
    return s->answers < -1 ? -3 : KILN_BATCH_END;
}

static void freed(void *user) {
    ((script_t *)user)->freed++;
}

/* Ranges come from batches; a function that refuses ends the build. */
static void calibration(const char *backend) {
    kiln_network_t *net = network("calibration");
    int32_t x = input(net, "x", F32, 4);
    int32_t y = layer(net, "elementwise", x, x, text("op", "sum"));
    OK(kiln_network_set_tensor_name(net, y, "doubled", KILN_CSTR));
    OK(kiln_network_mark_output(net, y, NULL, 0));
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    kiln_bytes_t *table = NULL;
    script_t script = {2, 0};
    OK(kiln_model_of_network(net, &model));
    kiln_network_destroy(net);
    OK(kiln_builder_create(&builder));
    OK(kiln_builder_set_backend(builder, backend, KILN_CSTR));
    OK(kiln_builder_set(builder, "estimates", KILN_CSTR, "1", KILN_CSTR));
    OK(kiln_builder_build(builder, model, &build));
    REFUSED(kiln_build_calibration_table(build, &table), KILN_ERROR_INVALID_STATE, "measured no ranges");
    kiln_build_destroy(build);
    REFUSED(kiln_builder_set_calibration(builder, "guess", KILN_CSTR, batch, &script, freed), KILN_ERROR_INVALID_ARGUMENT, "minmax");
    TRUE(script.freed == 1);
    OK(kiln_builder_set_calibration(builder, "minmax", KILN_CSTR, batch, &script, freed));
    OK(kiln_builder_build(builder, model, &build));
    OK(kiln_build_calibration_table(build, &table));
    TRUE(strstr(kiln_bytes_data(table), "x: ") != NULL && strstr(kiln_bytes_data(table), "doubled: ") != NULL);
    kiln_bytes_destroy(table);
    kiln_build_destroy(build);
    kiln_error_t *error = kiln_builder_build(builder, model, &build);
    TRUE(error != NULL && strstr(kiln_error_message(error, NULL), "returned -3") != NULL && kiln_error_is_cancelled(error));
    kiln_error_destroy(error);
    OK(kiln_builder_set_calibration(builder, NULL, 0, NULL, NULL, NULL));
    TRUE(script.freed == 2);
    OK(kiln_builder_build(builder, model, &build));
    kiln_build_destroy(build);
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
}

int main(int argc, char **argv) {
    TRUE(argc > 2);
    flow(argv[1]);
    settings(argv[1]);
    lists(argv[1], argv[2]);
    wrong();
    calibration(argv[1]);
    return 0;
}
