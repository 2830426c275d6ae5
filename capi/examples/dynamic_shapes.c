/* Runs batches of any size from 1 to 8 by one engine: dynamic_shapes MODEL.onnx IMAGES.f32 [BACKEND]
 *
 * Prints the digits of a batch in a line, and how many bytes the output can have at most. */
#include "common.h"
#include "kiln.h"

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: dynamic_shapes MODEL.onnx IMAGES.f32 [BACKEND]\n");
        return 2;
    }
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    kiln_engine_t *engine = NULL;
    kiln_context_t *context = NULL;
    const int64_t least[4] = {1, 1, 28, 28}, usual[4] = {4, 1, 28, 28}, most[4] = {8, 1, 28, 28};
    check(kiln_model_open(argv[1], KILN_CSTR, &model), "model");
    check(kiln_builder_create(&builder), "builder");
    check(kiln_builder_set_backend(builder, argc > 3 ? argv[3] : "cpu", KILN_CSTR), "backend");
    check(kiln_builder_set(builder, "estimates", KILN_CSTR, "1", KILN_CSTR), "estimates");
    check(kiln_builder_set_shape(builder, 0, "input", KILN_CSTR, least, usual, most, 4), "profile");
    check(kiln_builder_build(builder, model, &build), "build");
    check(kiln_build_engine(build, NULL, &engine), "engine");
    check(kiln_context_create(engine, &context), "context");

    int64_t dims[4];
    size_t ndim = 4;
    check(kiln_engine_profile_shape(engine, 0, "input", KILN_CSTR, KILN_PROFILE_MAX, dims, &ndim), "profile");
    uint64_t bytes = 0;
    check(kiln_context_max_output_size(context, "logits", KILN_CSTR, &bytes), "bound");
    printf("at most %d images, %lu bytes\n", (int)dims[0], (unsigned long)bytes);

    static float images[8 * 28 * 28];
    read_file(argv[2], 0, images, sizeof images);
    for (int64_t n = 1; n <= 8; n += 3) {
        int64_t shape[4] = {n, 1, 28, 28};
        DLTensor input = floats(images, shape, 4);
        check(kiln_context_set_input(context, "input", KILN_CSTR, &input), "input");
        ndim = 4;
        check(kiln_context_infer_shape(context, "logits", KILN_CSTR, dims, &ndim), "shape");
        check(kiln_context_enqueue(context, NULL), "enqueue");
        check(kiln_context_wait(context), "wait");
        DLManagedTensorVersioned *logits = NULL;
        check(kiln_context_output(context, "logits", KILN_CSTR, &logits), "output");
        const float *values = logits->dl_tensor.data;
        for (int64_t i = 0; i < dims[0]; i++) {
            printf("%d%s", greatest(values + 10 * i, 10), i + 1 == dims[0] ? "\n" : " ");
        }
        kiln_tensor_destroy(logits);
    }

    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    kiln_build_destroy(build);
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
    return 0;
}
