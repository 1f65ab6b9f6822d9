"""Sweeps and their workers killed with kill -9 at random moments, against a sweep that nothing disturbed.

    python benchmarks/kills.py FOLDER [--kills 100] [--ray-kills 20] [--minutes 15] [--seed 0] [--write]

A round is one tiny sweep with two workers, killed again and again, the sweep itself or one of its workers,
and started by the same command until it has finished; its results, but for what a clock decides, and the
bytes of its networks are then compared. Rounds go on until there were as many kills as asked for. FOLDER
keeps what was done: the same command goes on after any stop, and after its `--minutes`. For Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measure import write
from sweep_resume import outcome

GRID = """
recipe = "demo"
networks = "wrn_10_1"

[settings]
epochs = 2
train_images = 128
batch_size = 16
checkpoint_seconds = 0.0

[[students]]
transforms = ["low_rank", "shuffle"]
ratio = 0.1
"""
_ROUNDS = "rounds.jsonl"
_WAIT = {"local": (0.05, 0.6), "ray": (0.01, 0.1)}  # of an undisturbed sweep: Ray starts long, works short


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--ray-kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="save results/kills.json")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "tiny.toml").write_text(GRID, encoding="utf-8")
    ends = time.monotonic() + 60 * options.minutes
    wanted = {"local": options.kills, "ray": options.ray_kills}
    for engine, kills in wanted.items():
        while killed(options.folder, engine) < kills and time.monotonic() < ends:
            play(options.folder, engine, kills - killed(options.folder, engine), options.seed)
    result = summary(options.folder, wanted)
    print(json.dumps(result, indent=1))
    if options.write:
        print(write("kills", result))
    sys.exit(0 if result["identical"] else 1)


def rounds(folder: Path, engine: str) -> list[dict[str, Any]]:
    """The rounds that were finished with an engine."""
    path = folder / _ROUNDS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [row for row in map(json.loads, lines) if row["engine"] == engine]


def killed(folder: Path, engine: str) -> int:
    """How often something was killed in finished rounds."""
    return sum(len(row["kills"]) for row in rounds(folder, engine))


def play(folder: Path, engine: str, most: int, seed: int) -> None:
    """One round: kill at most so often until the sweep has finished, compare, and note it."""
    unbroken, seconds = undisturbed(folder)
    number = len(rounds(folder, engine))
    moments = random.Random(f"{seed} {engine} {number}")
    out = folder / f"{engine}-{number}"
    shutil.rmtree(out, ignore_errors=True)  # of a round that was stopped
    kills: list[dict[str, Any]] = []
    process = start(folder, out, engine)
    while True:
        moment = moments.uniform(*_WAIT[engine]) * seconds if len(kills) < most else None
        try:
            code = process.wait(moment)
        except subprocess.TimeoutExpired:
            process = strike(process, folder, out, engine, moments, kills, moment or 0.0)
            continue
        if code == 0:
            break
        process = start(folder, out, engine)  # a cell whose worker died twice has failed: the same command
    same = outcome(out) == outcome(unbroken)
    with (folder / _ROUNDS).open("a", encoding="utf-8") as stream:
        row = {"engine": engine, "round": number, "identical": same, "kills": kills}
        stream.write(json.dumps(row) + "\n")
    print(f"{engine} round {number}: {len(kills)} kills, {'identical' if same else 'DIFFERENT'}", flush=True)
    if same:
        shutil.rmtree(out)


def strike(
    process: subprocess.Popen[bytes],
    folder: Path,
    out: Path,
    engine: str,
    moments: random.Random,
    kills: list[dict[str, Any]],
    moment: float,
) -> subprocess.Popen[bytes]:
    """Kill the sweep, or one of the workers that hold a run; the process that goes on with the sweep."""
    workers = [pid for lock in sorted((out / "runs").glob("*/.lock")) for pid in holders(lock)]
    if workers and (engine == "ray" or moments.random() < 0.5):
        os.kill(moments.choice(workers), signal.SIGKILL)
        kills.append({"what": "worker", "after_seconds": round(moment, 1)})
        return process
    if engine == "ray":  # nothing is at work at this moment
        return process
    process.kill()
    process.wait()
    while any(holders(lock) for lock in (out / "runs").glob("*/.lock")):
        time.sleep(0.1)  # its workers end when they find it gone
    kills.append({"what": "sweep", "after_seconds": round(moment, 1)})
    return start(folder, out, engine)


def undisturbed(folder: Path) -> tuple[Path, float]:
    """A sweep that nothing disturbed, and the seconds that it took; made once."""
    out, clock = folder / "unbroken", folder / "unbroken.json"
    if not clock.exists():
        shutil.rmtree(out, ignore_errors=True)
        started = time.monotonic()
        if start(folder, out, "local").wait() != 0:
            sys.exit("the sweep that nothing disturbed failed")
        clock.write_text(json.dumps(time.monotonic() - started), encoding="utf-8")
    return out, json.loads(clock.read_text(encoding="utf-8"))


def start(folder: Path, out: Path, engine: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "understudy", "sweep", "tiny.toml", "--out", str(out.absolute())]
    return subprocess.Popen(
        [*command, "--workers", "2", "--engine", engine],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "2"},  # one for each worker
    )


def holders(lock: Path) -> list[int]:
    """The processes that have a file locked, as the kernel tells."""
    inode = str(lock.stat().st_ino)
    found = []
    for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode and int(fields[4]) > 0:
            found.append(int(fields[4]))
    return found


def summary(folder: Path, wanted: dict[str, int]) -> dict[str, Any]:
    """Every engine's kills, and whether all that came of them is the same."""
    engines = {}
    for engine, kills in wanted.items():
        played = rounds(folder, engine)
        struck = [kill["what"] for row in played for kill in row["kills"]]
        engines[engine] = {
            "asked_for": kills,
            "kills": len(struck),
            "of_sweeps": struck.count("sweep"),
            "of_workers": struck.count("worker"),
            "rounds": len(played),
            "different": [row["round"] for row in played if not row["identical"]],
        }
    return {"identical": not any(one["different"] for one in engines.values()), "engines": engines}


if __name__ == "__main__":
    main()
