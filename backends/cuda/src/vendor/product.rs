//! Matrix products as cuBLASLt takes them: results row by row are its transposed ones column by column.

use super::cublaslt::{Api, ComputeType, DataType, Described, Epilogue, Matrix, Multiply, Product, TITLE};
use super::library::{Blob, missing};
use super::tail::{Behind, chain, extra_dims, input_dims, output_dims};
use super::{Library, Places, WORKSPACE, given, rank, ranked};
use crate::driver::{Call, Gpu};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Site, op_error, unsupported};
use kiln_ir::DType;
use kiln_ops::matmul::MATMUL;
use std::sync::Arc;

const TACTIC: &str = "cublaslt.matmul";
const MAGIC: &str = "kiln-cublaslt-1";

/// Types of operands and results, of sums and of scales.
struct Types {
    operand: DataType,
    result: DataType,
    compute: ComputeType,
    scale: DataType,
}

fn types(site: &Site<'_>) -> Result<Types, BackendError> {
    use ComputeType::{
        CUBLAS_COMPUTE_32F as F32, CUBLAS_COMPUTE_32F_FAST_TF32 as TF32, CUBLAS_COMPUTE_32I as I32,
    };
    use DataType::{CUDA_R_8I, CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_32I};
    let float = |operand, compute| Types { operand, result: operand, compute, scale: CUDA_R_32F };
    match (site.dtype(0), site.dtype(1), site.out_dtype(0)) {
        (Some(DType::F16), Some(DType::F16), DType::F16) => Ok(float(CUDA_R_16F, F32)),
        (Some(DType::BF16), Some(DType::BF16), DType::BF16) => Ok(float(CUDA_R_16BF, F32)),
        (Some(DType::F32), Some(DType::F32), DType::F32) => {
            Ok(float(CUDA_R_32F, if site.target.has("tf32") { TF32 } else { F32 }))
        }
        (Some(DType::I8), Some(DType::I8), DType::I32) => {
            Ok(Types { operand: CUDA_R_8I, result: CUDA_R_32I, compute: I32, scale: CUDA_R_32I })
        }
        (a, b, y) => unsupported(format!("products of {a:?} and {b:?} to {y}")),
    }
}

/// A product, and which extra is its bias.
fn problem(site: &Site<'_>) -> Result<(Product, Option<usize>), BackendError> {
    if !site.op()?.is(MATMUL) {
        return unsupported("products of matrices alone");
    }
    let t = types(site)?;
    let (Some(a), Some(b), Some(y)) = (input_dims(site, 0), input_dims(site, 1), output_dims(site)) else {
        return unsupported("shapes that are not fixed");
    };
    let trans = |name| site.op()?.attrs().bool(name).map_err(op_error);
    let (ta, tb) = (trans("trans_a")?, trans("trans_b")?);
    let ([.., ar, ac], [.., br, bc], [.., _, n]) = (&a[..], &b[..], &y[..]) else {
        return unsupported("products of vectors");
    };
    let (mut m, k) = if ta { (*ac, *ar) } else { (*ar, *ac) };
    if a.iter().chain(&b).chain(&y).any(|&d| d == 0 || i32::try_from(d).is_err()) {
        return unsupported("sizes of none or beyond 32 bits");
    }
    let (over_a, over_b) = (&a[..a.len() - 2], &b[..b.len() - 2]);
    let mut batch: usize = over_a.iter().product();
    let strides = if over_a == over_b {
        (m * k, k * n)
    } else if over_b.is_empty() && !ta {
        (m, batch) = (m * batch, 1);
        (0, 0)
    } else {
        return unsupported("a batch of one operand alone");
    };
    let aligned = [m, k, *n].iter().all(|d| d % 4 == 0);
    let integers = t.operand == DataType::CUDA_R_8I;
    if integers && (ta || !tb || !aligned) {
        return unsupported("8-bit integers that are not aligned along the depth");
    }
    let (bias, relu) = match chain(site).as_deref() {
        Some([]) => (None, false),
        Some([Behind::Relu]) => (None, true),
        Some(&[Behind::Add(e)]) => (Some(e), false),
        Some(&[Behind::Add(e), Behind::Relu]) => (Some(e), true),
        _ => return unsupported("other operators than a bias and relu behind it"),
    };
    if let Some(e) = bias {
        let d = extra_dims(site, e).unwrap_or_default();
        if d.last() != Some(n) || d.iter().product::<usize>() != *n || integers {
            return unsupported("an addition that is no bias of the columns");
        }
    }
    let matrix = |dtype, rows, cols, stride| Matrix { dtype, rows, cols, leading: rows, stride };
    let product = Product {
        a: matrix(t.operand, *bc, *br, strides.1),
        b: matrix(t.operand, if ta { m } else { k }, if ta { k } else { m }, strides.0),
        d: matrix(t.result, *n, m, m * n),
        trans: [tb, ta],
        batch,
        compute: t.compute,
        scale: t.scale,
        epilogue: match (bias.is_some(), relu) {
            (false, false) => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
            (false, true) => Epilogue::CUBLASLT_EPILOGUE_RELU,
            (true, false) => Epilogue::CUBLASLT_EPILOGUE_BIAS,
            (true, true) => Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
        },
    };
    Ok((product, bias))
}

