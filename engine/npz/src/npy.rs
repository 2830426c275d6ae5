//! One array as a file: magic, version, header, elements.

use std::io::Read;

use crate::array::byte_size;
use crate::header::{Header, render};
use crate::{Array, NpyType, NpzError};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header read. NumPy writes 128 bytes for any array of the supported types but of enormous rank.
const MAX_HEADER: usize = 64 * 1024;

/// Reads one array, of format version 1, 2 or 3, that fills `bytes` exactly.
pub fn read_npy(bytes: &[u8]) -> Result<Array, NpzError> {
    read_from(bytes, bytes.len() as u64)
}

/// The bytes of an NPY file of format version 1; an error if `data` does not fit type and shape.
pub fn write_npy(array: &Array) -> Result<Vec<u8>, NpzError> {
    let mut file = head(array)?;
    file.extend_from_slice(&array.data);
    Ok(file)
}

/// The bytes in front of the elements.
pub(crate) fn head(array: &Array) -> Result<Vec<u8>, NpzError> {
    array.check()?;
    let mut header = render(array.dtype, &array.shape);
    let padding = 64 - (MAGIC.len() + 4 + header.len() + 1) % 64;
    header.extend(std::iter::repeat_n(' ', padding % 64));
    header.push('\n');
    let length = u16::try_from(header.len())
        .map_err(|_| NpzError::Header(format!("{} dimensions are too many", array.shape.len())))?;
    Ok([MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes()].concat())
}

/// Reads one array from a stream of at most `limit` bytes, which it must end. Memory grows with what arrives.
pub(crate) fn read_from(mut stream: impl Read, limit: u64) -> Result<Array, NpzError> {
    let header = read_header(&mut stream)?;
    read_elements(header, stream, limit)
}

/// Reads what follows a header.
pub(crate) fn read_elements(header: Header, stream: impl Read, limit: u64) -> Result<Array, NpzError> {
    let wanted = byte_size(header.dtype, &header.shape)?;
    let size_error =
        |found| NpzError::Size { shape: header.shape.clone(), dtype: header.dtype, wanted, found };
    if wanted > limit {
        return Err(size_error(limit));
    }
    let mut data = Vec::new();
    stream.take(wanted.saturating_add(1)).read_to_end(&mut data).map_err(damaged)?;
    if data.len() as u64 != wanted {
        return Err(size_error(data.len() as u64));
    }
    if header.fortran_order && header.shape.len() > 1 {
        data = c_order(&data, header.dtype, &header.shape);
    }
    Array::new(header.dtype, header.shape, data)
}

pub(crate) fn read_header(stream: &mut impl Read) -> Result<Header, NpzError> {
    let mut start = [0; 8];
    stream.read_exact(&mut start).map_err(damaged)?;
    if &start[..6] != MAGIC {
        return Err(NpzError::Header("it does not begin with the magic \\x93NUMPY".into()));
    }
    let length = match start[6] {
        1 => usize::from(u16::from_le_bytes(take(stream)?)),
        2 | 3 => usize::try_from(u32::from_le_bytes(take(stream)?)).unwrap_or(usize::MAX),
        version => return Err(NpzError::Header(format!("format version {version} is not 1, 2 or 3"))),
    };
    if length > MAX_HEADER {
        return Err(NpzError::Header(format!("a header of {length} bytes is longer than {MAX_HEADER}")));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).map_err(damaged)?;
    let text = std::str::from_utf8(&text).map_err(|_| NpzError::Header("the header is not text".into()))?;
    Header::parse(text)
}

fn take<const N: usize>(stream: &mut impl Read) -> Result<[u8; N], NpzError> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map_err(damaged)?;
    Ok(bytes)
}

fn damaged(error: std::io::Error) -> NpzError {
    NpzError::Header(format!("it ends early or is damaged ({error})"))
}

/// Elements of a Fortran-ordered array put in C order. `data` has as many bytes as the shape takes.
fn c_order(data: &[u8], dtype: NpyType, shape: &[u64]) -> Vec<u8> {
    let size = dtype.size() as usize;
    let dims: Vec<usize> = shape.iter().map(|dim| *dim as usize).collect();
    let mut index = vec![0usize; dims.len()];
    let mut out = Vec::with_capacity(data.len());
    for _ in 0..data.len() / size {
        let offset = index.iter().zip(&dims).rev().fold(0, |sum, (i, dim)| sum * dim + i);
        out.extend_from_slice(&data[offset * size..][..size]);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    out
}
