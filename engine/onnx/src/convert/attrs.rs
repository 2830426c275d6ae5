//! Attributes of the node available, as the types that IR attributes want.

use kiln_ir::DType;

use super::cx::Cx;
use super::dtype::dtype_of_number;
use crate::error::Refusal;
use crate::model::FromAttribute;

impl<'a> Cx<'a> {
    /// An attribute as a Rust type, if it is there.
    pub(crate) fn attr<T: FromAttribute<'a>>(&self, name: &str) -> Result<Option<T>, Refusal> {
        self.skip(name);
        Ok(self.node.attr(name)?)
    }

    /// An attribute that has to be there.
    pub(crate) fn require_attr<T: FromAttribute<'a>>(&self, name: &str) -> Result<T, Refusal> {
        self.skip(name);
        Ok(self.node.require_attr(name)?)
    }

    /// An integer with its default.
    pub(crate) fn int(&self, name: &str, default: i64) -> Result<i64, Refusal> {
        Ok(self.attr(name)?.unwrap_or(default))
    }

    /// A float with its default.
    pub(crate) fn float(&self, name: &str, default: f32) -> Result<f64, Refusal> {
        Ok(f64::from(self.attr(name)?.unwrap_or(default)))
    }

    /// An integer that is a truth value, with its default. Any number but 0 is true.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Refusal> {
        Ok(self.attr(name)?.unwrap_or(i64::from(default)) != 0)
    }

    /// A string with its default.
    pub(crate) fn text(&self, name: &str, default: &'a str) -> Result<&'a str, Refusal> {
        Ok(self.attr(name)?.unwrap_or(default))
    }

    /// A list of integers, if it is there.
    pub(crate) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, Refusal> {
        Ok(self.attr::<&[i64]>(name)?.map(<[i64]>::to_vec))
    }

    /// A list of floats, empty if it is not there.
    pub(crate) fn floats(&self, name: &str) -> Result<Vec<f64>, Refusal> {
        let list = self.attr::<&[f32]>(name)?.unwrap_or_default();
        Ok(list.iter().map(|x| f64::from(*x)).collect())
    }

    /// An element type, if it is there.
    pub(crate) fn dtype_attr(&self, name: &str) -> Result<Option<DType>, Refusal> {
        self.attr::<i64>(name)?.map(dtype_of_number).transpose()
    }
}