pub fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    problem(site)?;
    let version = Api::get().map_err(missing)?.version();
    Ok(ranked(TACTIC, &format!("{TITLE} {version}")))
}

/// An address that is aligned as tensors are, for the library to choose by.
const SOME_ADDRESS: u64 = 256;

pub fn compile(site: &Site<'_>, tactic: &Tactic, gpu: &Arc<Gpu>) -> Result<Vec<u8>, BackendError> {
    let (product, bias) = problem(site)?;
    let api = Api::get().map_err(missing)?;
    let version = api.version();
    let described = Described::new(api, gpu, &product, bias.map_or(0, |_| SOME_ADDRESS))?;
    let rank = rank(tactic);
    let Some((algorithm, workspace)) = described.propose(rank, WORKSPACE)? else {
        return unsupported(format!("{TITLE} {version} has no algorithm for {product:?}"));
    };
    let words = algorithm.into_iter().chain([workspace as u64, product.compute as u64]).collect();
    Ok(Blob { version, words }.write(MAGIC))
}

pub fn load(site: &Site<'_>, blob: &[u8], gpu: &Arc<Gpu>) -> Result<Arc<dyn Library>, BackendError> {
    let (mut product, bias) = problem(site)?;
    let api = Api::get().map_err(missing)?;
    let words = Blob::read(blob, MAGIC, TITLE, api.version(), 10)?.words;
    let (&[a, b, c, d, e, f, g, h], &[workspace, compute]) = words.split_at(8) else {
        return Err(missing("a step of cuBLASLt without its numbers"));
    };
    let (algorithm, workspace) = ([a, b, c, d, e, f, g, h], workspace.min(WORKSPACE as u64));
    // The device may allow TF32 where the build did not.
    product.compute = compute_type(compute)?;
    Ok(Arc::new(Loaded { api, gpu: gpu.clone(), product, bias, algorithm, workspace }))
}

/// The type of sums that a blob stores by its number.
fn compute_type(number: u64) -> Result<ComputeType, BackendError> {
    use ComputeType::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32I};
    let known = [CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32I];
    known.into_iter().find(|c| *c as u64 == number).ok_or_else(|| {
        BackendError::Incompatible(format!(
            "a step of {TITLE} sums in type {number}, which no plan of this version has; build the plan again"
        ))
    })
}

struct Loaded {
    api: &'static Api,
    gpu: Arc<Gpu>,
    product: Product,
    bias: Option<usize>,
    algorithm: [u64; 8],
    workspace: u64,
}

impl Library for Loaded {
    fn workspace(&self) -> u64 {
        self.workspace
    }

    fn prepare(&self, places: &Places) -> Result<Arc<dyn Call>, BackendError> {
        let bias = self.bias.and_then(|e| places.extras.get(e).copied()).unwrap_or(0);
        Ok(Arc::new(Multiply {
            described: Described::new(self.api, &self.gpu, &self.product, bias)?,
            algorithm: self.algorithm,
            at: [given(places, 1)?, given(places, 0)?, places.output, places.scratch],
            workspace: self.workspace as usize,
        }))
    }
}
