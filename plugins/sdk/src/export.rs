//! The descriptor, and the table of layers behind it. No panic leaves a function of the table.

use crate::call::Call;
use crate::error::Error;
use crate::field::{leaked, values};
use crate::host;
use crate::layer::{Kernel, Language, Layer};
use crate::native;
use kiln_abi::*;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// The table of a library's layers.
pub struct Table {
    table: kiln_layers_v1,
    layers: Vec<&'static kiln_layer>,
}

// SAFETY: the table refers to memory that is never freed or changed.
unsafe impl Sync for Table {}
// SAFETY: as above.
unsafe impl Send for Table {}

/// The descriptor of a library of layers.
pub const fn descriptor(
    name: &'static str,
    vendor: &'static str,
    version: &'static str,
    init: unsafe extern "C" fn(*const kiln_host, *mut kiln_error) -> i32,
    get_interface: unsafe extern "C" fn(kiln_str) -> *const c_void,
) -> kiln_descriptor {
    kiln_descriptor {
        magic: KILN_MAGIC,
        struct_size: size_of::<kiln_descriptor>() as u32,
        abi_major: KILN_ABI_MAJOR,
        abi_minor: KILN_ABI_MINOR,
        min_host_minor: 8,
        kinds: KILN_KIND_LAYERS,
        flags: if cfg!(panic = "unwind") { KILN_FLAG_PANIC_UNWIND } else { KILN_FLAG_PANIC_ABORT },
        name: kiln_str::new(name),
        vendor: kiln_str::new(vendor),
        version: kiln_str::new(version),
        build_id: kiln_str::new(""),
        target: kiln_str::new(TARGET),
        init: Some(init),
        deinit: None,
        get_interface: Some(get_interface),
    }
}

/// Function `init` of a library.
///
/// # Safety
/// `table` is null or a table of the host that stays valid.
pub unsafe fn init(table: *const kiln_host, _: *mut kiln_error) -> i32 {
    // SAFETY: as this function's contract says.
    unsafe { host::remember(table) }
}

/// The table of the interface "kiln.layer/1", made once; null for another one.
///
/// # Safety
/// `id` is a view of text.
pub unsafe fn table(id: kiln_str, made: &'static OnceLock<Table>, make: fn(&mut Table)) -> *const c_void {
    // SAFETY: as this function's contract says.
    let id = unsafe { crate::field::slice(id.ptr.cast::<u8>(), id.len) };
    if id != KILN_LAYER_V1.as_bytes() {
        return std::ptr::null();
    }
    let table = catch_unwind(|| {
        made.get_or_init(|| {
            let mut t = Table {
                table: kiln_layers_v1 {
                    struct_size: size_of::<kiln_layers_v1>() as u32,
                    reserved: 0,
                    layers: std::ptr::null(),
                    layer_count: 0,
                },
                layers: Vec::new(),
            };
            make(&mut t);
            let layers: Vec<*const kiln_layer> = t.layers.iter().map(|l| &raw const **l).collect();
            t.table.layer_count = layers.len() as u64;
            t.table.layers = layers.leak().as_ptr();
            t
        })
    });
    table.map_or(std::ptr::null(), |t| (&raw const t.table).cast())
}

impl Table {
    /// Adds a layer.
    pub fn add<L: Layer>(&mut self) {
        let fields: Vec<kiln_field_def> = L::fields()
            .iter()
            .map(|f| kiln_field_def {
                name: kiln_str::new(f.name),
                doc: kiln_str::new(f.doc),
                required: f.required.into(),
                reserved: 0,
                value: leaked(&f.value),
            })
            .collect();
        let kernels: Vec<*const kiln_layer_kernel> =
            L::KERNELS.iter().map(|k| &raw const *Box::leak(Box::new(kernel(k)))).collect();
        let natives: Vec<*const kiln_layer_native> =
            native::tables::<L>().map(|n| &raw const *Box::leak(Box::new(n))).collect();
        let (fields, kernels, natives) = (fields.leak(), kernels.leak(), natives.leak());
        let layer = kiln_layer {
            struct_size: size_of::<kiln_layer>() as u32,
            flags: 0,
            name: kiln_str::new(L::NAME),
            space: kiln_str::new(L::SPACE),
            version: kiln_str::new(L::VERSION),
            doc: kiln_str::new(L::DOC),
            fields: fields.as_ptr(),
            field_count: fields.len() as u64,
            types: kiln_str::new(L::TYPES),
            outputs: kiln_str::new(L::OUTPUTS),
            aliases: kiln_str::new(L::ALIASES),
            workspace: kiln_str::new(L::WORKSPACE),
            expression: kiln_str::new(L::EXPRESSION),
            tolerance: kiln_str::new(L::TOLERANCE),
            kernels: kernels.as_ptr(),
            kernel_count: kernels.len() as u64,
            create: Some(create::<L>),
            destroy: Some(destroy::<L>),
            describe: Some(describe::<L>),
            run: Some(run::<L>),
            natives: natives.as_ptr(),
            native_count: natives.len() as u64,
            patterns: kiln_str::new(L::PATTERNS),
        };
        self.layers.push(Box::leak(Box::new(layer)));
    }
}

