//! Conversion of an encoded tensor to checked bytes.

use bytes::Bytes;

use super::{DataType, TensorData, typed};
use crate::error::{OnnxError, TensorFault};
use crate::load::External;
use crate::proto::{TensorProto, tensor_proto::DataLocation};

impl TensorData {
    /// Extracts a tensor; `label` names it in errors. Raw and external data is shared, data in typed fields is packed
    /// into new bytes no longer than the decoded field.
    pub(crate) fn read(proto: &TensorProto, label: &str, external: &External) -> Result<Self, OnnxError> {
        let bad = |fault| OnnxError::BadTensor { tensor: label.to_owned(), fault };
        let dtype = DataType::from_number(proto.data_type);
        let dtype = dtype.ok_or_else(|| bad(TensorFault::UnknownType(proto.data_type)))?;
        if dtype == DataType::String {
            return Err(bad(TensorFault::Strings));
        }
        let dims = check_dims(&proto.dims).map_err(bad)?;
        let (count, wanted) = sizes(dtype, &dims).map_err(bad)?;
        let bytes = match DataLocation::try_from(proto.data_location) {
            Ok(DataLocation::External) => external.read(proto, label)?,
            Ok(DataLocation::Default) => inline(proto, dtype, &dims, count).map_err(bad)?,
            Err(_) => return Err(bad(TensorFault::UnknownLocation(proto.data_location))),
        };
        if bytes.len() as u64 != wanted {
            return Err(bad(size_fault(dims, dtype, wanted, bytes.len() as u64, "bytes")));
        }
        Ok(Self { name: proto.name.clone(), dtype, dims, bytes })
    }
}

/// Dimensions of a file as unsigned numbers.
pub(crate) fn check_dims(dims: &[i64]) -> Result<Vec<u64>, TensorFault> {
    let check = |(axis, dim): (usize, &i64)| {
        u64::try_from(*dim).map_err(|_| TensorFault::NegativeDim { axis, found: *dim })
    };
    dims.iter().enumerate().map(check).collect()
}

/// Number of elements and of bytes. A zero dimension does not excuse others whose product overflows.
fn sizes(dtype: DataType, dims: &[u64]) -> Result<(u64, u64), TensorFault> {
    let overflow = || TensorFault::Overflow(dims.to_vec());
    let nonzero = dims.iter().filter(|dim| **dim > 0);
    let full = nonzero.copied().try_fold(1u64, u64::checked_mul).ok_or_else(overflow)?;
    let bytes = dtype.byte_size(full).ok_or_else(overflow)?;
    if dims.contains(&0) { Ok((0, 0)) } else { Ok((full, bytes)) }
}

/// Data that is stored in the message itself, in one field.
fn inline(proto: &TensorProto, dtype: DataType, dims: &[u64], count: u64) -> Result<Bytes, TensorFault> {
    let fields = typed::filled_fields(proto);
    match (proto.raw_data.is_empty(), &fields[..]) {
        (_, []) => Ok(proto.raw_data.clone()),
        (true, [field]) => {
            let wanted = typed::field_of(dtype);
            if *field != wanted {
                return Err(TensorFault::WrongField { dtype, found: field, wanted });
            }
            let (entries, found) = typed::entry_counts(proto, dtype, count);
            if entries != found {
                return Err(size_fault(dims.to_vec(), dtype, entries, found, "entries"));
            }
            typed::pack(proto, dtype).map(Bytes::from)
        }
        (false, [field, ..]) => Err(TensorFault::TwoPayloads { first: "raw_data", second: field }),
        (true, [first, second, ..]) => Err(TensorFault::TwoPayloads { first, second }),
    }
}

fn size_fault(dims: Vec<u64>, dtype: DataType, wanted: u64, found: u64, unit: &'static str) -> TensorFault {
    TensorFault::Size { dims, dtype, wanted, found, unit }
}
