// Shows the progress of a build and cancels another one, by the wrapper for C++: progress MODEL.onnx [BACKEND]
#include "kiln.hpp"

#include <cstdio>
#include <string>

int main(int argc, char **argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: progress MODEL.onnx [BACKEND]\n");
        return 2;
    }
    try {
        kiln::Model model = kiln::Model::open(argv[1]);
        kiln::Builder builder;
        builder.backend(argc > 2 ? argv[2] : "cpu").set("estimates", "1");

        std::size_t steps = 0;
        builder.progress([&steps](std::string_view phase, std::size_t done, std::size_t all) {
            std::fprintf(stderr, "%.*s: %zu of %zu\n", int(phase.size()), phase.data(), done, all);
            ++steps;
            return true;
        });
        kiln::Build build = builder.build(model);
        std::printf("%s\n", steps > 2 ? "the build told of its steps" : "the build told nothing");

        builder.progress([](std::string_view, std::size_t, std::size_t) { return false; });
        try {
            builder.build(model);
            std::printf("the build was not cancelled\n");
        } catch (const kiln::Error &error) {
            std::printf("%s\n", error.is_cancelled() ? "cancelled" : error.what());
        }

        kiln::Engine engine = build.engine();
        std::printf("%s on %s\n", std::string(engine.name()).c_str(), std::string(engine.backend()).c_str());
    } catch (const kiln::Error &error) {
        std::fprintf(stderr, "error %d: %s\n", error.code(), error.what());
        return 1;
    }
    return 0;
}
