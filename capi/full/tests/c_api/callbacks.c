/* Callbacks are called with their pointer, and freed once: callbacks MODEL.onnx BACKEND */
#include "check.h"

static float image[28 * 28];
static int64_t shape[4] = {1, 1, 28, 28};

typedef struct {
    int calls;
    int freed;
    int last;
    size_t bytes;
    int64_t dims[2];
    void *memory;
    char text[512];
} seen_t;

static void freeing(void *user) {
    ((seen_t *)user)->freed++;
}

static void keep(seen_t *seen, const char *text, size_t length) {
    size_t n = length < sizeof seen->text - 1 ? length : sizeof seen->text - 1;
    memcpy(seen->text, text, n);
    seen->text[n] = 0;
    seen->calls++;
}

static void on_error(void *user, int32_t code, const char *text, size_t length) {
    keep(user, text, length);
    ((seen_t *)user)->last = code;
}

static void on_log(void *user, int32_t level, const char *target, size_t target_length, const char *text, size_t length) {
    (void)target;
    TRUE(target_length > 0);
    keep(user, text, length);
    ((seen_t *)user)->last = level;
}

static bool on_debug(void *user, const char *name, size_t length, const DLTensor *t) {
    TRUE(t->device.device_type == kDLCPU && t->ndim > 0 && t->data != NULL);
    keep(user, name, length);
    return ((seen_t *)user)->last == 0;
}

static void *on_allocate(void *user, const char *name, size_t length, void *current, uint64_t bytes, uint64_t alignment) {
    seen_t *seen = user;
    keep(seen, name, length);
    TRUE(alignment > 0);
    seen->bytes = (size_t)bytes;
    if (seen->last) {
        return NULL;
    }
    TRUE(current == NULL || current == seen->memory);
    if (current == NULL) {
        seen->memory = malloc((size_t)bytes + 64);
    }
    return seen->memory;
}

static void on_shape(void *user, const char *name, size_t length, const int64_t *dims, size_t ndim) {
    seen_t *seen = user;
    TRUE(length == 6 && memcmp(name, "logits", 6) == 0 && ndim == 2);
    memcpy(seen->dims, dims, sizeof seen->dims);
}

static bool on_step(void *user, const char *phase, size_t length, size_t step) {
    seen_t *seen = user;
    (void)step;
    keep(seen, phase, length);
    return seen->last == 0;
}

static void on_start(void *user, const char *phase, size_t length, const char *parent, size_t parent_length, size_t steps) {
    (void)phase, (void)steps;
    TRUE(length > 0 && (parent != NULL || parent_length == 0));
    ((seen_t *)user)->bytes++;
}

static void on_finish(void *user, const char *phase, size_t length) {
    (void)phase;
    TRUE(length > 0);
    ((seen_t *)user)->bytes--;
}

