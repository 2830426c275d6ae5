//! Whether the libraries are loaded whose plug-in layers a program's runs call.

use crate::RuntimeError;
use kiln_backend::Program;
use kiln_ops::plugin::registry;
use kiln_plan::{PlanHeader, PluginLayer, plugin_layers};

/// Refuses a program with a layer whose library is not loaded, or is another one than the plan was built with.
pub(crate) fn check(program: &Program, header: &PlanHeader) -> Result<(), RuntimeError> {
    let held = |l: &PluginLayer| header.plugins.iter().any(|r| r.embedded > 0 && r.digest == l.digest);
    let mut called = plugin_layers(program).into_iter().filter(|l| l.called);
    called.try_for_each(|l| check_layer(&l, held(&l)))
}

fn check_layer(l: &PluginLayer, held: bool) -> Result<(), RuntimeError> {
    let refuse = |found: String| {
        Err(RuntimeError::PluginLayer {
            label: l.label.clone(),
            layer: l.layer.to_string(),
            wanted: format!("\"{}\" {}{}", l.library, l.version, of_hash(&l.digest)),
            found: match held {
                true => format!("{found}; the plan holds it: permit it (--embedded-plugins)"),
                false => found,
            },
        })
    };
    let name = &l.layer;
    let Some(record) = registry::find(&name.space, &name.name, Some(&name.version)) else {
        let other = registry::find(&name.space, &name.name, None);
        return refuse(match other {
            Some(o) => {
                format!("there is version {} of the layer, in {}", o.name.version, o.library.path.display())
            }
            None => "no library here has it".into(),
        });
    };
    let here = &record.library;
    match here.version == l.version && (l.digest.is_empty() || here.digest == l.digest) {
        true => Ok(()),
        false => refuse(format!(
            "loaded is \"{}\" {}{}, {}",
            here.name,
            here.version,
            of_hash(&here.digest),
            here.path.display()
        )),
    }
}

/// The hash of a library, shortened, for messages.
fn of_hash(digest: &str) -> String {
    match digest.get(..16) {
        Some(start) => format!(" (hash {start}…)"),
        None => String::new(),
    }
}
