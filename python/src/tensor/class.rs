//! The class of tensors.

use super::aligned::Aligned;
use super::dlpack::Device;
use super::export;
use super::import::{Stream, foreign};
use super::lent::Owner;
use super::view::View;
use crate::dtype;
use crate::errors::argument;
use kiln::DType;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use pyo3::{ffi, intern};
use std::ffi::c_int;

/// Elements in host memory, or memory of another library's tensor on a device.
#[pyclass(frozen, module = "kiln")]
pub struct Tensor {
    place: Place,
    dtype: DType,
    shape: Vec<usize>,
}

/// Place of the elements.
enum Place {
    /// Host memory, dense.
    Host { elements: kiln::Tensor, readonly: bool },
    /// Memory on a device, which an object of another library keeps.
    Device { object: Py<PyAny>, address: usize, device: Device, strides: Option<Vec<isize>> },
}

impl Tensor {
    /// A tensor with a copy of these elements, which nobody else has.
    pub fn copied(t: &kiln::Tensor) -> Tensor {
        let bytes = Aligned::copied(t.bytes()).into_bytes();
        let elements = kiln::Tensor::from_bytes(t.dtype(), t.shape(), bytes).unwrap_or_else(|| t.clone());
        Tensor::host(elements, false)
    }

    /// A tensor with these elements where they are, which must not be written.
    pub fn shared(t: &kiln::Tensor) -> Tensor {
        Tensor::host(t.clone(), true)
    }

    fn host(elements: kiln::Tensor, readonly: bool) -> Tensor {
        let (dtype, shape) = (elements.dtype(), elements.shape().to_vec());
        Tensor { place: Place::Host { elements, readonly }, dtype, shape }
    }

    /// The elements, if they are in host memory, and whether they must not be written.
    pub fn elements(&self) -> PyResult<(&kiln::Tensor, bool)> {
        match &self.place {
            Place::Host { elements, readonly } => Ok((elements, *readonly)),
            Place::Device { device, .. } => {
                Err(argument(format!("the tensor is on {}, wanted one in host memory", device.name())))
            }
        }
    }

    /// The elements where they are.
    pub fn view(&self, py: Python<'_>, stream: Stream) -> PyResult<View> {
        match &self.place {
            Place::Host { elements, readonly } => Ok(View {
                dtype: self.dtype,
                shape: self.shape.clone(),
                strides: None,
                address: elements.bytes().as_ptr() as usize,
                device: Device::CPU,
                readonly: *readonly,
                owner: Owner::Kiln(elements.clone()),
            }),
            Place::Device { object, .. } => foreign(object.bind(py), stream),
        }
    }

    fn device_of(&self) -> Device {
        match &self.place {
            Place::Host { .. } => Device::CPU,
            Place::Device { device, .. } => *device,
        }
    }
}

/// The elements of any object that has some.
pub fn view(object: &Bound<'_, PyAny>, stream: Stream) -> PyResult<View> {
    match object.cast::<Tensor>() {
        Ok(tensor) => tensor.get().view(object.py(), stream),
        Err(_) => foreign(object, stream),
    }
}

#[pymethods]
impl Tensor {
    #[new]
    fn new(data: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        let view = view(data, Stream::default())?;
        if view.device.is_host() {
            let readonly = view.readonly;
            return Ok(Tensor::host(view.into_tensor()?, readonly));
        }
        let View { dtype, shape, strides, address, device, .. } = view;
        let object = data.clone().unbind();
        Ok(Tensor { place: Place::Device { object, address, device, strides }, dtype, shape })
    }

    #[staticmethod]
    fn zeros(dtype: &Bound<'_, PyAny>, shape: Vec<i64>) -> PyResult<Tensor> {
        let (dtype, shape) = (dtype::of_object(dtype)?, super::shape(shape)?);
        let zeros = kiln::Tensor::zeros(dtype, &shape).map_err(|e| argument(e.to_string()))?;
        Ok(Tensor::host(zeros, false))
    }

    #[staticmethod]
    fn from_bytes(data: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>, shape: Vec<i64>) -> PyResult<Tensor> {
        let (dtype, shape, bytes) = (dtype::of_object(dtype)?, super::shape(shape)?, super::bytes(data)?);
        let found = bytes.len();
        let made = kiln::Tensor::from_bytes(dtype, &shape, Aligned::copied(&bytes).into_bytes());
        made.map(|t| Tensor::host(t, false))
            .ok_or_else(|| argument(format!("{found} bytes are not a tensor of {dtype}{shape:?}")))
    }