static bool text_has(const char *text, size_t length, const char *part) {
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= length; i++) {
        if (memcmp(text + i, part, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool on_select(void *user, const char *layer, size_t length, bool *allowed, size_t count) {
    seen_t *seen = user;
    keep(seen, layer, length);
    TRUE(strstr(seen->text, "\"choices\"") != NULL && count > 0 && !allowed[0]);
    TRUE(text_has(layer, length, "\"dims\":[") && text_has(layer, length, "\"least\":["));
    TRUE(text_has(layer, length, "\"greatest\":[") && text_has(layer, length, "\"inputs\":["));
    allowed[count - 1] = true;
    return seen->last == 0;
}

static void recorders(kiln_engine_t *engine) {
    seen_t of_engine = {0}, of_context = {0};
    kiln_context_t *context = NULL;
    DLTensor t = floats(image, shape, 4);
    OK(kiln_engine_set_error_recorder(engine, on_error, &of_engine, freeing));
    OK(kiln_context_create(engine, &context));
    REFUSED(kiln_context_set_input(context, "x", 1, &t), KILN_ERROR_INVALID_ARGUMENT, "no input");
    TRUE(of_engine.calls == 1 && of_engine.last == KILN_ERROR_INVALID_ARGUMENT && strstr(of_engine.text, "\"x\""));
    OK(kiln_context_set_error_recorder(context, on_error, &of_context, freeing));
    REFUSED(kiln_context_set_input(context, "y", 1, &t), KILN_ERROR_INVALID_ARGUMENT, "no input");
    TRUE(of_engine.calls == 1 && of_context.calls == 1);
    kiln_context_destroy(context);
    TRUE(of_context.freed == 1 && of_engine.freed == 0);
    OK(kiln_engine_set_error_recorder(engine, NULL, NULL, NULL));
    TRUE(of_engine.freed == 1);
}

static void logs(void) {
    seen_t seen = {0}, other = {0};
    kiln_engine_t *engine = NULL;
    kiln_bytes_t *json = NULL;
    kiln_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.path = "/nothing/there/libkiln_layers_x.so";
    options.path_length = KILN_CSTR;
    REFUSED(kiln_log_set(on_log, 0, &other, freeing), KILN_ERROR_INVALID_ARGUMENT, "level of the log is 0");
    TRUE(other.freed == 1);
    OK(kiln_log_set(on_log, KILN_LOG_TRACE, &seen, freeing));
    kiln_engine_t *made = engine;
    (void)made;
    kiln_error_t *error = kiln_backends(&options, &json);
    kiln_error_destroy(error);
    kiln_bytes_destroy(json);
    OK(kiln_log_set(NULL, 0, NULL, NULL));
    TRUE(seen.freed == 1);
}

static void allocators(kiln_context_t *context) {
    seen_t seen = {0};
    DLTensor t = floats(image, shape, 4);
    DLManagedTensorVersioned *out = NULL;
    OK(kiln_context_set_input(context, "input", 5, &t));
    OK(kiln_context_set_output_allocator(context, "logits", 6, on_allocate, on_shape, &seen, freeing));
    OK(kiln_context_run(context));
    TRUE(seen.calls >= 1 && seen.bytes == 40 && seen.dims[0] == 1 && seen.dims[1] == 10);
    OK(kiln_context_output(context, "logits", 6, &out));
    TRUE(memcmp(out->dl_tensor.data, seen.memory, 40) == 0);
    kiln_tensor_destroy(out);
    OK(kiln_context_run(context));
    seen.last = 1;
    REFUSED(kiln_context_run(context), KILN_ERROR_FAILED_ALLOCATION, "logits");
    OK(kiln_context_set_output_allocator(context, "logits", 6, NULL, NULL, NULL, NULL));
    TRUE(seen.freed == 1);
    free(seen.memory);
    seen_t wrong = {0};
    REFUSED(kiln_context_set_output_allocator(context, "x", 1, on_allocate, NULL, &wrong, freeing), KILN_ERROR_INVALID_ARGUMENT, "\"x\"");
    TRUE(wrong.freed == 1);
    OK(kiln_context_run(context));
}

static void debugging(const char *path, const char *backend) {
    const char *const set[] = {"fuse", "0", NULL};
    seen_t seen = {0};
    DLTensor t = floats(image, shape, 4);
    kiln_engine_t *engine = engine_of(path, backend, set);
    kiln_context_t *context = NULL;
    OK(kiln_context_create(engine, &context));
    OK(kiln_context_set_debug_listener(context, on_debug, &seen, freeing));
    OK(kiln_context_set_input(context, "input", 5, &t));
    OK(kiln_context_run(context));
    TRUE(seen.calls == 0);
    REFUSED(kiln_context_debug_tensor(context, "x", 1, true), KILN_ERROR_INVALID_ARGUMENT, "debug tensor");
    OK(kiln_context_debug_unfused(context, true));
    OK(kiln_context_run(context));
    int all = seen.calls;
    TRUE(all > 2);
    seen.last = 1;
    REFUSED(kiln_context_run(context), KILN_ERROR_UNSPECIFIED, "debug listener");
    OK(kiln_context_debug_unfused(context, false));
    OK(kiln_context_debug_all(context, true));
    OK(kiln_context_run(context));
    TRUE(seen.calls == all + 1);
    OK(kiln_context_set_debug_listener(context, NULL, NULL, NULL));
    TRUE(seen.freed == 1);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
}

static void watching(const char *path) {
    seen_t seen = {0}, chosen = {0}, told = {0};
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    OK(kiln_model_open(path, KILN_CSTR, &model));
    OK(kiln_builder_create(&builder));
    OK(kiln_builder_set_backend(builder, "cpu", 3));
    OK(kiln_builder_set(builder, "estimates", 9, "1", 1));
    OK(kiln_builder_set_error_recorder(builder, on_error, &told, freeing));
    OK(kiln_builder_set_monitor(builder, on_start, on_step, on_finish, &seen, freeing));
    OK(kiln_builder_build(builder, model, &build));
    TRUE(seen.calls > 2 && seen.bytes == 0 && told.calls == 0);
    kiln_build_destroy(build);
    seen.last = 1;
    kiln_error_t *error = kiln_builder_build(builder, model, &build);
    TRUE(kiln_error_is_cancelled(error) && seen.bytes == 0 && told.calls == 1);
    kiln_error_destroy(error);
    OK(kiln_builder_set_monitor(builder, NULL, NULL, NULL, NULL, NULL));
    TRUE(seen.freed == 1);
    OK(kiln_builder_set_selector(builder, on_select, &chosen, freeing));
    OK(kiln_builder_build(builder, model, &build));
    TRUE(chosen.calls > 2);
    kiln_build_destroy(build);
    chosen.last = 1;
    REFUSED(kiln_builder_build(builder, model, &build), KILN_ERROR_INVALID_CONFIG, "refused to choose");
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
    TRUE(chosen.freed == 1 && told.freed == 1);
}

int main(int argc, char **argv) {
    TRUE(argc == 3);
    kiln_engine_t *engine = engine_of(argv[1], argv[2], NULL);
    kiln_context_t *context = NULL;
    OK(kiln_context_create(engine, &context));
    recorders(engine);
    logs();
    allocators(context);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    debugging(argv[1], argv[2]);
    watching(argv[1]);
    return 0;
}
