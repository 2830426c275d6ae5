// Layers in C++17 over kiln_plugin.h: a layer is a class. No exception leaves a function of its tables.
//
//     class Twice {
//       public:
//         explicit Twice(const kiln::Fields &f) : factor_(f.number(0)) {}          // may throw: fields are refused
//         void run(const kiln_layer_call &call);                                    // the reference form
//         std::string describe(const kiln_layer_call &call);                        // optional: shapes of the outputs
//     };
//
// `kiln::layer<Twice>("Twice")` makes its table, whose texts the library fills in; `kiln::native<Twice>(...)` makes that of a native
// form. KILN_EXPORT_LAYERS exports tables. A function that throws becomes an error of the call:
//
//   std::invalid_argument      KILN_INVALID_ARGUMENT
//   kiln::Unsupported          KILN_UNSUPPORTED
//   std::bad_alloc             KILN_OUT_OF_MEMORY
//   everything else            KILN_INTERNAL, with the text of a std::exception
//
// What cannot be caught ends the process: exceptions in constructors of static objects, in destructors (which are `noexcept` unless they
// say otherwise), in functions that are `noexcept`, and in threads that the library has started.
#ifndef KILN_LAYER_HPP
#define KILN_LAYER_HPP

#include "kiln_plugin.h"

// The least minor version of the host that the library runs with; define it in front of this header.
#ifndef KILN_LEAST_HOST_MINOR
#define KILN_LEAST_HOST_MINOR 8
#endif

#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kiln {

// The host's functions, once the library is started.
inline const kiln_host *&host() noexcept {
    static const kiln_host *table = nullptr;
    return table;
}

// A view of a text that ends with a zero; its characters stay where they are.
inline kiln_str view(const char *text) noexcept { return {text, std::strlen(text)}; }

// Legal, but not implemented by the layer.
class Unsupported : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Runs a body and returns its status; an exception is recorded as the error of the call.
template <class F> int32_t guarded(kiln_error *err, F &&body) noexcept {
    const auto refuse = [err](int32_t code, const char *why) noexcept {
        if (err != nullptr && host() != nullptr) host()->error_set(err, code, view(why));
        return code;
    };
    try {
        body();
        return KILN_OK;
    } catch (const std::invalid_argument &e) {
        return refuse(KILN_INVALID_ARGUMENT, e.what());
    } catch (const Unsupported &e) {
        return refuse(KILN_UNSUPPORTED, e.what());
    } catch (const std::bad_alloc &) {
        return refuse(KILN_OUT_OF_MEMORY, "the layer found no memory");
    } catch (const std::exception &e) {
        return refuse(KILN_INTERNAL, e.what());
    } catch (...) {
        return refuse(KILN_INTERNAL, "an exception that is no std::exception");
    }
}

// Values of the fields of a layer, in the order of their definitions, by position.
class Fields {
  public:
    Fields(const kiln_field *all, uint64_t count) noexcept : all_(all), count_(count) {}

    int64_t integer(uint64_t i) const { return *values<int64_t>(i, KILN_FIELD_INT); }
    double number(uint64_t i) const { return *values<double>(i, KILN_FIELD_FLOAT); }
    std::string text(uint64_t i) const { return string(*values<kiln_str>(i, KILN_FIELD_STRING)); }
    std::vector<int64_t> integers(uint64_t i) const { return list<int64_t>(i, KILN_FIELD_INTS); }
    std::vector<double> numbers(uint64_t i) const { return list<double>(i, KILN_FIELD_FLOATS); }
    std::vector<std::string> texts(uint64_t i) const {
        std::vector<std::string> found;
        for (const kiln_str &s : list<kiln_str>(i, KILN_FIELD_STRINGS)) found.push_back(string(s));
        return found;
    }

  private:
    template <class T> const T *values(uint64_t i, uint32_t kind) const {
        if (i >= count_ || all_[i].kind != kind) throw std::invalid_argument("a field of another number or kind");
        return static_cast<const T *>(all_[i].data);
    }
    template <class T> std::vector<T> list(uint64_t i, uint32_t kind) const {
        const T *first = values<T>(i, kind);
        return all_[i].count == 0 ? std::vector<T>() : std::vector<T>(first, first + all_[i].count);
    }
    static std::string string(const kiln_str &s) { return s.len == 0 ? std::string() : std::string(s.ptr, s.len); }

    const kiln_field *all_;
    uint64_t count_;
};

// The functions of a layer's tables.
template <class L> struct Slots {
    static L &of(kiln_layer_instance *i) noexcept { return *reinterpret_cast<L *>(i); }

    static int32_t create(const kiln_field *f, uint64_t n, kiln_layer_instance **out, kiln_error *err) noexcept {
        return guarded(err, [&] { *out = reinterpret_cast<kiln_layer_instance *>(new L(Fields(f, n))); });
    }
    static void destroy(kiln_layer_instance *i) noexcept {
        guarded(nullptr, [&] { delete &of(i); });
    }
    static int32_t describe(kiln_layer_instance *i, const kiln_layer_call *c, kiln_sink *out, kiln_error *err) noexcept {
        int32_t written = KILN_OK;
        const int32_t done = guarded(err, [&] {
            const std::string text = of(i).describe(*c);
            written = host()->sink_write(out, reinterpret_cast<const uint8_t *>(text.data()), text.size());
        });
        return done == KILN_OK ? written : done;
    }
    static int32_t run(kiln_layer_instance *i, const kiln_layer_call *c, kiln_error *err) noexcept {
        return guarded(err, [&] { of(i).run(*c); });
    }
    static int32_t enqueue(kiln_layer_instance *i, kiln_native_state *, const kiln_native_call *c, kiln_error *err) noexcept {
        return guarded(err, [&] { of(i).enqueue(*c); });
    }
};

