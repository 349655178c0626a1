"""The engine: whether its library loads, what it was built for, and what of this machine it leaves unused.

Knows files and commands of operating systems that tell of GPUs and CPU features. The library itself is asked in a
process of its own. Invariant: nothing here initializes a driver in this process.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localrun.doctor.finding import Finding
from localrun.doctor.software import install

PROBE_LIMIT_S = 20.0
_CPU_FEATURES = {
    "avx": "AVX", "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "avx512f": "AVX512", "avx512_vnni": "AVX512_VNNI",
    "amx_int8": "AMX_INT8", "asimd": "NEON", "asimddp": "DOTPROD", "i8mm": "MATMUL_INT8", "sve": "SVE",
}  # fmt: skip
"""Flags of the kernel → the names in llama.cpp's own line."""
_WORTH_A_REBUILD = {"AVX2", "FMA", "F16C", "DOTPROD", "MATMUL_INT8", "AVX512"}
_CMAKE = {"CUDA": "-DGGML_CUDA=on", "HIP": "-DGGML_HIP=on", "MTL": "-DGGML_METAL=on", "Vulkan": "-DGGML_VULKAN=on"}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A graphics card that the operating system knows."""

    name: str
    backend: str
    """The engine's backend for it."""


def probe_engine() -> tuple[dict[str, Any] | None, str]:
    """What the engine's library says of itself, or None and the reason."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "localrun.doctor.engine_probe"],
            capture_output=True, text=True, timeout=PROBE_LIMIT_S, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"loading it did not end within {PROBE_LIMIT_S:.0f} s"
    if done.returncode < 0:
        return None, f"loading it ended the process with signal {-done.returncode}"
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        reason = done.stderr.strip().splitlines()
        return None, reason[-1] if reason else f"loading it ended with code {done.returncode}"
    facts: dict[str, Any] = json.loads(lines[-1])
    return facts, ""


def look_at_engine() -> Iterator[Finding]:
    """Library, backends, devices, unused GPUs and CPU features."""
    facts, reason = probe_engine()
    if facts is None:
        fix = install("llama-cpp-python>=0.3.36,<0.3.37", rebuild=True)
        yield Finding("engine", "error", f"llama.cpp's library cannot be loaded: {reason}", fix)
        return
    names = ", ".join(facts["backends"])
    yield Finding("engine", "ok", f"{facts['build']}, built for {names}", facts=facts)
    yield from judge_gpus(facts, system_gpus())
    yield judge_spread(facts)
    yield from judge_features(facts["features"], cpu_flags())


def judge_gpus(facts: Mapping[str, Any], present: list[Gpu]) -> Iterator[Finding]:
    """Each device the engine sees, and each card that it does not use."""
    devices = facts["devices"]
    for device in devices:
        free, total = device["free"] / 1e9, device["total"] / 1e9
        text = f"{device['name']} ({device['backend']}): {free:.1f} of {total:.1f} GB free"
        if device["kind"] == "gpu" and device["total"] and device["free"] < 0.3 * device["total"]:
            yield Finding(
                "gpu", "warning", f"{text}: other programs hold most of it", "close them, or see `nvidia-smi`"
            )
        else:
            yield Finding("gpu", "ok", text)
    if not present and not devices:
        yield Finding("gpu", "info", "none in this machine: models run on the CPU")
    if devices:
        return
    for gpu in present:
        built = any(gpu.backend.lower() in name.lower() for name in facts["backends"])
        if built:
            text = (
                f"{gpu.name} is here and the engine has {gpu.backend}, but sees no device: the driver is missing or old"
            )
            yield Finding("gpu", "error", text, _driver_fix(gpu))
        else:
            text = f"{gpu.name} is here, but the engine was built without {gpu.backend}: models run on the CPU"
            yield Finding("gpu", "warning", text, rebuild_for(gpu.backend))


def judge_spread(facts: Mapping[str, Any]) -> Finding:
    """The ways to spread one model that this build and these devices allow."""
    devices = facts["devices"]
    ways = []
    if len(devices) > 1:
        modes = ["none", "layer", *(["row"] if all(d["splits_rows"] for d in devices) else []), "tensor"]
        ways.append(f"--split-mode {', '.join(modes)} with --tensor-split over {len(devices)} GPUs")
    if devices:
        ways.append("experts in RAM (--cpu-moe)")
    if facts["supports_rpc"]:
        ways.append("RPC servers (--rpc)")
    details = {"supports_rpc": facts["supports_rpc"]}
    if not ways:
        return Finding("spread", "info", "one device, and the engine was built without RPC servers", facts=details)
    return Finding("spread", "ok", f"a model may be spread by {'; '.join(ways)}", facts=details)


def rebuild_for(backend: str) -> str:
    """The command that builds the engine with a backend."""
    return install("llama-cpp-python>=0.3.36,<0.3.37", cmake=_CMAKE[backend], rebuild=True)


def _driver_fix(gpu: Gpu) -> str:
    if gpu.backend == "CUDA":
        return "`nvidia-smi` must work first: install the NVIDIA driver of your system, and reboot"
    return f"install the {gpu.backend} driver of your system, and reboot"


def judge_features(features: str, flags: set[str]) -> Iterator[Finding]:
    """Instruction sets that the processor has and the engine was not built for."""
    built = set(re.findall(r"(\w+) = 1", features))
    has = {name for flag, name in _CPU_FEATURES.items() if flag in flags}
    unused = sorted(name for name in has - built if name in _WORTH_A_REBUILD)
    used = ", ".join(sorted(has & built)) or "none known"
    if unused:
        fix = install("llama-cpp-python>=0.3.36,<0.3.37", cmake="-DGGML_NATIVE=on", rebuild=True)
        yield Finding("cpu", "warning", f"the processor has {', '.join(unused)}, the engine does not use it", fix)
    else:
        yield Finding("cpu", "ok", f"instruction sets in use: {used}", facts={"built": sorted(built)})


def look_at_openmp() -> Iterator[Finding]:
    """Settings of OpenMP in the environment that are known to cost speed."""
    policy = os.environ.get("OMP_WAIT_POLICY", "")
    spin = os.environ.get("GOMP_SPINCOUNT", "")
    threads = os.environ.get("OMP_NUM_THREADS", "")
    facts = {"OMP_WAIT_POLICY": policy, "GOMP_SPINCOUNT": spin, "OMP_NUM_THREADS": threads}
    if policy.lower() == "passive":
        yield Finding(
            "openmp", "warning", "OMP_WAIT_POLICY=passive costs most of the speed", "unset OMP_WAIT_POLICY", facts
        )
    elif policy.lower() == "active" or (spin.isdigit() and int(spin) > 1_000_000):
        text = "threads spin without end: one other busy program will slow decoding to a crawl"
        yield Finding("openmp", "warning", text, "unset OMP_WAIT_POLICY GOMP_SPINCOUNT", facts)
    elif threads.isdigit():
        yield Finding("openmp", "info", f"OMP_NUM_THREADS={threads} is set; --threads decides here", facts=facts)
    else:
        yield Finding("openmp", "ok", "the spin time of its threads is bounded", facts=facts)


def cpu_flags() -> set[str]:
    """Feature flags of the processor, as the kernel names them; empty where it does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    line = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return set(line.partition(":")[2].split())


