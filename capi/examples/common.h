/* What the examples share: the end of a program that failed, a tensor of floats, a file in memory. */
#ifndef COMMON_H
#define COMMON_H

#include "kiln_runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the message of an error and its causes. */
static void check(kiln_error_t *error, const char *what) {
    if (error == NULL) {
        return;
    }
    fprintf(stderr, "%s: error %d: %s\n", what, (int)kiln_error_code(error), kiln_error_message(error, NULL));
    for (size_t i = 0; i < kiln_error_cause_count(error); i++) {
        fprintf(stderr, "  because: %s\n", kiln_error_cause(error, i, NULL));
    }
    kiln_error_destroy(error);
    exit(1);
}

/* A tensor of f32 in memory of the program. */
static inline DLTensor floats(float *data, int64_t *shape, int32_t ndim) {
    DLTensor t;
    memset(&t, 0, sizeof t);
    t.data = data;
    t.device.device_type = kDLCPU;
    t.ndim = ndim;
    t.dtype.code = kDLFloat;
    t.dtype.bits = 32;
    t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}

/* The index of the greatest of `count` numbers. */
static inline int greatest(const float *values, int count) {
    int best = 0;
    for (int i = 1; i < count; i++) {
        best = values[i] > values[best] ? i : best;
    }
    return best;
}

/* Reads `size` bytes of a file at an offset. */
static inline void read_file(const char *path, long offset, void *data, size_t size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, offset, SEEK_SET) != 0 || fread(data, 1, size, file) != size) {
        fprintf(stderr, "%s: cannot read %lu bytes\n", path, (unsigned long)size);
        exit(1);
    }
    fclose(file);
}

#endif
