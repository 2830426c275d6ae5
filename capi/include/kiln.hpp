// Kiln for C++17: objects that free themselves, and exceptions. A wrapper of kiln.h without a library of its own; programs that run
// plans only define KILN_RUNTIME_ONLY, and link libkiln_runtime.
#ifndef KILN_HPP
#define KILN_HPP

#ifdef KILN_RUNTIME_ONLY
#include "kiln_runtime.h"
#else
#include "kiln.h"
#endif

#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln {

// Error of a function: message with all causes, and code.
class Error : public std::exception {
public:
    explicit Error(kiln_error_t *error)
        : code_(kiln_error_code(error)), cancelled_(kiln_error_is_cancelled(error)) {
        text_ = kiln_error_message(error, nullptr);
        for (std::size_t i = 0; i < kiln_error_cause_count(error); ++i) {
            text_ += std::string(": ") + kiln_error_cause(error, i, nullptr);
        }
        kiln_error_destroy(error);
    }
    const char *what() const noexcept override { return text_.c_str(); }
    int code() const noexcept { return code_; }
    bool is_cancelled() const noexcept { return cancelled_; }

private:
    int code_;
    bool cancelled_;
    std::string text_;
};

inline void check(kiln_error_t *error) {
    if (error != nullptr) {
        throw Error(error);
    }
}

// Owner of an object, which can be moved and not copied.
template <typename T, void (*destroy)(T *)> class Handle {
public:
    Handle() = default;
    explicit Handle(T *object) : object_(object) {}
    T *get() const noexcept { return object_.get(); }
    explicit operator bool() const noexcept { return object_ != nullptr; }

private:
    struct Destroy {
        void operator()(T *object) const noexcept { destroy(object); }
    };
    std::unique_ptr<T, Destroy> object_;
};

// Text or bytes of the library.
class Bytes : public Handle<kiln_bytes_t, kiln_bytes_destroy> {
public:
    using Handle::Handle;
    const char *data() const noexcept { return kiln_bytes_data(get()); }
    std::size_t size() const noexcept { return kiln_bytes_size(get()); }
    std::string_view text() const noexcept { return {data(), size()}; }
};

// Calls a function whose last argument takes bytes.
template <typename F, typename... Arguments> Bytes bytes(F function, Arguments... arguments) {
    kiln_bytes_t *out = nullptr;
    check(function(arguments..., &out));
    return Bytes(out);
}

// A tensor that the library returned.
class Tensor : public Handle<DLManagedTensorVersioned, kiln_tensor_destroy> {
public:
    using Handle::Handle;
    const DLTensor &view() const noexcept { return get()->dl_tensor; }
    std::vector<std::int64_t> shape() const { return {view().shape, view().shape + view().ndim}; }
    template <typename T> const T *data() const noexcept {
        return reinterpret_cast<const T *>(static_cast<const char *>(view().data) + view().byte_offset);
    }
};

// A dense tensor in memory of the program; it lives as long as that and the shape.
inline DLTensor host(void *data, DLDataType dtype, std::vector<std::int64_t> &shape) {
    DLTensor t{};
    t.data = data;
    t.device.device_type = kDLCPU;
    t.ndim = static_cast<std::int32_t>(shape.size());
    t.dtype = dtype;
    t.shape = shape.data();
    return t;
}
inline DLTensor host(float *data, std::vector<std::int64_t> &shape) { return host(data, {kDLFloat, 32, 1}, shape); }

class Engine;

// Runs an engine, one run at a time.
class Context : public Handle<kiln_context_t, kiln_context_destroy> {
public:
    using Handle::Handle;
    Context &set_input(std::string_view name, const DLTensor &tensor) {
        check(kiln_context_set_input(get(), name.data(), name.size(), &tensor));
        return *this;
    }
    Context &bind(std::string_view name, const DLTensor &tensor) {
        check(kiln_context_bind(get(), name.data(), name.size(), &tensor));
        return *this;
    }
    void enqueue(void *stream = nullptr) { check(kiln_context_enqueue(get(), stream)); }
    void wait() { check(kiln_context_wait(get())); }
    void run() { check(kiln_context_run(get())); }
    Tensor output(std::string_view name) const {
        DLManagedTensorVersioned *out = nullptr;
        check(kiln_context_output(get(), name.data(), name.size(), &out));
        return Tensor(out);
    }
};

