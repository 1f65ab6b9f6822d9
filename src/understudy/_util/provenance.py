"""Where a result comes from: the commit of this package, and the machine it was made on."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
from functools import cache
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where a process ran, and on how many threads of torch."""

    platform: str
    cores: int
    device: str
    torch: str
    python: str
    threads: int

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''} on {self.cores} cores"
        return f"{self.platform}, {self.device}, {threads}, torch {self.torch}, Python {self.python}"


def this_machine() -> Machine:
    """Where this process runs."""
    import torch  # the record above is read where there is none

    return Machine(
        platform=platform.machine(),
        cores=os.cpu_count() or 1,
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        torch=str(torch.__version__),
        python=platform.python_version(),
        threads=torch.get_num_threads(),
    )


@cache
def commit() -> str | None:
    """The commit of this package, where it runs from its own repository; `-dirty` if it has changed since."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.CalledProcessError):  # no git, or not its own repository
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
