/* Classifies digits by a plan of LeNet, with libkiln_runtime alone: runner PLAN.kiln IMAGES.f32 COUNT
 *
 * The file has images of 28 x 28 floats. Prints a digit a line. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: runner PLAN.kiln IMAGES.f32 COUNT\n");
        return 2;
    }
    kiln_engine_t *engine = NULL;
    check(kiln_engine_open(argv[1], KILN_CSTR, NULL, &engine), "engine");

    size_t count = kiln_engine_io_count(engine);
    for (size_t i = 0; i < count; i++) {
        kiln_io_t io;
        memset(&io, 0, sizeof io);
        io.struct_size = sizeof io;
        check(kiln_engine_io(engine, i, &io), "io");
        fprintf(stderr, "%s %.*s: %d dimensions, %.*s\n", io.mode == KILN_INPUT ? "input" : "output",
                (int)io.name_length, io.name, (int)io.ndim, (int)io.format_length, io.format);
    }

    kiln_context_t *context = NULL;
    check(kiln_context_create(engine, &context), "context");
    float image[28 * 28], logits[10];
    int64_t image_shape[4] = {1, 1, 28, 28}, logits_shape[2] = {1, 10};
    DLTensor input = floats(image, image_shape, 4), output = floats(logits, logits_shape, 2);

    /* Bound memory is used by all runs from now on. */
    check(kiln_context_bind(context, "input", KILN_CSTR, &input), "bind input");
    check(kiln_context_bind(context, "logits", KILN_CSTR, &output), "bind output");
    for (long i = 0; i < atol(argv[3]); i++) {
        read_file(argv[2], i * (long)sizeof image, image, sizeof image);
        check(kiln_context_run(context), "run");
        printf("%d\n", greatest(logits, 10));
    }

    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    return 0;
}
