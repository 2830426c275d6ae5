/* Replaces weights of an engine while a context of it lives: refit MODEL.onnx WEIGHTS.npz IMAGE.f32 [BACKEND]
 *
 * Prints the digit by the weights of the model, and by those of the file. */
#include "common.h"
#include "kiln.h"

static int digit(kiln_context_t *context, float *image) {
    int64_t shape[4] = {1, 1, 28, 28};
    DLTensor input = floats(image, shape, 4);
    DLManagedTensorVersioned *logits = NULL;
    check(kiln_context_set_input(context, "input", KILN_CSTR, &input), "input");
    check(kiln_context_run(context), "run");
    check(kiln_context_output(context, "logits", KILN_CSTR, &logits), "output");
    int found = greatest(logits->dl_tensor.data, 10);
    kiln_tensor_destroy(logits);
    return found;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: refit MODEL.onnx WEIGHTS.npz IMAGE.f32 [BACKEND]\n");
        return 2;
    }
    kiln_model_t *model = NULL;
    kiln_builder_t *builder = NULL;
    kiln_build_t *build = NULL;
    kiln_engine_t *engine = NULL;
    kiln_context_t *context = NULL;
    check(kiln_model_open(argv[1], KILN_CSTR, &model), "model");
    check(kiln_builder_create(&builder), "builder");
    check(kiln_builder_set_backend(builder, argc > 4 ? argv[4] : "cpu", KILN_CSTR), "backend");
    check(kiln_builder_set(builder, "estimates", KILN_CSTR, "1", KILN_CSTR), "estimates");
    check(kiln_builder_set_refit(builder, KILN_REFIT_ALL), "refit");
    check(kiln_builder_build(builder, model, &build), "build");
    check(kiln_build_engine(build, NULL, &engine), "engine");
    check(kiln_context_create(engine, &context), "context");

    float image[28 * 28];
    read_file(argv[3], 0, image, sizeof image);
    printf("%d\n", digit(context, image));

    /* By name, all weights that the file has. */
    kiln_refitter_t *refitter = NULL;
    kiln_bytes_t *report = NULL;
    check(kiln_refitter_create(engine, &refitter), "refitter");
    check(kiln_refitter_set_file(refitter, argv[2], KILN_CSTR, NULL), "weights");
    check(kiln_refitter_refit(refitter, &report), "refit");
    fprintf(stderr, "%s\n", kiln_bytes_data(report));
    printf("%d\n", digit(context, image));

    kiln_bytes_destroy(report);
    kiln_refitter_destroy(refitter);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    kiln_build_destroy(build);
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
    return 0;
}
