"""Damaged files of every kind, and how they are met: `make fuzz` writes benchmarks/results/fuzz.json.

A damaged file is refused by an error of ours, a ValueError whose message is one line, or read as if nothing
was wrong with it, where nothing that matters was changed; in little time and memory, and nothing is written.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import io
import json
import random
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch
from file_kinds import REFUSED, Kind, kinds
from mutations import damaged

from understudy._util.provenance import commit, this_machine
from understudy._util.records import to_plain
from understudy.cli import main as command

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "fuzz.json"
SECONDS = 10.0  # that one file may take, on a machine that others use as well
MEGABYTES = 1000.0  # that all of them together may add


@dataclasses.dataclass(frozen=True)
class Mishandled:
    """A damaged file that was met badly: which it was, and how."""

    kind: str
    number: int
    how: str


def fuzz(kind: Kind, count: int, seed: int) -> tuple[collections.Counter[str], list[Mishandled]]:
    """Damage a file `count` times, and read it each time; the file is whole again afterwards."""
    sound = kind.file.read_bytes()
    expected = kind.read()
    counts: collections.Counter[str] = collections.Counter()
    problems: list[Mishandled] = []
    for number in range(count):
        data = damaged(sound, kind.damage, random.Random(f"{seed} {kind.name} {number}"))
        kind.file.write_bytes(data)
        before, started = _listing(kind.file.parent), time.monotonic()
        how = _met(kind, expected)
        if not how.startswith(("accepted", REFUSED)):
            problems.append(Mishandled(kind.name, number, how))
        elif time.monotonic() - started > SECONDS:
            problems.append(Mishandled(kind.name, number, f"took {time.monotonic() - started:.1f} s"))
        elif _listing(kind.file.parent) != before:
            problems.append(Mishandled(kind.name, number, "something was written"))
        counts[how.partition(":")[0]] += 1
    kind.file.write_bytes(sound)
    return counts, problems


def _met(kind: Kind, expected: object) -> str:
    try:
        found = kind.read()
    except ValueError as error:
        is_ours = type(error).__module__.startswith("understudy")
        if is_ours and "\n" not in str(error) and len(str(error)) < 2000:
            return REFUSED
        return f"raised: {type(error).__name__}: {str(error)[:300]}"
    except Exception as error:  # the very thing that is looked for
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"raised: {type(error).__name__}: {str(error)[:200]} ({frame.filename}:{frame.lineno})"
    if found == REFUSED:
        return REFUSED
    if kind.is_sealed and found != expected:
        return "changed: something else was read than was written"
    return "accepted"


def _listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def through_the_command(kind: Kind, count: int, seed: int) -> list[Mishandled]:
    """The same damage met by the command: exit code 0 or 2, and one line on the error stream for 2."""
    sound = kind.file.read_bytes()
    problems = []
    for number in range(count):
        kind.file.write_bytes(damaged(sound, kind.damage, random.Random(f"{seed} {kind.name} {number}")))
        out, err, code = io.StringIO(), io.StringIO(), 0
        kept, sys.argv = sys.argv, ["understudy", *kind.command]
        paths = list(sys.path)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                command()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
        except BaseException as error:
            code, err = 1, io.StringIO(f"{type(error).__name__}: {error}")
        finally:
            sys.argv, sys.path[:] = kept, paths
        if code not in (0, 2) or (code == 2 and err.getvalue().count("\n") != 1):
            problems.append(Mishandled(kind.name, number, f"exit code {code}: {err.getvalue()[-300:]}"))
    kind.file.write_bytes(sound)
    return problems


def peak_megabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(count: int, commands: int, seed: int, folder: Path) -> dict[str, object]:
    """Every kind so many times; what is found as a table."""
    rows, problems = {}, []
    made = kinds(folder)
    before, started = peak_megabytes(), time.monotonic()
    for kind in made:
        counts, met = fuzz(kind, count, seed)
        if kind.command:
            met += through_the_command(kind, commands, seed + 1)
        problems += met
        rows[kind.name] = {
            "damaged": count,
            "refused": counts[REFUSED],
            "accepted": counts["accepted"],
            "commands": commands if kind.command else 0,
            "mishandled": len(met),
        }
        print(f"{kind.name}: {rows[kind.name]}", flush=True)
    return {
        "commit": commit(),
        "machine": to_plain(this_machine()),
        "seed": seed,
        "damaged": count * len(made),
        "mishandled": len(problems),
        "seconds": round(time.monotonic() - started, 1),
        "added_megabytes": round(peak_megabytes() - before, 1),
        "kinds": rows,
        "problems": [to_plain(problem) for problem in problems],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="of damaged files of every kind")
    parser.add_argument("--commands", type=int, default=10, help="of these through the command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = run(given.count, given.commands, given.seed, Path(folder))
    text = json.dumps(found, indent=1) + "\n"
    print(text)
    if given.write:
        RESULT.write_text(text, encoding="utf-8")
    sys.exit(1 if found["mishandled"] else 0)


if __name__ == "__main__":
    main()
