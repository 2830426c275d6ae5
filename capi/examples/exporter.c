/* Builds a plan of an ONNX model, as an exporter does: exporter MODEL.onnx PLAN.kiln [BACKEND]
 *
 * The timing cache of a build goes into the next one, which then times nothing. */
#include "common.h"
#include "kiln.h"

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: exporter MODEL.onnx PLAN.kiln [BACKEND]\n");
        return 2;
    }
    kiln_model_t *model = NULL;
    check(kiln_model_open(argv[1], KILN_CSTR, &model), "model");

    kiln_builder_t *builder = NULL;
    check(kiln_builder_create(&builder), "builder");
    if (argc > 3) {
        check(kiln_builder_set_backend(builder, argv[3], KILN_CSTR), "backend");
    }
    check(kiln_builder_set_optimization_level(builder, 2), "level");
    check(kiln_builder_set(builder, "verbosity", KILN_CSTR, "detailed", KILN_CSTR), "verbosity");

    kiln_build_t *build = NULL;
    check(kiln_builder_build(builder, model, &build), "build");
    check(kiln_build_write(build, argv[2], KILN_CSTR), "write");

    kiln_bytes_t *cache = NULL, *report = NULL;
    check(kiln_build_timing_cache(build, &cache), "timing cache");
    check(kiln_builder_set_timing_cache(builder, kiln_bytes_data(cache), kiln_bytes_size(cache)), "set cache");
    kiln_build_destroy(build);
    check(kiln_builder_build(builder, model, &build), "second build");
    check(kiln_build_report(build, &report), "report");
    printf("%s\n", strstr(kiln_bytes_data(report), "\"tactics_timed\":0") ? "the second build timed nothing"
                                                                         : "the second build timed again");

    kiln_bytes_destroy(report);
    kiln_bytes_destroy(cache);
    kiln_build_destroy(build);
    kiln_builder_destroy(builder);
    kiln_model_destroy(model);
    return 0;
}