// A plan on a device.
class Engine : public Handle<kiln_engine_t, kiln_engine_destroy> {
public:
    using Handle::Handle;
    static Engine open(std::string_view path, const kiln_options_t *options = nullptr) {
        kiln_engine_t *out = nullptr;
        check(kiln_engine_open(path.data(), path.size(), options, &out));
        return Engine(out);
    }
    static Engine from_bytes(const void *data, std::size_t size, const kiln_options_t *options = nullptr) {
        kiln_engine_t *out = nullptr;
        check(kiln_engine_from_bytes(data, size, options, &out));
        return Engine(out);
    }
    std::string_view name() const { return text(kiln_engine_name); }
    std::string_view backend() const { return text(kiln_engine_backend); }
    std::vector<kiln_io_t> io() const {
        std::vector<kiln_io_t> all(kiln_engine_io_count(get()));
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i].struct_size = sizeof(kiln_io_t);
            check(kiln_engine_io(get(), i, &all[i]));
        }
        return all;
    }
    Bytes inspect() const { return bytes(kiln_engine_inspect, get()); }
    Bytes plan() const { return bytes(kiln_engine_plan, get()); }
    Context context() const {
        kiln_context_t *out = nullptr;
        check(kiln_context_create(get(), &out));
        return Context(out);
    }

private:
    template <typename F> std::string_view text(F function) const {
        std::size_t length = 0;
        const char *data = function(get(), &length);
        return {data, length};
    }
};

#ifndef KILN_RUNTIME_ONLY

// A network that is to be built.
class Model : public Handle<kiln_model_t, kiln_model_destroy> {
public:
    using Handle::Handle;
    static Model open(std::string_view path) {
        kiln_model_t *out = nullptr;
        check(kiln_model_open(path.data(), path.size(), &out));
        return Model(out);
    }
};

// Parameters of a layer by name.
class Params : public Handle<kiln_params_t, kiln_params_destroy> {
public:
    Params() : Handle(make()) {}
    Params &set(std::string_view name, std::int64_t value) {
        check(kiln_params_set_int(get(), name.data(), name.size(), value));
        return *this;
    }
    Params &set(std::string_view name, int value) { return set(name, static_cast<std::int64_t>(value)); }
    Params &set(std::string_view name, double value) {
        check(kiln_params_set_float(get(), name.data(), name.size(), value));
        return *this;
    }
    Params &set(std::string_view name, bool value) {
        check(kiln_params_set_bool(get(), name.data(), name.size(), value));
        return *this;
    }
    Params &set(std::string_view name, const char *value) {
        check(kiln_params_set_text(get(), name.data(), name.size(), value, KILN_CSTR));
        return *this;
    }
    Params &set(std::string_view name, std::initializer_list<std::int64_t> values) {
        check(kiln_params_set_ints(get(), name.data(), name.size(), values.begin(), values.size()));
        return *this;
    }
    Params &set(std::string_view name, DLDataType value) {
        check(kiln_params_set_type(get(), name.data(), name.size(), value));
        return *this;
    }
    Params &set(std::string_view name, const DLTensor &value) {
        check(kiln_params_set_tensor(get(), name.data(), name.size(), &value));
        return *this;
    }

private:
    static kiln_params_t *make() {
        kiln_params_t *out = nullptr;
        check(kiln_params_create(&out));
        return out;
    }
};

// A network that is written layer by layer. Tensors have numbers.
class Network : public Handle<kiln_network_t, kiln_network_destroy> {
public:
    explicit Network(std::string_view name, bool strongly_typed = false) : Handle(make(name, strongly_typed)) {}
    std::int32_t input(std::string_view name, DLDataType dtype, std::initializer_list<std::int64_t> dims) {
        std::int32_t tensor = KILN_NO_TENSOR;
        check(kiln_network_add_input(get(), name.data(), name.size(), dtype, dims.begin(), dims.size(), &tensor));
        return tensor;
    }
    // The first output of a new layer.
    std::int32_t add(std::string_view kind, std::initializer_list<std::int32_t> inputs, const Params &params = Params()) {
        std::int32_t output = KILN_NO_TENSOR;
        check(kiln_network_add_layer(get(), kind.data(), kind.size(), inputs.begin(), inputs.size(), params.get(),
                                     nullptr, &output));
        return output;
    }
    Network &output(std::int32_t tensor, std::string_view name) {
        check(kiln_network_mark_output(get(), tensor, name.data(), name.size()));
        return *this;
    }
    Model model() const {
        kiln_model_t *out = nullptr;
        check(kiln_model_of_network(get(), &out));
        return Model(out);
    }

private:
    static kiln_network_t *make(std::string_view name, bool strongly_typed) {
        kiln_network_t *out = nullptr;
        check(kiln_network_create(name.data(), name.size(), strongly_typed, &out));
        return out;
    }
};

