/* Memory stays flat over runs, refused calls and objects that come and go: leaks MODEL.onnx RUNS */
#include "check.h"

static float image[28 * 28];
static int64_t shape[4] = {1, 1, 28, 28};

static long resident(void) {
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    TRUE(file != NULL && fscanf(file, "%ld %ld", &all, &pages) == 2);
    fclose(file);
    return pages * 4096;
}

static void once(kiln_engine_t *engine, kiln_context_t *context, int heavy) {
    DLManagedTensorVersioned *out = NULL;
    DLTensor t = floats(image, shape, 4);
    int64_t dims[2];
    size_t ndim = 2;
    OK(kiln_context_set_input(context, "input", 5, &t));
    OK(kiln_context_run(context));
    OK(kiln_context_output(context, "logits", 6, &out));
    OK(kiln_context_output_shape(context, "logits", 6, dims, &ndim));
    kiln_tensor_destroy(out);
    REFUSED(kiln_context_set_input(context, "x", 1, &t), KILN_ERROR_INVALID_ARGUMENT, "no input");
    if (heavy) {
        kiln_context_t *other = NULL;
        kiln_bytes_t *json = NULL;
        kiln_canceller_t *canceller = NULL;
        OK(kiln_context_create(engine, &other));
        OK(kiln_context_bind(other, "input", 5, &t));
        OK(kiln_context_run(other));
        OK(kiln_context_canceller(other, &canceller));
        kiln_context_destroy(other);
        kiln_canceller_destroy(canceller);
        OK(kiln_engine_inspect(engine, &json));
        kiln_bytes_destroy(json);
    }
}

int main(int argc, char **argv) {
    TRUE(argc == 3);
    int runs = atoi(argv[2]);
    kiln_engine_t *engine = engine_of(argv[1], "cpu", NULL);
    kiln_context_t *context = NULL;
    OK(kiln_context_create(engine, &context));
    for (int i = 0; i < runs / 10; i++) {
        once(engine, context, i % 20 == 0);
    }
    long before = resident();
    for (int i = 0; i < runs; i++) {
        once(engine, context, i % 20 == 0);
    }
    long grown = resident() - before;
    printf("%ld kB more after %d runs\n", grown / 1024, runs);
    /* Few runs, as under valgrind, say nothing of memory that grows. */
    TRUE(runs < 1000 || grown < 1 << 20);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    return 0;
}
