//! Structs are laid out in C and C++ as in Rust.

use super::install::{Installed, succeeded};
use kiln_c_core::dlpack::{DLDataType, DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use kiln_c_core::io::kiln_io_t;
use kiln_c_core::options::kiln_options_t;
use std::mem::{offset_of, size_of};

macro_rules! layout {
    ($($name:ident { $($field:ident),* })*) => {{
        let (mut rust, mut c) = (String::new(), String::new());
        $(
            rust += &format!("{} {}\n", stringify!($name), size_of::<$name>());
            c += &format!("printf(\"{0} %zu\\n\", sizeof({0}));\n", stringify!($name));
            $(
                rust += &format!("{} {}\n", stringify!($field), offset_of!($name, $field));
                c += &format!("printf(\"{1} %zu\\n\", offsetof({0}, {1}));\n", stringify!($name), stringify!($field));
            )*
        )*
        (rust, c)
    }};
}

#[test]
fn structs_are_laid_out_alike_in_c_cpp_and_rust() {
    let (rust, c) = layout! {
        kiln_options_t { struct_size, path, path_length, level, embedded, device, device_length, weight_budget }
        kiln_io_t { struct_size, name, name_length, mode, ndim, dims, dtype, is_shape_input, format, format_length }
        DLPackVersion { major, minor }
        DLDevice { device_type, device_id }
        DLDataType { code, bits, lanes }
        DLTensor { data, device, ndim, dtype, shape, strides, byte_offset }
        DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor }
    };
    let installed = Installed::new();
    let source = format!("#include \"kiln.h\"\n#include <stdio.h>\nint main(void) {{\n{c}return 0;\n}}\n");
    for (compiler, std, suffix) in [("cc", "c11", "c"), ("cc", "c99", "c"), ("c++", "c++17", "cc")] {
        let file = installed.folder().join(format!("layout.{suffix}"));
        std::fs::write(&file, &source).unwrap();
        let script = format!(
            "{compiler} -std={std} -Wall -Wextra -Werror -pedantic -I \"$PREFIX/include\" '{}' -o \"$OUT/layout\" && \"$OUT/layout\"",
            file.display()
        );
        assert_eq!(succeeded(installed.shell(&script), &script), rust, "{compiler} -std={std}");
    }
}

/// A program may have DLPack's own header as well: the structs are declared once.
#[test]
fn the_header_of_dlpack_is_taken_where_it_is() {
    let installed = Installed::new();
    let own = installed.folder().join("dlpack");
    std::fs::create_dir(&own).unwrap();
    let ours = std::fs::read_to_string(super::data::root().join("capi/include/kiln_dlpack.h")).unwrap();
    let structs = ours.split("#define DLPACK_DLPACK_H_").nth(1).unwrap();
    let structs = structs.rsplitn(3, "#endif").nth(2).unwrap();
    let header = format!(
        "#ifndef DLPACK_DLPACK_H_\n#define DLPACK_DLPACK_H_\n#include <stdint.h>\n{structs}\n#endif\n"
    );
    std::fs::write(own.join("dlpack.h"), header).unwrap();
    let orders = [
        "#include <dlpack/dlpack.h>\n#include \"kiln.h\"\n",
        "#include \"kiln.h\"\n#include <dlpack/dlpack.h>\n",
    ];
    for order in orders {
        let file = installed.folder().join("both.c");
        std::fs::write(&file, format!("{order}int main(void) {{ return (int)sizeof(DLTensor) == 0; }}\n"))
            .unwrap();
        let script = "cc -std=c11 -Wall -Werror -pedantic -I \"$PREFIX/include\" -I \"$OUT\" -c \"$OUT/both.c\" -o \"$OUT/both.o\"";
        succeeded(installed.shell(script), order);
    }
}
