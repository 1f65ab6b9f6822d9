"""Networks that nobody here wrote: every module of timm, all of torchvision, many of transformers.

    python benchmarks/breadth.py [--only PATTERN …] [--work DIR] [--again] [--kept] [--write]

Each network runs in a process of its own, with a limit of time and of memory, and its outcome is kept at
once: a run that was stopped goes on. For low rank and one more transform, at half of the parameters (ACDC: at
a twentieth) or the fewest that are reachable, a plan is made and substituted; then

- parameters and mult-adds of the plan are those of a trace of the student;
- the student merged into plain layers gives the same outputs;
- its file has the size that `us.cost` tells, and what is loaded from it gives the same outputs.

ok        all of it held, for both.
refused   understudy said in a sentence why it does not work on the network.
failed    anything else: a wrong number, another exception, no answer in time.

Of timm it is the smallest network of each module, of torchvision every one for images and videos, of
transformers small configurations; all with random weights.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import importlib
import json
import multiprocessing
import os
import sys
import time
import traceback
import warnings
import zlib
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from breadth_checks import OTHERS, RATIO, checked
from breadth_networks import allow_torchvision, make, names, smallest_of_timm
from measure import write
from understudy._util.provenance import commit
from understudy._util.text_tables import table
from understudy.counting.operations import UnknownOperationError

SECONDS, GIGABYTES = 600, 14


def other_transform(name: str) -> str:
    """One of several for each network, always the same."""
    return OTHERS[zlib.crc32(name.encode()) % len(OTHERS)]


def outcome(name: str) -> dict[str, Any]:
    """What became of one network, in this process."""
    other = other_transform(name)
    record: dict[str, Any] = {"network": name, "other": other}
    model, example = make(name)
    try:
        return record | {"status": "ok"} | checked(model, example, other)
    except (ValueError, TypeError, UnknownOperationError) as error:
        said = traceback.extract_tb(error.__traceback__)[-1].filename
        if "understudy" in Path(said).parts and Path(said).parts[-2] != "benchmarks":
            return record | {"status": "refused", "why": _sentence(error)}
        return record | _failed(error)
    except Exception as error:  # whatever it is, it is the result
        return record | _failed(error)


def _failed(error: Exception) -> dict[str, str]:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return {"status": "failed", "why": f"{_sentence(error)} ({Path(where.filename).name}:{where.lineno})"}


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text}"[:400]


def in_a_process(name: str, place: Path) -> dict[str, Any]:
    """The outcome of one network, whatever happens to its process, a fork of this one with all imported."""
    said = place.with_suffix(".said")  # only a whole record is kept
    said.unlink(missing_ok=True)
    process = multiprocessing.get_context("fork").Process(target=one, args=(name, said))
    record: dict[str, Any]
    start = time.monotonic()
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        record = {"network": name, "status": "failed", "why": f"no answer in {SECONDS} seconds"}
    elif said.exists():
        record = json.loads(said.read_text(encoding="utf-8"))
    else:
        record = {"network": name, "status": "failed", "why": f"its process ended by {process.exitcode}"}
    record |= {"seconds": round(time.monotonic() - start, 1), "commit": commit()}
    place.write_text(json.dumps(record), encoding="utf-8")
    said.unlink(missing_ok=True)
    return record


def one(name: str, place: Path) -> None:
    """Write the outcome of one network, within limits."""
    import resource  # not on every system

    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES * 2**30, GIGABYTES * 2**30))
    warnings.simplefilter("ignore")
    place.write_text(json.dumps(outcome(name)), encoding="utf-8")


def listed(work: Path) -> list[str]:
    """All networks; the smallest of timm's modules are looked for once."""
    place = work / "smallest.json"
    if not place.exists():
        place.write_text(json.dumps(smallest_of_timm(), indent=1), encoding="utf-8")
    return names(json.loads(place.read_text(encoding="utf-8")))


def summary(records: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How many of each library and status."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for record in records:
        for key in (record["network"].partition(":")[0], "all"):
            counts[key][record["status"]] += 1
    return {
        key: {status: count[status] for status in ("ok", "refused", "failed")}
        for key, count in counts.items()
    }


def show(records: list[dict[str, Any]]) -> None:
    rows = [
        (record["network"], record["status"], f"{record['seconds']:.0f}", record.get("why", ""))
        for record in records
        if record["status"] != "ok"
    ]
    console = Console(width=200)
    if rows:
        console.print(table(["network", "status", ">seconds", "why"], rows))
    for key, count in summary(records).items():
        console.print(f"{key}: " + ", ".join(f"{number} {status}" for status, number in count.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Networks that nobody here wrote.")
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of names, as timm:* or *resnet*")
    parser.add_argument("--work", type=Path, default=Path("runs/breadth"), help="where outcomes are kept")
    parser.add_argument("--again", action="store_true", help="those again that did not end well")
    parser.add_argument("--kept", action="store_true", help="run nothing: tell what is kept")
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/breadth.json")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    os.environ |= {"HF_HUB_OFFLINE": "1"}
    allow_torchvision()
    for library in ("timm", "torchvision", "transformers.modeling_utils"):
        importlib.import_module(library)
    everything = listed(arguments.work)
    chosen = [name for name in everything if any(fnmatch.fnmatch(name, each) for each in arguments.only)]
    records = []
    for number, name in enumerate(chosen, 1):
        place = arguments.work / f"{name.replace(':', '.')}.json"
        kept = json.loads(place.read_text(encoding="utf-8")) if place.exists() else None
        if kept is None and arguments.kept:
            continue
        if kept is None or (arguments.again and kept["status"] != "ok" and not arguments.kept):
            kept = in_a_process(name, place)
            why = f": {kept['why']}" if "why" in kept else ""
            print(f"{number}/{len(chosen)} {name} {kept['status']} {kept['seconds']} s{why}", flush=True)
        records.append(kept)
    show(records)
    if arguments.write:
        result = {"ratio": RATIO, "listed": len(everything), "summary": summary(records)}
        print(write("breadth", result | {"networks": records}))
    if any(record["status"] == "failed" for record in records):
        sys.exit(1)


if __name__ == "__main__":
    main()
