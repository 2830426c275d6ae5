/* A plan that holds the library of its layer, by the runtime alone: embedded PLAN.kiln
 *
 * Its input x and its output y are f32[3, 2]; the layer moves rows by one. */
#include "check.h"

int main(int argc, char **argv) {
    TRUE(argc == 2);
    kiln_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    kiln_engine_t *engine = NULL;
    REFUSED(kiln_engine_open(argv[1], KILN_CSTR, &options, &engine), KILN_ERROR_FAILED_INITIALIZATION, "permit it");
    TRUE(engine == NULL);

    options.embedded = 1;
    OK(kiln_engine_open(argv[1], KILN_CSTR, &options, &engine));
    kiln_context_t *context = NULL;
    OK(kiln_context_create(engine, &context));
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
    int64_t shape[2] = {3, 2};
    DLTensor input = floats(x, shape, 2), output = floats(y, shape, 2);
    OK(kiln_context_bind(context, "x", KILN_CSTR, &input));
    OK(kiln_context_bind(context, "y", KILN_CSTR, &output));
    OK(kiln_context_run(context));
    printf("%g %g %g %g %g %g\n", y[0], y[1], y[2], y[3], y[4], y[5]);
    kiln_context_destroy(context);
    kiln_engine_destroy(engine);
    return 0;
}
