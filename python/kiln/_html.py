"""Tables of engines, networks and reports for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kiln._kiln import BuildReport, Engine, Network

# Rows of a table at most; the rest is counted.
_ROWS = 200


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table. All cells are text."""
    cells = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines, left = [], 0
    for number, row in enumerate(rows):
        if number >= _ROWS:
            left += 1
            continue
        lines.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>")
    more = f"<caption>and {left} more</caption>" if left else ""
    return f"<b>{escape(title)}</b><table>{more}<thead><tr>{cells}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def engine(e: Engine) -> str:
    """Inputs and outputs of an engine."""
    rows = ((t.mode, t.name, t.dtype, "×".join(map(str, t.dims)), t.format) for t in e.io)
    target = e.target
    return table(f"{e.name} on {target.backend}: {target.device}", ("", "name", "type", "shape", "format"), rows)


def report(r: BuildReport) -> str:
    """Steps of a build."""
    rows = (
        (s.name, s.ops, s.tactic, "" if s.ns is None else f"{s.ns / 1000:.1f}", s.candidates) for s in r.steps
    )
    title = f"{len(r.steps)} steps for {r.backend}: {r.target.device}, built in {r.spent['total']:.2f} s"
    return table(title, ("layer", "operators", "tactic", "µs", "candidates"), rows)


def network(n: Network) -> str:
    """Layers of a network."""

    def tensors(all_of: Iterable[Any]) -> str:
        shown = (f"{t.name} {t.dtype}[{','.join(t.dims)}]" if t is not None else "-" for t in all_of)
        return ", ".join(shown)

    rows = ((layer.name, layer.kind, tensors(layer.inputs), tensors(layer.outputs)) for layer in n.layers)
    return table(f"{n.name}: {len(n)} layers", ("layer", "kind", "inputs", "outputs"), rows)