def system_gpus() -> list[Gpu]:
    """Graphics cards that the engine has a backend for. Integrated ones beside a processor's own are left out."""
    if sys.platform == "darwin":
        return [Gpu("Apple GPU", "MTL")] if platform.machine() == "arm64" else []
    found = _nvidia()
    for vendor_file in sorted(Path("/sys/class/drm").glob("card[0-9]/device/vendor")):
        try:
            vendor = vendor_file.read_text().strip()
        except OSError:  # a card that has just gone
            continue
        if vendor == "0x1002" and Path("/dev/kfd").exists():
            found.append(Gpu("AMD GPU", "HIP"))
    return found


def _nvidia() -> list[Gpu]:
    tool = shutil.which("nvidia-smi")
    if tool:
        try:
            done = subprocess.run(
                [tool, "--query-gpu=name", "--format=csv,noheader"],
                capture_output=True, text=True, timeout=4, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):  # it hangs where the driver does: the folder below still tells
            done = None
        if done is not None and done.returncode == 0:
            return [Gpu(line.strip(), "CUDA") for line in done.stdout.splitlines() if line.strip()]
    cards = list(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    names = []
    for card in cards:
        match = re.search(r"Model:\s*(.+)", card.read_text("utf-8", "replace"))
        names.append(match[1].strip() if match else "NVIDIA GPU")
    return [Gpu(name, "CUDA") for name in names]
