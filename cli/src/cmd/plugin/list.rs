//! `kiln plugin list`: layers that were found, and libraries that were refused.

use crate::failure::Failure;
use crate::options::PluginOptions;
use crate::print::Printer;
use crate::session::discover;
use kiln::plugin::LayerRecord;
use serde_json::json;

/// List the layers of plug-in libraries, and libraries that were refused
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    plugins: PluginOptions,
}

/// Forms of a layer: "reference, expression, cuda(block, thread)".
pub fn forms(r: &LayerRecord) -> String {
    let mut all = vec!["reference".to_owned()];
    all.extend(r.expression.as_ref().map(|_| "expression".to_owned()));
    for k in &r.kernels {
        all.push(format!("{:?} {}", k.form.language, k.form.tactic).to_lowercase());
    }
    all.extend(r.natives.iter().map(|n| format!("native {}", n.form.tactic)));
    all.join(", ")
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    let found = kiln::plugin::layers(&discover(&args.plugins));
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for f in &found {
        let Ok((info, layers)) = &f.outcome else { continue };
        for r in layers {
            let fields: Vec<String> =
                r.fields.iter().map(|d| format!("{} = {}", d.name, d.default)).collect();
            let types: Vec<String> = r.types.iter().map(ToString::to_string).collect();
            values.push(json!({
                "namespace": r.name.space, "name": r.name.name, "version": r.name.version, "doc": r.doc,
                "types": types, "fields": r.fields.iter().map(|d| json!({
                    "name": d.name, "doc": d.doc, "required": d.required, "default": d.default.to_string(),
                })).collect::<Vec<_>>(),
                "forms": forms(r), "library": info.name, "library_version": info.version,
                "hash": r.library.digest, "path": info.path,
            }));
            let library = format!("{} {}", info.name, info.version);
            let name = r.name.to_string().replace('"', "").replace(", version", "");
            rows.push(vec![
                name,
                types.join("; "),
                fields.join(", "),
                forms(r),
                library,
                info.path.display().to_string(),
            ]);
        }
    }
    let refused: Vec<Vec<String>> = found
        .iter()
        .filter_map(|f| Some(vec![f.path.display().to_string(), f.outcome.as_ref().err()?.chain()]))
        .collect();
    out.value(&json!({
        "layers": values,
        "refused": refused.iter().map(|r| json!({"path": r[0], "because": r[1]})).collect::<Vec<_>>(),
    }));
    out.table(&["layer", "types", "fields", "forms", "library", "from"], rows);
    out.table(&["refused", "because"], refused);
    Ok(())
}
