/* Checks of the test programs. */
#ifndef CHECK_H
#define CHECK_H

#include "kiln.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...) (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

#define TRUE(condition) ((condition) ? (void)0 : (void)FAIL("not so: %s", #condition))

/* A call that must succeed. */
#define OK(call) ok((call), __FILE__, __LINE__)

/* A call that must fail with a code, and a message or cause that has these words. */
#define REFUSED(call, code, words) refused((call), (code), (words), __FILE__, __LINE__)

static inline void ok(kiln_error_t *error, const char *file, int line) {
    if (error != NULL) {
        fprintf(stderr, "%s:%d: %s\n", file, line, kiln_error_message(error, NULL));
        for (size_t i = 0; i < kiln_error_cause_count(error); i++) {
            fprintf(stderr, "  because: %s\n", kiln_error_cause(error, i, NULL));
        }
        exit(1);
    }
}

static inline void refused(kiln_error_t *error, int code, const char *words, const char *file, int line) {
    if (error == NULL) {
        fprintf(stderr, "%s:%d: nothing was refused; wanted \"%s\"\n", file, line, words);
        exit(1);
    }
    int found = 0;
    size_t length = 0;
    const char *message = kiln_error_message(error, &length);
    found |= strstr(message, words) != NULL;
    for (size_t i = 0; i < kiln_error_cause_count(error); i++) {
        found |= strstr(kiln_error_cause(error, i, NULL), words) != NULL;
    }
    if (!found || kiln_error_code(error) != code || length != strlen(message)) {
        fprintf(stderr, "%s:%d: error %d: %s; wanted %d and \"%s\"\n", file, line, (int)kiln_error_code(error),
                message, code, words);
        exit(1);
    }
    TRUE(kiln_error_cause(error, kiln_error_cause_count(error), &length) == NULL && length == 0);
    kiln_error_destroy(error);
}

static inline DLTensor tensor(void *data, int code, int bits, int64_t *shape, int32_t ndim) {
    DLTensor t;
    memset(&t, 0, sizeof t);
    t.data = data;
    t.device.device_type = kDLCPU;
    t.ndim = ndim;
    t.dtype.code = (uint8_t)code;
    t.dtype.bits = (uint8_t)bits;
    t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}

static inline DLTensor floats(void *data, int64_t *shape, int32_t ndim) {
    return tensor(data, kDLFloat, 32, shape, ndim);
}

/* An engine of a model with small batches; `set` lists pairs of options, to its NULL. */
static inline kiln_engine_t *engine_of(const char *path, const char *backend, const char *const *set) {
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    kiln_engine_t *engine = NULL;
    const int64_t min[4] = {1, 1, 28, 28}, max[4] = {8, 1, 28, 28};
    OK(kiln_model_open(path, KILN_CSTR, &model));
    OK(kiln_builder_create(&builder));
    OK(kiln_builder_set_backend(builder, backend, KILN_CSTR));
    OK(kiln_builder_set(builder, "estimates", KILN_CSTR, "1", KILN_CSTR));
    OK(kiln_builder_set_refit(builder, KILN_REFIT_ALL));
    OK(kiln_builder_set_shape(builder, 0, "input", KILN_CSTR, min, min, max, 4));
    for (; set != NULL && *set != NULL; set += 2) {
        OK(kiln_builder_set(builder, set[0], KILN_CSTR, set[1], KILN_CSTR));
    }
    OK(kiln_builder_build(builder, model, &build));
    OK(kiln_build_engine(build, NULL, &engine));
    kiln_build_destroy(build);
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
    return engine;
}

#endif