fn kernel(k: &Kernel) -> kiln_layer_kernel {
    kiln_layer_kernel {
        struct_size: size_of::<kiln_layer_kernel>() as u32,
        language: match k.language {
            Language::Cuda => KILN_LANGUAGE_CUDA,
            Language::Wgsl => KILN_LANGUAGE_WGSL,
        },
        tactic: kiln_str::new(k.tactic),
        types: kiln_str::new(k.types),
        condition: kiln_str::new(k.condition),
        source: kiln_str::new(k.source),
        entry: kiln_str::new(k.entry),
        grid: kiln_str::new(k.grid),
        block: kiln_str::new(k.block),
        shared: kiln_str::new(k.shared),
        params: kiln_str::new(k.params),
        count_entry: kiln_str::new(k.count.map_or("", |c| c.entry)),
        count_grid: kiln_str::new(k.count.map_or("", |c| c.grid)),
        count_block: kiln_str::new(k.count.map_or("", |c| c.block)),
    }
}

/// Runs the body of a function and returns its status; an error or a panic is recorded.
pub(crate) fn guard(err: *mut kiln_error, f: impl FnOnce() -> Result<i32, Error>) -> i32 {
    // State that a panic leaves half changed belongs to an instance that the host gives up.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(code)) => code,
        Ok(Err(Error::Invalid(m))) => host::report(err, KILN_INVALID_ARGUMENT, &m),
        Ok(Err(Error::Unsupported(m))) => host::report(err, KILN_UNSUPPORTED, &m),
        Err(payload) => {
            let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
                (Some(s), _) => (*s).to_owned(),
                (_, Some(s)) => s.clone(),
                _ => "with a value that is no text".to_owned(),
            };
            // Dropping what was panicked with may panic in turn.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(second);
            }
            host::report(err, KILN_PANICKED, &text)
        }
    }
}

unsafe extern "C" fn create<L: Layer>(
    fields: *const kiln_field,
    count: u64,
    out: *mut *mut kiln_layer_instance,
    err: *mut kiln_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the host passes views that are valid for the call.
        let layer = L::of(&unsafe { values(fields, count) }?)?;
        layer.check()?;
        // SAFETY: the host passes a place for the instance.
        unsafe { out.write(Box::into_raw(Box::new(layer)).cast()) };
        Ok(KILN_OK)
    })
}

unsafe extern "C" fn destroy<L: Layer>(instance: *mut kiln_layer_instance) {
    if !instance.is_null() {
        // SAFETY: `create` made it for this type, and the host gives it back once.
        guard(std::ptr::null_mut(), || unsafe {
            drop(Box::from_raw(instance.cast::<L>()));
            Ok(KILN_OK)
        });
    }
}

/// # Safety
/// The instance is one of `create` for this type, used by nobody else.
pub(crate) unsafe fn layer<'a, L: Layer>(instance: *mut kiln_layer_instance) -> Result<&'a mut L, Error> {
    // SAFETY: as this function's contract says.
    unsafe { instance.cast::<L>().as_mut() }.ok_or_else(|| Error::Invalid("there is no instance".into()))
}

unsafe extern "C" fn describe<L: Layer>(
    instance: *mut kiln_layer_instance,
    call: *const kiln_layer_call,
    out: *mut kiln_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes an instance of its own and a call that is valid meanwhile.
    guard(err, || unsafe {
        let none = || Error::Invalid("there is no call".into());
        let text = layer::<L>(instance)?.describe(&Call::new(call.as_ref().ok_or_else(none)?))?;
        Ok(host::write(out, &text))
    })
}

unsafe extern "C" fn run<L: Layer>(
    instance: *mut kiln_layer_instance,
    call: *const kiln_layer_call,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: as in `describe`.
    guard(err, || unsafe {
        let none = || Error::Invalid("there is no call".into());
        layer::<L>(instance)?.run(&mut Call::new(call.as_ref().ok_or_else(none)?))?;
        Ok(KILN_OK)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Count;

    crate::fields! {
        /// Fields of a layer with everything that a table has.
        pub struct Full {
            /// A number.
            by: f64 = 2.0,
        }
    }

    const COUNT: Count = Count { entry: "count", grid: "1", block: "64" };

    impl Layer for Full {
        const NAME: &'static str = "Full";
        const SPACE: &'static str = "test";
        const TYPES: &'static str = "f32:f32";
        const OUTPUTS: &'static str = "[n <= i0.d0]";
        const PATTERNS: &'static str = "mul(i0, $by)";
        const KERNELS: &'static [Kernel] =
            &[Kernel { tactic: "one", count: Some(COUNT), ..Kernel::new(Language::Cuda) }];

        fn run(&mut self, _: &mut Call<'_>) -> Result<(), Error> {
            if self.by.is_nan() { Err(Error::Invalid("by is no number".into())) } else { Ok(()) }
        }
    }

    fn text(s: kiln_str) -> String {
        // SAFETY: texts of the table are constant.
        let bytes = unsafe { crate::field::slice(s.ptr.cast::<u8>(), s.len) };
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn tables_hold_patterns_and_the_launch_that_finds_sizes() {
        static MADE: OnceLock<Table> = OnceLock::new();
        // SAFETY: the name is text.
        let table = unsafe { table(kiln_str::new(KILN_LAYER_V1), &MADE, |t| t.add::<Full>()) };
        assert!(!table.is_null());
        let layer = MADE.get().unwrap().layers[0];
        assert_eq!(text(layer.patterns), "mul(i0, $by)");
        // SAFETY: the table has one kernel.
        let kernel = unsafe { &**layer.kernels };
        let found = [kernel.count_entry, kernel.count_grid, kernel.count_block].map(text);
        assert_eq!(found, ["count", "1", "64"]);
    }
}
