// The layer custom::@Name@: cuts elements to -limit and limit.
#include "kiln_layer.hpp"

namespace {

// A layer is an object of this class, made of the fields of a network's layer. What it throws becomes an error with its text.
class @Name@ {
  public:
    explicit @Name@(const kiln::Fields &fields) : limit_(static_cast<float>(fields.number(0))) {
        if (!(limit_ >= 0)) throw std::invalid_argument("field \"limit\" wants 0 or more");
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

const double one = 1.0;
const kiln_field_def fields[] = {kiln::field("limit", "The greatest absolute value of a result.", one)};

kiln_layer table() {
    kiln_layer l = kiln::layer<@Name@>("@Name@");
    l.space = KILN_STR("custom");
    l.doc = KILN_STR("Cuts elements to -limit and limit.");
    l.fields = fields;
    l.field_count = 1;
    l.types = KILN_STR("f32:f32");
    l.outputs = KILN_STR("[i0.d*]");
    l.expression = KILN_STR("max(-limit, min(x0, limit))");
    return l;
}

const kiln_layer layer = table();

} // namespace

KILN_EXPORT_LAYERS("@name@", "", "0.1.0", &layer);
