"""The card of a compressed network: what it is, how to load it, its numbers, how it was made. Markdown."""

from __future__ import annotations

from understudy._util.quantities import format_share
from understudy.compressions import Compressed, Student

from .markdown import escape_markdown, markdown
from .read.compression_tables import MEASURES, left_table, measured, student_table, tried_table
from .read.summary import CLOSE


def card(result: Compressed) -> str:
    """README.md of a folder."""
    best = best_student(result)
    parts = [
        f"# {escape_markdown(result.network)}, compressed",
        _what(result, best),
        "## How to load it",
        _where(result),
        _fenced(loading_code(result, best)),
        _inputs(result),
        "## Numbers",
        f"On {best.quality.samples:,} test inputs of {escape_markdown(result.data)}: agreement is how often "
        "the largest output is the original's, cosine how far the outputs point the same way. Mult-adds and "
        f"latency are of one input, timed in turns with the original on {best.latency.threads} "
        f"thread{'s' if best.latency.threads > 1 else ''}.",
        markdown(student_table(result)),
        "## How it was made",
        _made(result, best),
        f"What was tried for {escape_markdown(best.name)}, and the share of the outputs lost with it on "
        "inputs that were held back:",
        markdown(tried_table(best)),
    ]
    left = left_table(result)
    if left.rows:
        parts += [f"## {left.title}", markdown(left)]
    parts += [f"- {escape_markdown(note)}" for note in result.notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def best_student(result: Compressed) -> Student:
    """The smallest that is within a point of the original, or else the one that is nearest to it."""
    limit = result.score(result.quality) - CLOSE
    close = [student for student in result.students if result.score(student.final) >= limit]
    if close:
        return min(close, key=lambda student: (student.costs.params, -result.score(student.final)))
    return max(result.students, key=lambda student: (result.score(student.final), -student.costs.params))


def loading_code(result: Compressed, student: Student) -> str:
    """Python that loads a student beside compress.json, and runs it where inputs are tensors."""
    options = "".join(f", {name}={value!r}" for name, value in result.options.items())
    file = f"{student.folder}/student.safetensors" if student.folder else "student.safetensors"
    code = ["import understudy as us", ""]
    code += [
        f"dense = us.create_model({result.network!r}{options})",
        f"student = us.load({file!r}, dense).eval()",
    ]
    if result.input_shape is not None:
        code = ["import torch", *code, f"outputs = student(torch.zeros({result.input_shape!r}))"]
    return "\n".join(code)


def _where(result: Compressed) -> str:
    """What must be there for the code to run."""
    module, _, made_by = result.network.partition(":")
    own = made_by and module not in ("timm", "torchvision", "transformers")
    needed = f", and `{escape_markdown(module)}` with the network's code can be imported" if own else ""
    return f"In this folder, where understudy {result.understudy} is installed{needed}:"


def _fenced(code: str) -> str:
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}python\n{code}\n{fence}"


def _what(result: Compressed, best: Student) -> str:
    is_close = result.score(best.final) >= result.score(result.quality) - CLOSE
    praise = "the smallest within a point of the original" if is_close else "the nearest to the original"
    words = (
        f"{len(result.students)} students of a trained {result.network}; {praise} is {best.name}"
        if len(result.students) > 1
        else f"A student of a trained {result.network}, {best.name}"
    )
    share = format_share(best.costs.params, result.original.params)
    now, before = (measured(quality, result.measure).text for quality in (best.final, result.quality))
    measure, _, percent = MEASURES[result.measure].partition(",")
    told = f"{measure} {now}{percent}"
    told += f" (original {before}{percent})" if result.measure == "accuracy" else ""
    return escape_markdown(f"{words}: {best.costs.params:,} parameters, {share} of the original's; {told}.")


def _inputs(result: Compressed) -> str:
    if not result.mean:
        return ""
    numbers = [", ".join(f"{value:g}" for value in values) for values in (result.mean, result.std)]
    return (
        f"Images are scaled to 0..1, then normalised by the means {numbers[0]} and the deviations "
        f"{numbers[1]}."
    )


def _made(result: Compressed, best: Student) -> str:
    looked = result.calibration
    lines = [
        f"understudy {result.understudy}{f', commit {result.commit}' if result.commit else ''}, seed "
        f"{result.seed}; {result.machine}",
        f"weights: {result.weights or 'those that the network comes with'} {result.weights_digest}".rstrip(),
        f"{looked.samples:,} inputs of {result.data} were looked at without labels, at {looked.layers} "
        "layers",
        f"{best.name}: {best.transform}, {best.budget}; made in {best.seconds:.0f} s",
        *best.remarks,
    ]
    if best.recovery is not None:
        lines.append(
            f"then trained for {best.recovery.epochs} epoch{'s' if best.recovery.epochs > 1 else ''} with "
            f"the original as teacher, learning rate {best.recovery.learning_rate:g}, "
            f"{best.recovery.seconds:.0f} s"
            + ("" if best.recovery.kept else "; undone, for the outputs came no nearer to the original's")
        )
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)