    #[staticmethod]
    fn from_address(address: usize, dtype: &Bound<'_, PyAny>, shape: Vec<i64>) -> PyResult<Tensor> {
        let (dtype, shape) = (dtype::of_object(dtype)?, super::shape(shape)?);
        let none =
            kiln::Tensor::from_bytes(dtype, &[0], Vec::new()).ok_or_else(|| argument("no elements"))?;
        let owner = Owner::Kiln(none);
        let view = View { dtype, shape, strides: None, address, device: Device::CPU, readonly: true, owner };
        if address == 0 && view.bytes()? > 0 {
            return Err(argument("the address of the elements is 0"));
        }
        Ok(Tensor::host(view.copied()?, false))
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    #[getter]
    fn size(&self) -> usize {
        self.shape.iter().product()
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.dtype.bytes_for(self.size() as u64).unwrap_or(u64::MAX)
    }

    #[getter]
    fn device(&self) -> String {
        self.device_of().name()
    }

    #[getter]
    fn address(&self) -> usize {
        match &self.place {
            Place::Host { elements, .. } => elements.bytes().as_ptr() as usize,
            Place::Device { address, .. } => *address,
        }
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Place::Device { address, device, strides, object } = &self.place else {
            return Err(PyAttributeError::new_err(
                "the tensor is in host memory: use __dlpack__ or the buffer protocol",
            ));
        };
        let typestr = dtype::typestr(self.dtype).filter(|_| device.is_cuda());
        let Some(typestr) = typestr else {
            let text =
                format!("__cuda_array_interface__ has no name for {} on {}", self.dtype, device.name());
            return Err(PyAttributeError::new_err(text));
        };
        // The library that has the memory knows the stream of its elements.
        if let Ok(own) = object.bind(py).getattr(intern!(py, "__cuda_array_interface__")) {
            return Ok(own.cast_into::<PyDict>()?);
        }
        let all = PyDict::new(py);
        all.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        all.set_item("typestr", typestr)?;
        all.set_item("data", (*address, false))?;
        all.set_item("strides", strides.as_ref().map(|s| PyTuple::new(py, s)).transpose()?)?;
        all.set_item("stream", 1)?;
        all.set_item("version", 3)?;
        Ok(all)
    }

    fn to(&self, py: Python<'_>, dtype: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        let dtype = dtype::of_object(dtype)?;
        let (elements, _) = self.elements()?;
        let made = py.detach(|| kiln::Tensor::from_elems(dtype, elements.shape(), &elements.elems()));
        let wrong = || argument(format!("{} cannot become {dtype}", self.dtype));
        Ok(Tensor::copied(&made.ok_or_else(wrong)?))
    }

    /// The elements' bytes as numbers of 8 bits, which share the memory.
    fn raw(&self) -> PyResult<Tensor> {
        let (elements, readonly) = self.elements()?;
        let bytes = elements.shared_bytes();
        let len = elements.bytes().len();
        let made = kiln::Tensor::from_bytes(DType::U8, &[len], bytes);
        made.map(|t| Tensor::host(t, readonly)).ok_or_else(|| argument("the tensor has no bytes"))
    }

    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        export::by_helper(slf.as_any(), "numpy")
    }

    fn torch<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        export::by_helper(slf.as_any(), "torch")
    }

    fn tolist<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        export::by_helper(slf.as_any(), "tolist")
    }

    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.elements()?.0.bytes()))
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        export::array(slf.as_any(), dtype, copy)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match &self.place {
            Place::Host { elements, readonly } => {
                export::dlpack(py, elements, *readonly, stream, max_version, dl_device, copy)
            }
            Place::Device { object, .. } => {
                let all = PyDict::new(py);
                all.set_item("stream", stream)?;
                all.set_item("max_version", max_version)?;
                all.set_item("dl_device", dl_device)?;
                all.set_item("copy", copy)?;
                object.bind(py).call_method("__dlpack__", (), Some(&all))
            }
        }
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.device_of();
        (device.kind, device.id)
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let (elements, readonly) = this.elements().map_err(|e| export::no_buffer(&e.to_string()))?;
        // SAFETY: Python passes a structure to be filled.
        unsafe { export::fill(view, flags, elements, readonly, slf.as_any()) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python passes what `__getbuffer__` filled.
        unsafe { export::release(view) };
    }

    fn __len__(&self) -> PyResult<usize> {
        self.shape
            .first()
            .copied()
            .ok_or_else(|| PyTypeError::new_err("a tensor without dimensions has no length"))
    }

    fn __repr__(&self) -> String {
        let dims: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        format!("kiln.Tensor({}, shape=({}), {})", self.dtype, dims.join(", "), self.device_of().name())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.place {
            Place::Device { object, .. } => visit.call(object),
            Place::Host { .. } => Ok(()),
        }
    }
}
