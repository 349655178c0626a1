"""Which machine this is, for results that hold on one machine only.

Reads only. Invariant: the same machine with the same engine has the same identity from one run to the next, and a
result of another machine or engine is never taken for one of this.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from localrun.hardware.cpu import physical_cores, usable_cpus
from localrun.hardware.memory import total_memory
from localrun.release import engine_release


@dataclass(frozen=True, slots=True)
class Machine:
    """What measured figures depend on."""

    system: str
    cpu: str
    cores: int
    """Physical cores that may be used."""
    threads: int
    """Logical processors that may be used."""
    memory_gb: int
    engine: str

    @property
    def identity(self) -> str:
        """Sixteen hexadecimal digits."""
        text = "\n".join(f"{key}={value}" for key, value in asdict(self).items())
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        threads = f", {self.threads} threads" if self.threads != self.cores else ""
        return f"{self.cpu}, {self.cores} cores{threads}, {self.memory_gb} GB, {self.system}, {self.engine}"


@lru_cache(maxsize=1)
def this_machine() -> Machine:
    """The machine this runs on, as far as this process may use it."""
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu_name(),
        cores=physical_cores(),
        threads=usable_cpus(),
        memory_gb=round(total_memory() / 1e9),
        engine=engine_release(),
    )


def _cpu_name() -> str:
    if sys.platform == "darwin":
        import subprocess

        try:
            output = subprocess.run(
                ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=2, check=True
            )
        except (OSError, subprocess.SubprocessError):  # no such tool or key: the general name will do
            return platform.processor() or platform.machine()
        return output.stdout.strip()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next((name for name in names if name), platform.processor() or platform.machine())
