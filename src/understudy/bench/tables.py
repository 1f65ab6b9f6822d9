"""A benchmark as tables: for a terminal, and the lines of the documentation's."""

from __future__ import annotations

from understudy._util.quantities import format_bytes, format_count, format_ms
from understudy._util.text_tables import Table
from understudy.transforms import list_transforms

from .record import Bench, Measured, Row

_NAMES = {
    "eager": "PyTorch eager",
    "compiled": "torch.compile",
    "onnx": "ONNX Runtime",
    "openvino": "OpenVINO",
}


def table(bench: Bench) -> Table:
    """A row for every subject beside its dense one."""
    rows = []
    for row in bench.rows():
        one = row.measured
        rows.append(
            (
                row.cell.name,
                one.subject,
                format_ms(row.dense.best_ms),
                format_ms(one.best_ms),
                f"{format_ms(one.median_ms)} ± {50 * one.spread:.0f} %",
                f"{row.speedup:.2f}×",
                _times(row.ideal),
                "–" if row.gmac_s is None else f"{row.gmac_s:.1f}",
                "–" if one.peak_bytes is None else format_bytes(one.peak_bytes),
                "–" if one.file_bytes is None else format_bytes(one.file_bytes),
            )
        )
    problems = [f"{done.cell.name}: {done.problem}" for done in bench.done if done.problem]
    caption = (
        f"{bench.machine}; a copy moves {bench.roof.copy_gb_s:.1f} GB/s, a product of matrices does "
        f"{bench.roof.gmac_s:.0f} GMAC/s; ideal: the smaller of fewer mult-adds and the roofline"
    )
    columns = (
        "cell", "subject", ">dense ms", ">best ms", ">median ms", ">quicker", ">ideal", ">GMAC/s", ">memory",
        ">file",
    )  # fmt: skip
    return Table(
        columns,
        tuple(rows),
        caption="\n".join((caption, *problems)),
        yielding=("memory", "file", "median ms"),
    )


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.1f}×"


def network_lines(bench: Bench, budgeted: str, batch: int, mode: str = "inference") -> list[str]:
    """A network at a budget as a table of markdown: a row for every transform, a column for every runtime."""
    rows = [
        row
        for row in bench.rows()
        if (row.cell.budgeted, row.cell.batch, row.cell.mode) == (budgeted, batch, mode)
    ]
    runtimes = [name for name in _NAMES if any(row.cell.runtime == name for row in rows)]
    if not rows:
        return []
    files = ["ONNX file"] if "onnx" in runtimes else []
    head = ["", "parameters", "mult-adds", *(_NAMES[name] for name in runtimes), *files]
    lines = [_line(head), _line(["---"] * len(head))]
    dense: dict[str, Measured] = {row.cell.runtime: row.dense for row in rows}
    first = rows[0].dense
    cells = [f"{format_ms(dense[name].best_ms)} ms" for name in runtimes]
    cells += [_file(dense["onnx"]) for _ in files]
    lines.append(_line(["dense", f"{first.params:,}", format_count(first.mult_adds), *cells]))
    for subject in _in_order(rows):
        by_runtime: dict[str, Row] = {
            row.cell.runtime: row for row in rows if row.measured.subject == subject
        }
        one = next(iter(by_runtime.values())).measured
        cells = [
            f"{format_ms(by_runtime[name].measured.best_ms)} ms ({by_runtime[name].speedup:.1f}×)"
            if name in by_runtime
            else "–"
            for name in runtimes
        ]
        cells += [_file(by_runtime["onnx"].measured if "onnx" in by_runtime else None) for _ in files]
        lines.append(_line([f"`{subject}`", f"{one.params:,}", format_count(one.mult_adds), *cells]))
    return lines


def _in_order(rows: list[Row]) -> list[str]:
    """The subjects of some rows, transforms as they are registered and then others, whenever measured."""
    order = {name: number for number, name in enumerate(list_transforms())}
    found = dict.fromkeys(row.measured.subject for row in rows)
    return sorted(
        found, key=lambda subject: (order.get(subject.partition(":")[0], len(order)), ":" in subject)
    )


def layer_lines(bench: Bench, what: str, batch: int, mode: str = "inference") -> list[str]:
    """Layers as a table of markdown: speed-up, and in brackets the ideal one, for every width."""
    rows = [
        row
        for row in bench.rows()
        if row.cell.width is not None
        and (row.cell.what, row.cell.batch, row.cell.mode, row.cell.runtime) == (what, batch, mode, "eager")
    ]
    if not rows:
        return []
    widths = sorted({row.cell.width for row in rows if row.cell.width is not None})
    head = ["", *(str(width) for width in widths)]
    lines = [_line(head), _line(["---"] * len(head))]
    for subject in _in_order(rows):
        found = {row.cell.width: row for row in rows if row.measured.subject == subject}
        cells = [
            f"{found[width].speedup:.1f}× ({_times(found[width].ideal)})" if width in found else "–"
            for width in widths
        ]
        lines.append(_line([f"`{subject}`" if subject[0] != "(" else subject.strip("()"), *cells]))
    return lines


def _file(measured: Measured | None) -> str:
    return "–" if measured is None or measured.file_bytes is None else format_bytes(measured.file_bytes)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def sections(bench: Bench) -> str:
    """All tables of the documentation: networks by batch, then layers."""
    parts = []
    networks = dict.fromkeys(
        (done.cell.budgeted, done.cell.batch, done.cell.mode)
        for done in bench.done
        if done.cell.width is None
    )
    for network, batch, mode in networks:
        lines = network_lines(bench, network, batch, mode)
        if lines:
            parts.append(f"### {network}, batch {batch}, {mode}\n\n" + "\n".join(lines))
    layers = dict.fromkeys(
        (done.cell.what, done.cell.batch, done.cell.mode)
        for done in bench.done
        if done.cell.width is not None
    )
    for what, batch, mode in sorted(layers, key=lambda key: key[2]):  # inference comes first
        lines = layer_lines(bench, what, batch, mode)
        if lines:
            parts.append(f"### {what}, batch {batch}, {mode}\n\n" + "\n".join(lines))
    machine = f"Machine: {bench.machine}. A copy moves {bench.roof.copy_gb_s:.1f} GB/s; a product of large "
    machine += f"matrices does {bench.roof.gmac_s:.0f} GMAC/s. Commit {bench.commit or 'unknown'}."
    return "\n\n".join([machine, *parts]) + "\n"
