/* Threads with contexts of one engine, two in one context, a run that is cancelled: threads MODEL.onnx BACKEND */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define RUNS 50

static kiln_engine_t *engine;
static float images[8 * 28 * 28];

static void *run(void *number) {
    int64_t shape[4] = {1, 1, 28, 28};
    long n = (long)(intptr_t)number;
    float first[10];
    kiln_context_t *context = NULL;
    OK(kiln_context_create(engine, &context));
    DLTensor t = floats(images + n * 28 * 28, shape, 4);
    for (int i = 0; i < RUNS; i++) {
        DLManagedTensorVersioned *out = NULL;
        OK(kiln_context_set_input(context, "input", 5, &t));
        OK(kiln_context_run(context));
        OK(kiln_context_output(context, "logits", 6, &out));
        TRUE(out->dl_tensor.ndim == 2 && out->dl_tensor.shape[1] == 10 && out->dl_tensor.strides[0] == 10);
        TRUE((out->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0);
        if (i == 0) {
            memcpy(first, out->dl_tensor.data, sizeof first);
        }
        TRUE(memcmp(first, out->dl_tensor.data, sizeof first) == 0);
        out->deleter(out);
    }
    kiln_context_destroy(context);
    return NULL;
}

static kiln_context_t *shared;
static atomic_int in_use, done;

/* Runs in a context that others use: each call works or says that it is in use. */
static void *crowd(void *nothing) {
    (void)nothing;
    for (int i = 0; i < 200; i++) {
        kiln_error_t *error = kiln_context_run(shared);
        if (error == NULL) {
            atomic_fetch_add(&done, 1);
        } else {
            TRUE(kiln_error_code(error) == KILN_ERROR_INVALID_STATE && strstr(kiln_error_message(error, NULL), "in use"));
            atomic_fetch_add(&in_use, 1);
            kiln_error_destroy(error);
        }
    }
    return NULL;
}

static kiln_canceller_t *canceller;
static atomic_int stop;

static void *cancels(void *nothing) {
    (void)nothing;
    while (!atomic_load(&stop)) {
        bool stopped = false;
        OK(kiln_canceller_cancel(canceller, &stopped));
    }
    return NULL;
}

int main(int argc, char **argv) {
    TRUE(argc == 3);
    pthread_t threads[THREADS];
    int64_t shape[4] = {1, 1, 28, 28};
    for (int i = 0; i < 8 * 28 * 28; i++) {
        images[i] = (float)(i % 97) / 97.0f;
    }
    engine = engine_of(argv[1], argv[2], NULL);
    for (long i = 0; i < THREADS; i++) {
        TRUE(pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }

    OK(kiln_context_create(engine, &shared));
    DLTensor t = floats(images, shape, 4);
    OK(kiln_context_set_input(shared, "input", 5, &t));
    for (long i = 0; i < THREADS; i++) {
        TRUE(pthread_create(&threads[i], NULL, crowd, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    TRUE(atomic_load(&done) > 0 && atomic_load(&done) + atomic_load(&in_use) == 200 * THREADS);

    /* A run ends by the canceller sooner or later, and the next one works. */
    OK(kiln_context_canceller(shared, &canceller));
    TRUE(pthread_create(&threads[0], NULL, cancels, NULL) == 0);
    int cancelled = 0;
    for (int i = 0; i < 20000 && !cancelled; i++) {
        kiln_error_t *error = kiln_context_run(shared);
        if (error != NULL) {
            TRUE(kiln_error_is_cancelled(error));
            cancelled = 1;
            kiln_error_destroy(error);
        }
    }
    atomic_store(&stop, 1);
    pthread_join(threads[0], NULL);
    TRUE(cancelled);
    OK(kiln_context_run(shared));
    OK(kiln_context_set_timeout(shared, 1));
    kiln_error_t *error = kiln_context_run(shared);
    kiln_error_destroy(error);
    OK(kiln_context_set_timeout(shared, 0));
    OK(kiln_context_run(shared));
    kiln_canceller_destroy(canceller);
    kiln_engine_destroy(engine);
    OK(kiln_context_run(shared));
    kiln_context_destroy(shared);
    return 0;
}
