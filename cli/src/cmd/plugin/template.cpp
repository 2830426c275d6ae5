// The layer custom::@Name@: cuts elements to -limit and limit.
#include "kiln_plugin.h"

#include <cstring>
#include <exception>
#include <stdexcept>

namespace {

const kiln_host *host = nullptr;

// No exception may leave a function that the host calls: it becomes an error with its text.
template <class F> int32_t guarded(kiln_error *err, F body) noexcept {
    const auto refuse = [err](int32_t code, const char *why) {
        host->error_set(err, code, {why, std::strlen(why)});
        return code;
    };
    try {
        body();
        return KILN_OK;
    } catch (const std::invalid_argument &e) {
        return refuse(KILN_INVALID_ARGUMENT, e.what());
    } catch (const std::exception &e) {
        return refuse(KILN_INTERNAL, e.what());
    } catch (...) {
        return refuse(KILN_INTERNAL, "an exception that is no std::exception");
    }
}

// A layer is an object of this class, made of the fields of a network's layer.
class @Name@ {
  public:
    explicit @Name@(double limit) : limit_(static_cast<float>(limit)) {
        if (!(limit >= 0)) throw std::invalid_argument("field \"limit\" wants 0 or more");
    }

    void run(const kiln_layer_call &call) const {
        const kiln_host_tensor &x = call.inputs[0], &y = call.outputs[0];
        int64_t count = 1;
        for (uint32_t axis = 0; axis < x.ndim; axis++) count *= x.dims[axis];
        for (int64_t n = 0; n < count; n++) {
            const float v = static_cast<const float *>(x.data)[place(x, n)];
            // NaN stays NaN.
            static_cast<float *>(y.data)[place(y, n)] = v > limit_ ? limit_ : v < -limit_ ? -limit_ : v;
        }
    }

  private:
    // The place of element n by strides.
    static int64_t place(const kiln_host_tensor &t, int64_t n) {
        int64_t at = 0;
        for (uint32_t axis = t.ndim; axis-- > 0; n /= t.dims[axis]) at += n % t.dims[axis] * t.strides[axis];
        return at;
    }

    float limit_;
};

int32_t create(const kiln_field *f, uint64_t, kiln_layer_instance **out, kiln_error *err) {
    return guarded(err, [&] {
        *out = reinterpret_cast<kiln_layer_instance *>(new @Name@(*static_cast<const double *>(f[0].data)));
    });
}

void destroy(kiln_layer_instance *i) { delete reinterpret_cast<@Name@ *>(i); }

int32_t run(kiln_layer_instance *i, const kiln_layer_call *call, kiln_error *err) {
    return guarded(err, [&] { reinterpret_cast<@Name@ *>(i)->run(*call); });
}

// Functions fill in the tables; what they leave out is zero.
const double one = 1.0;

kiln_field_def limit() {
    kiln_field_def f{};
    f.name = KILN_STR("limit");
    f.doc = KILN_STR("The greatest absolute value of a result.");
    f.value.kind = KILN_FIELD_FLOAT;
    f.value.data = &one;
    f.value.count = 1;
    return f;
}

const kiln_field_def fields[] = {limit()};

kiln_layer layer_table() {
    kiln_layer l{};
    l.struct_size = sizeof l;
    l.name = KILN_STR("@Name@");
    l.space = KILN_STR("custom");
    l.version = KILN_STR("1");
    l.doc = KILN_STR("Cuts elements to -limit and limit.");
    l.fields = fields;
    l.field_count = 1;
    l.types = KILN_STR("f32:f32");
    l.outputs = KILN_STR("[i0.d*]");
    l.expression = KILN_STR("max(-limit, min(x0, limit))");
    l.create = create;
    l.destroy = destroy;
    l.run = run;
    return l;
}

const kiln_layer layer = layer_table();
const kiln_layer *const layers[] = {&layer};
const kiln_layers_v1 table = {sizeof(kiln_layers_v1), 0, layers, 1};

int32_t init(const kiln_host *h, kiln_error *) {
    host = h;
    return KILN_OK;
}

const void *get_interface(kiln_str) { return &table; }

} // namespace

extern "C" const kiln_descriptor kiln_plugin_descriptor = {
    KILN_MAGIC,
    sizeof(kiln_descriptor),
    KILN_ABI_MAJOR,
    KILN_ABI_MINOR,
    8, // the least minor version of the host
    KILN_KIND_LAYERS,
    0, // flags
    KILN_STR("@name@"),
    {nullptr, 0}, // vendor
    KILN_STR("0.1.0"),
    {nullptr, 0}, // build
    KILN_STR(KILN_TARGET),
    init,
    nullptr, // deinit
    get_interface,
};