// The result of a build.
class Build : public Handle<kiln_build_t, kiln_build_destroy> {
public:
    using Handle::Handle;
    Bytes plan() const { return bytes(kiln_build_plan, get()); }
    Bytes report() const { return bytes(kiln_build_report, get()); }
    Bytes timing_cache() const { return bytes(kiln_build_timing_cache, get()); }
    void write(std::string_view path) const { check(kiln_build_write(get(), path.data(), path.size())); }
    Engine engine(const kiln_options_t *options = nullptr) const {
        kiln_engine_t *out = nullptr;
        check(kiln_build_engine(get(), options, &out));
        return Engine(out);
    }
};

// Options of builds.
class Builder : public Handle<kiln_builder_t, kiln_builder_destroy> {
public:
    // Phase, steps done, all steps; false cancels.
    using Progress = std::function<bool(std::string_view, std::size_t, std::size_t)>;

    Builder() : Handle(make()) {}
    Builder &backend(std::string_view name) {
        check(kiln_builder_set_backend(get(), name.data(), name.size()));
        return *this;
    }
    Builder &set(std::string_view name, std::string_view value) {
        check(kiln_builder_set(get(), name.data(), name.size(), value.data(), value.size()));
        return *this;
    }
    Builder &shapes(std::size_t profile, std::string_view input, std::initializer_list<std::int64_t> min,
                    std::initializer_list<std::int64_t> opt, std::initializer_list<std::int64_t> max) {
        check(kiln_builder_set_shape(get(), profile, input.data(), input.size(), min.begin(), opt.begin(),
                                     max.begin(), opt.size()));
        return *this;
    }
    // An exception of the function cancels the build.
    Builder &progress(Progress function) {
        auto call = [](void *user, const char *phase, std::size_t length, std::size_t done, std::size_t steps) {
            try {
                return (*static_cast<Progress *>(user))({phase, length}, done, steps);
            } catch (...) {
                return false;
            }
        };
        auto destroy = [](void *user) { delete static_cast<Progress *>(user); };
        check(kiln_builder_set_progress(get(), call, new Progress(std::move(function)), destroy));
        return *this;
    }
    // Fills a batch by kiln_batch_set and returns true, or false behind the last one. An exception of the function fails the build.
    Builder &calibrate(std::string_view algorithm, std::function<bool(kiln_batch_t *)> function) {
        using Function = std::function<bool(kiln_batch_t *)>;
        auto call = [](void *user, kiln_batch_t *batch) -> std::int32_t {
            try {
                return (*static_cast<Function *>(user))(batch) ? KILN_BATCH_FILLED : KILN_BATCH_END;
            } catch (...) {
                return -1;
            }
        };
        auto destroy = [](void *user) { delete static_cast<Function *>(user); };
        check(kiln_builder_set_calibration(get(), algorithm.data(), algorithm.size(), call,
                                           new Function(std::move(function)), destroy));
        return *this;
    }
    Build build(const Model &model) const {
        kiln_build_t *out = nullptr;
        check(kiln_builder_build(get(), model.get(), &out));
        return Build(out);
    }
    // Differences from the results of another backend, as JSON; with `bisect` also the layers at fault.
    Bytes compare(const Model &model, std::string_view against,
                  const std::vector<std::pair<std::string, DLTensor>> &inputs, double rtol = 1e-3, double atol = 1e-5,
                  bool bisect = true) const {
        std::vector<const char *> names;
        std::vector<DLTensor> tensors;
        for (const auto &input : inputs) {
            names.push_back(input.first.c_str());
            tensors.push_back(input.second);
        }
        return bytes(kiln_builder_compare, get(), model.get(), against.data(), against.size(), names.data(),
                     tensors.data(), inputs.size(), rtol, atol, bisect);
    }
    // The layers of a model, each with the reason why the backend refuses it, as JSON. Nothing is built.
    Bytes network_support(const Model &model) const {
        return bytes(kiln_builder_network_support, get(), model.get());
    }

private:
    static kiln_builder_t *make() {
        kiln_builder_t *out = nullptr;
        check(kiln_builder_create(&out));
        return out;
    }
};

#endif // KILN_RUNTIME_ONLY

} // namespace kiln

#endif
