/* Times runs of an engine with one input and one output of f32 by the C API, as overhead.py wants it: runs PLAN RUNS prints the median of
 * a run from input to output, and of one in memory that is bound, in nanoseconds. */
#define _POSIX_C_SOURCE 199309L
#include "common.h"
#include <time.h>

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int by_time(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    kiln_engine_t *engine = NULL;
    kiln_context_t *context = NULL, *bound = NULL;
    if (argc < 3) {
        return 2;
    }
    size_t runs = (size_t)atol(argv[2]);
    long *times = malloc(runs * sizeof(long)), medians[2];
    check(kiln_engine_open(argv[1], KILN_CSTR, NULL, &engine), "open");
    check(kiln_context_create(engine, &context), "context");
    check(kiln_context_create(engine, &bound), "context");
    kiln_io_t io[2];
    DLTensor tensors[2];
    for (size_t i = 0; i < 2; i++) {
        memset(&io[i], 0, sizeof io[i]);
        io[i].struct_size = sizeof io[i];
        check(kiln_engine_io(engine, i, &io[i]), "io");
        size_t count = 1;
        for (int d = 0; d < io[i].ndim; d++) {
            count *= (size_t)io[i].dims[d];
        }
        tensors[i] = floats(calloc(count, sizeof(float)), io[i].dims, io[i].ndim);
    }
    for (size_t i = 0; i < runs; i++) {
        DLManagedTensorVersioned *out = NULL;
        long start = now();
        check(kiln_context_set_input(context, io[0].name, io[0].name_length, &tensors[0]), "input");
        check(kiln_context_run(context), "run");
        check(kiln_context_output(context, io[1].name, io[1].name_length, &out), "output");
        kiln_tensor_destroy(out);
        times[i] = now() - start;
    }
    qsort(times, runs, sizeof(long), by_time);
    medians[0] = times[runs / 2];
    for (size_t i = 0; i < 2; i++) {
        check(kiln_context_bind(bound, io[i].name, io[i].name_length, &tensors[i]), "bind");
    }
    for (size_t i = 0; i < runs; i++) {
        long start = now();
        check(kiln_context_run(bound), "run");
        times[i] = now() - start;
    }
    qsort(times, runs, sizeof(long), by_time);
    medians[1] = times[runs / 2];
    printf("{\"run\": %ld, \"kept\": %ld}\n", medians[0], medians[1]);
    kiln_context_destroy(bound);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    free(times);
    free(tensors[0].data);
    free(tensors[1].data);
    return 0;
}
