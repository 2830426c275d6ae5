// A layer with a field of every kind: it returns what it was given, as numbers.
#include "kiln_layer.hpp"

namespace {

// The sum of the bytes of a text, each times its place.
double sum(const std::string &s) {
    double found = 0;
    for (size_t i = 0; i < s.size(); i++) found += static_cast<double>(i + 1) * static_cast<unsigned char>(s[i]);
    return found;
}

class Told {
  public:
    explicit Told(const kiln::Fields &f)
        : values_{static_cast<double>(f.integer(0)), f.number(1), sum(f.text(2))} {
        const std::vector<int64_t> integers = f.integers(3);
        const std::vector<double> numbers = f.numbers(4);
        const std::vector<std::string> texts = f.texts(5);
        values_.push_back(static_cast<double>(integers.size()));
        for (size_t i = 0; i < integers.size(); i++) values_[3] += static_cast<double>(10 * (i + 1)) * static_cast<double>(integers[i]);
        values_.push_back(static_cast<double>(numbers.size()));
        for (size_t i = 0; i < numbers.size(); i++) values_[4] += static_cast<double>(10 * (i + 1)) * numbers[i];
        values_.push_back(static_cast<double>(texts.size()));
        for (size_t i = 0; i < texts.size(); i++) values_[5] += static_cast<double>(10 * (i + 1)) * sum(texts[i]);
        if (f.integer(0) < 0) throw kiln::Unsupported("a number below 0");
        if (f.text(2) == "memory") throw std::bad_alloc();
        if (f.text(2) == "number") throw 7;
    }

    // One dimension is known by the function alone.
    std::string describe(const kiln_layer_call &) const { return "[" + std::to_string(values_.size()) + "]"; }

    void run(const kiln_layer_call &call) const {
        for (size_t i = 0; i < values_.size(); i++)
            static_cast<float *>(call.outputs[0].data)[static_cast<int64_t>(i) * call.outputs[0].strides[0]] =
                static_cast<float>(values_[i]);
    }

  private:
    std::vector<double> values_;
};

const int64_t three = 3;
const double half = 0.5;
const kiln_str word = KILN_STR("word");
const int64_t integers[] = {1, -2};
const double numbers[] = {0.25};
const kiln_str texts[] = {KILN_STR("a"), KILN_STR("")};
const kiln_field_def fields[] = {
    kiln::field("integer", "", three),          kiln::field("number", "", half),
    kiln::field("text", "", word),              kiln::list("integers", "", integers, 2),
    kiln::list("numbers", "", numbers, 1),      kiln::list("texts", "", texts, 2),
};

kiln_layer table() {
    kiln_layer l = kiln::layer<Told>("Told");
    l.space = KILN_STR("fields");
    l.fields = fields;
    l.field_count = 6;
    l.types = KILN_STR("f32,f32?:f32");
    l.tolerance = KILN_STR("exact");
    return l;
}
const kiln_layer layer = table();

} // namespace

KILN_EXPORT_LAYERS("fields", "Kiln", "1.0.0", &layer);
