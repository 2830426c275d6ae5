//! Differences of tensors as rows of a table.

use crate::print::number;
use kiln::compare::Diff;

/// Heads of the cells of [`row`].
pub const HEAD: [&str; 6] = ["tensor", "max abs error", "max rel error", "max ULP", "off", "verdict"];

/// Cells of a difference.
pub fn row(d: &Diff) -> Vec<String> {
    if let Some(why) = &d.unlike {
        return vec![d.name.clone(), "–".into(), "–".into(), "–".into(), "–".into(), why.clone()];
    }
    let verdict = match d.first {
        None => "agrees".to_owned(),
        Some((i, f, w)) => format!("differs: element {i} is {}, wanted {}", number(f), number(w)),
    };
    vec![
        d.name.clone(),
        number(d.abs),
        number(d.rel),
        number(d.ulp),
        format!("{} of {}", d.off, d.count),
        verdict,
    ]
}
