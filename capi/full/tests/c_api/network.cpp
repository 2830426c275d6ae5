// The wrapper of networks and calibration for C++: network BACKEND
#include "kiln.hpp"
#include <cstdio>
#include <stdexcept>

static int wrong(const char *what) {
    std::fprintf(stderr, "%s\n", what);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 2;
    }
    const DLDataType f32{kDLFloat, 32, 1}, i32{kDLInt, 32, 1};
    kiln::Network net("net");
    std::int32_t x = net.input("x", f32, {1, 1, 2, 4});
    std::vector<std::int64_t> one{1};
    float scale = 2;
    kiln::Params params;
    params.set("mode", "uniform").set("scale", kiln::host(&scale, one));
    std::int32_t y = net.add("scale", {x}, params);
    y = net.add("pooling", {y}, kiln::Params().set("type", "max").set("window_size", {1, 2}).set("stride", {1, 2}));
    y = net.add("activation", {y}, kiln::Params().set("type", "clip").set("alpha", 0.5).set("beta", 5));
    y = net.add("reduce", {y}, kiln::Params().set("op", "sum").set("axes", 1 << 3).set("keep_dims", true));
    net.output(y, "y").output(net.add("cast", {y}, kiln::Params().set("to", i32)), "z");
    try {
        net.add("pooling", {x}, kiln::Params().set("speed", 3));
        return wrong("an unknown parameter was taken");
    } catch (const kiln::Error &e) {
        if (std::string(e.what()).find("window_size") == std::string::npos) {
            return wrong(e.what());
        }
    }
    kiln::Model model = net.model();
    kiln::Builder builder;
    builder.backend(argv[1]).set("estimates", "1");
    std::vector<std::int64_t> shape{1, 1, 2, 4};
    std::vector<float> data{1, 2, 3, 0, -1, -2, 0, 1};
    int batches = 0;
    builder.calibrate("minmax", [&](kiln_batch_t *batch) {
        DLTensor input = kiln::host(data.data(), shape);
        kiln::check(kiln_batch_set(batch, "x", 1, &input));
        return ++batches < 3;
    });
    kiln::Context context = builder.build(model).engine().context();
    if (batches != 3) {
        return wrong("the batches are not all asked for");
    }
    context.set_input("x", kiln::host(data.data(), shape)).run();
    kiln::Tensor found = context.output("y");
    // 2 * (1 2 3 0) in pairs: 4, 6, clipped at 5; the second row: -2 and 2, clipped at 0.5.
    if (found.data<float>()[0] != 9 || found.data<float>()[1] != 2.5F || found.shape() != std::vector<std::int64_t>{1, 1, 2, 1}) {
        return wrong("the result is another one");
    }
    kiln::Builder other;
    other.backend(argv[1]).set("estimates", "1");
    kiln::Bytes compared = other.compare(model, "reference", {{"x", kiln::host(data.data(), shape)}});
    std::string_view report = compared.text();
    if (report.find("\"agrees\":true") == report.npos) {
        return wrong("a comparison differs");
    }
    builder.calibrate("minmax", [](kiln_batch_t *) -> bool { throw std::runtime_error("no data"); });
    try {
        builder.build(model);
        return wrong("an exception was lost");
    } catch (const kiln::Error &e) {
        return e.is_cancelled() ? 0 : wrong(e.what());
    }
}
