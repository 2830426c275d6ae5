#!/usr/bin/env bash
# Tests the Python package: makes the wheel of what the workspace has built, installs it into .cache/python beside the packages of
# the tests, checks types and stubs, and runs python/tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ENVIRONMENT=$PWD/.cache/python
[ -x "$ENVIRONMENT/bin/pytest" ] || { echo "python: $ENVIRONMENT is missing: run scripts/setup.sh" >&2; exit 1; }

export WHEELS=$PWD/.cache/wheels
bash scripts/wheel.sh --dev
"$ENVIRONMENT/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall "$WHEELS"/kiln_engine-*.whl
PACKAGE=$PWD/python
cd "$PACKAGE"
"$ENVIRONMENT/bin/mypy" --no-error-summary kiln/*.py kiln/torch/*.py
"$ENVIRONMENT/bin/stubtest" kiln._kiln --mypy-config-file pyproject.toml --allowlist stubtest.txt --ignore-unused-allowlist
# Python looks in the current folder first, and python/kiln lacks the compiled module that the wheel has: the tests, which start
# further Pythons, run from an empty folder.
EMPTY=$(mktemp --directory)
trap 'rm -rf "$EMPTY"' EXIT
cd "$EMPTY"
"$ENVIRONMENT/bin/pytest" -q -p no:cacheprovider -c "$PACKAGE/pyproject.toml" --rootdir "$PACKAGE" "$PACKAGE/tests" "$@"