// The functions of a native form with a state, an object of class S.
template <class L, class S> struct StateSlots {
    static S &of(kiln_native_state *s) noexcept { return *reinterpret_cast<S *>(s); }

    static int32_t attach(kiln_layer_instance *i, const kiln_native_call *c, kiln_native_state **out, kiln_error *err) noexcept {
        return guarded(err, [&] { *out = reinterpret_cast<kiln_native_state *>(new S(Slots<L>::of(i), *c)); });
    }
    static void detach(kiln_native_state *s) noexcept {
        guarded(nullptr, [&] { delete &of(s); });
    }
    static int32_t enqueue(kiln_layer_instance *i, kiln_native_state *s, const kiln_native_call *c, kiln_error *err) noexcept {
        return guarded(err, [&] { of(s).enqueue(Slots<L>::of(i), *c); });
    }
};

template <class L, class = void> struct Describes : std::false_type {};
template <class L>
struct Describes<L, std::void_t<decltype(std::declval<L &>().describe(std::declval<const kiln_layer_call &>()))>> : std::true_type {};

// The table of a layer of class L: its functions, version 1, and no texts but its name, which is a constant.
template <class L> kiln_layer layer(const char *name) noexcept {
    kiln_layer l{};
    l.struct_size = sizeof l;
    l.name = view(name);
    l.version = KILN_STR("1");
    l.create = Slots<L>::create;
    l.destroy = Slots<L>::destroy;
    if constexpr (Describes<L>::value) l.describe = Slots<L>::describe;
    l.run = Slots<L>::run;
    return l;
}

// The table of a native form: `L::enqueue(const kiln_native_call &)` puts work into the stream. With a class S, each context has a
// state `S(L &, const kiln_native_call &)`, and `S::enqueue(L &, const kiln_native_call &)` does.
template <class L, class S = void> kiln_layer_native native(uint32_t device, const char *tactic, uint32_t flags) noexcept {
    kiln_layer_native n{};
    n.struct_size = sizeof n;
    n.device = device;
    n.flags = flags;
    n.tactic = view(tactic);
    if constexpr (std::is_void_v<S>) {
        n.enqueue = Slots<L>::enqueue;
    } else {
        n.attach = StateSlots<L, S>::attach;
        n.detach = StateSlots<L, S>::detach;
        n.enqueue = StateSlots<L, S>::enqueue;
    }
    return n;
}

// The definition of a field with its default, which also sets the kind; the value stays where it is.
template <class T> kiln_field_def field(const char *name, const char *doc, const T &value) noexcept {
    static_assert(std::is_same_v<T, double> || std::is_same_v<T, int64_t> || std::is_same_v<T, kiln_str>);
    kiln_field_def f{};
    f.name = view(name);
    f.doc = view(doc);
    f.value.kind = std::is_same_v<T, double> ? KILN_FIELD_FLOAT : std::is_same_v<T, int64_t> ? KILN_FIELD_INT : KILN_FIELD_STRING;
    f.value.data = &value;
    f.value.count = 1;
    return f;
}

// The definition of a field that is a list, with its default.
template <class T> kiln_field_def list(const char *name, const char *doc, const T *values, uint64_t count) noexcept {
    static_assert(std::is_same_v<T, double> || std::is_same_v<T, int64_t> || std::is_same_v<T, kiln_str>);
    kiln_field_def f{};
    f.name = view(name);
    f.doc = view(doc);
    f.value.kind = std::is_same_v<T, double> ? KILN_FIELD_FLOATS : std::is_same_v<T, int64_t> ? KILN_FIELD_INTS : KILN_FIELD_STRINGS;
    f.value.data = values;
    f.value.count = count;
    return f;
}

inline int32_t init(const kiln_host *table, kiln_error *) noexcept {
    host() = table;
    return KILN_OK;
}

} // namespace kiln

// Exports a library of this name and version with layers, by addresses of their tables. It is found as libkiln_layers_NAME.so.
#define KILN_EXPORT_LAYERS(library, vendor, version, ...)                                                                               \
    namespace {                                                                                                                         \
    const kiln_layer *const kiln_layers_list[] = {__VA_ARGS__};                                                                         \
    const kiln_layers_v1 kiln_layers_table = {sizeof(kiln_layers_v1), 0, kiln_layers_list,                                              \
                                              sizeof kiln_layers_list / sizeof *kiln_layers_list};                                      \
    const void *kiln_layers_interface(kiln_str) noexcept { return &kiln_layers_table; }                                                 \
    }                                                                                                                                   \
    extern "C" const kiln_descriptor kiln_plugin_descriptor = {                                                                         \
        KILN_MAGIC,        sizeof(kiln_descriptor), KILN_ABI_MAJOR,    KILN_ABI_MINOR,        KILN_LEAST_HOST_MINOR, KILN_KIND_LAYERS, 0, \
        KILN_STR(library), KILN_STR(vendor),        KILN_STR(version), kiln_str{nullptr, 0}, KILN_STR(KILN_TARGET),                    \
        kiln::init,        nullptr,                 kiln_layers_interface}

#endif
