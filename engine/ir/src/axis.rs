//! Axes as attributes name them: negative ones count from the last dimension.

use crate::error::OpError;

/// An axis counted from the end if negative; refused if outside `0..rank`.
pub fn normalize_axis(a: i64, rank: usize, name: &str) -> Result<usize, OpError> {
    let r = rank as i64;
    if (-r..r).contains(&a) {
        return Ok(a.rem_euclid(r) as usize);
    }
    Err(OpError::Attr { name: name.into(), found: a.to_string(), wanted: format!("in -{rank}..{rank}") })
}

/// Axes in range, sorted; repetition is refused.
pub fn normalize_axes(axes: &[i64], rank: usize, name: &str) -> Result<Vec<usize>, OpError> {
    let mut v = axes.iter().map(|&a| normalize_axis(a, rank, name)).collect::<Result<Vec<_>, _>>()?;
    v.sort_unstable();
    if v.windows(2).any(|w| w[0] == w[1]) {
        return Err(OpError::Attr {
            name: name.into(),
            found: format!("{axes:?}"),
            wanted: "without repetition".into(),
        });
    }
    Ok(v)
}
