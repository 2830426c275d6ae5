//! Flags of the tuner over build routes.

use super::Class::Own;
use super::Value::{None, Optional, Required};
use super::{Flag, flag};
use crate::trtexec::routes::{self, Search};
use crate::trtexec::values;

/// The most bytes of a file with an expression.
const LONGEST: u64 = 64 << 10;

fn expression_of(path: &str) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|e| format!("{path}: {e}"))?.len();
    if size > LONGEST {
        return Err(format!("{path} has {size} bytes, wanted an expression of at most {LONGEST}"));
    }
    std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))
}

pub const FLAGS: &[Flag] = &[
    flag(
        "setBuildRoute",
        Required("-NAME=VALUE …"),
        Own(|s, v| routes::fixed(v).map(|r| s.route = r)),
        "Settings of the build by name; --helpBuildRoute lists them",
    ),
    flag(
        "helpBuildRoute",
        Optional(""),
        Own(|s, v| {
            routes::help(v)?;
            s.help_route = Some(v.to_owned());
            Ok(())
        }),
        "Settings of build routes with their values, or one of them",
    ),
    flag(
        "tuneBuildRoutes",
        Required("-NAME=[A|B] …"),
        Own(|s, v| routes::choices(v).map(|c| s.tuning.choices = c)),
        "Build an engine by each route, measure all, and keep the fastest",
    ),
    flag(
        "tuneBuildRouteFile",
        Required("FILE"),
        Own(|s, v| routes::choices(&expression_of(v)?).map(|c| s.tuning.choices = c)),
        "As --tuneBuildRoutes, with the expression in a file",
    ),
    flag(
        "tuningSearch",
        Required("fast|full|mixed"),
        Own(|s, v| {
            s.tuning.search = match v {
                "fast" => Search::Fast,
                "full" => Search::Full,
                "mixed" => Search::Mixed,
                other => return Err(format!("\"{other}\", wanted fast, full or mixed")),
            };
            s.tuner_flags.push("--tuningSearch");
            Ok(())
        }),
        "Routes that are tried: settings one by one, all combinations, or both [full]",
    ),
    flag(
        "tuningCacheFile",
        Required("FILE"),
        Own(|s, v| {
            s.tuning.cache = Some(v.into());
            s.tuner_flags.push("--tuningCacheFile");
            Ok(())
        }),
        "File that times of routes are added to, in lines of JSON",
    ),
    flag(
        "tuningTimeOut",
        Required("S"),
        Own(|s, v| {
            s.tuning.limit = Some(values::seconds(v)?);
            s.tuner_flags.push("--tuningTimeOut");
            Ok(())
        }),
        "Seconds after which no further route is begun",
    ),
    flag(
        "continue",
        None,
        Own(|s, _| {
            s.tuning.resume = true;
            s.tuner_flags.push("--continue");
            Ok(())
        }),
        "Take times of --tuningCacheFile instead of measuring them again",
    ),
    flag(
        "saveAllEngines",
        None,
        Own(|s, _| {
            s.tuning.save_all = true;
            s.tuner_flags.push("--saveAllEngines");
            Ok(())
        }),
        "Store the engine of each route beside --saveEngine, with its number in the name",
    ),
    flag(
        "dryRun",
        None,
        Own(|s, _| {
            s.tuning.dry_run = true;
            s.tuner_flags.push("--dryRun");
            Ok(())
        }),
        "List the routes and build nothing",
    ),
];
