"""Checkpoint → quantized GGUF: localrun beside llama.cpp's two tools, on the same checkpoint, in one run.

    python benchmarks/quantize.py CHECKPOINT --peer-python PYTHON --peer-source LLAMA_CPP --peer-bin BIN [--type q4_k_m]

PYTHON has torch, transformers and gguf; LLAMA_CPP holds `convert_hf_to_gguf.py`; BIN holds `llama-quantize` and
`llama-bench`. `--shape 1.7b|8b` first makes a checkpoint of that shape at CHECKPOINT (the tokenizer is taken from
`--tokenizer`): 1.7b with random weights, 8b with empty ones, to show that memory does not grow with the model.
Runs alternate; figures are medians; each process is measured from outside (wall, CPU, peak memory, bytes written).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SHAPES = {
    "1.7b": {"hidden_size": 2048, "num_hidden_layers": 24, "num_key_value_heads": 32, "intermediate_size": 8192},
    "8b": {"hidden_size": 4096, "num_hidden_layers": 32, "num_key_value_heads": 8, "intermediate_size": 14336},
}
PLAIN = {"q8_0", "bf16", "f16", "f32"}
"""Types that the peer's converter writes by itself, without a second tool."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One process, or several one after another."""

    wall: float
    cpu: float
    peak_mb: float
    written_mb: float

    def then(self, other: Measured) -> Measured:
        return Measured(
            self.wall + other.wall,
            self.cpu + other.cpu,
            max(self.peak_mb, other.peak_mb),
            self.written_mb + other.written_mb,
        )


def measure(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> Measured:
    """Run a command to its end; the kernel's account of it."""
    log = folder / "log.txt"
    started = time.perf_counter()
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, cwd=folder, env={**os.environ, **(environment or {})}
        )
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{log.read_text('utf-8', 'replace')[-2000:]}")
    written = usage.ru_oublock * 512 / 1e6  # Linux counts 512-byte blocks that the process made dirty
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3, written)


def ours(arguments: argparse.Namespace, folder: Path) -> Measured:
    command = [
        sys.executable,
        "-c",
        "from localrun.cli.main import main; main()",
        "quantize",
        str(arguments.checkpoint),
    ]
    command += ["-o", str(folder / "ours.gguf"), "--type", arguments.type, "--imatrix", "off", "--no-report", "--quiet"]
    root = Path(__file__).resolve().parent.parent
    return measure([*command, "--threads", str(arguments.threads)], folder, {"PYTHONPATH": str(root)})


def theirs(arguments: argparse.Namespace, folder: Path) -> Measured:
    plain = arguments.type if arguments.type in PLAIN else "bf16"
    target = folder / ("theirs.gguf" if arguments.type in PLAIN else "middle.gguf")
    script = arguments.peer_source / "convert_hf_to_gguf.py"
    convert = [
        arguments.peer_python,
        str(script),
        str(arguments.checkpoint),
        "--outtype",
        plain,
        "--outfile",
        str(target),
    ]
    environment = {"OMP_NUM_THREADS": str(arguments.threads), "HF_HUB_OFFLINE": "1"}
    done = measure(convert, folder, environment)
    if arguments.type not in PLAIN:
        tool = str(arguments.peer_bin / "llama-quantize")
        command = [tool, str(target), str(folder / "theirs.gguf"), arguments.type, str(arguments.threads)]
        done = done.then(measure(command, folder))
        target.unlink()
    return done


def decode_speeds(arguments: argparse.Namespace, models: list[Path]) -> list[float]:
    """Tokens per second of llama-bench for each file, the best of three turns."""
    tool = [str(arguments.peer_bin / "llama-bench"), "-p", "0", "-n", "32", "-r", "1", "-o", "json"]
    best = [0.0] * len(models)
    for _ in range(3):
        for index, model in enumerate(models):
            command = [*tool, "-t", str(arguments.threads), "-m", str(model)]
            done = subprocess.run(command, capture_output=True, check=True, text=True)
            best[index] = max(best[index], *json.loads(done.stdout)[0]["samples_ts"])
    return best


def same_tensors(first: Path, second: Path) -> bool:
    """Whether both files hold the same tensors, type for type and byte for byte. Called after all measuring."""
    from gguf import GGUFReader

    readers = (GGUFReader(first), GGUFReader(second))
    known = {tensor.name: tensor for tensor in readers[1].tensors}
    if len(known) != len(readers[0].tensors):
        return False
    return all(
        t.name in known and t.tensor_type == known[t.name].tensor_type and np.array_equal(t.data, known[t.name].data)
        for t in readers[0].tensors
    )


def make_checkpoint(folder: Path, shape: str, tokenizer: Path) -> None:
    """A Llama checkpoint of this shape in one safetensors file: random weights, or for `8b` a sparse file of zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in tokenizer.iterdir():
        if path.name.startswith(("tokenizer", "special_tokens", "chat_template", "generation_config")):
            shutil.copy(path, folder / path.name)
    config = json.loads((tokenizer / "config.json").read_text()) | SHAPES[shape]
    config |= {"num_attention_heads": 32, "head_dim": SHAPES[shape]["hidden_size"] // 32, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    header: dict[str, object] = {}
    position = 0
    for name, dims in tensor_shapes(config).items():
        size = 2 * int(np.prod(dims))
        header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [position, position + size]}
        position += size
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(raw)) + raw)
        if shape == "8b":
            out.truncate(8 + len(raw) + position)
            return
        values = np.random.default_rng(0).standard_normal(16 << 20, dtype=np.float32) * np.float32(0.02)
        block = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        out.writelines(block[: min(len(block), position - start)] for start in range(0, position, len(block)))


def tensor_shapes(config: dict[str, int]) -> dict[str, list[int]]:
    width, ff = config["hidden_size"], config["intermediate_size"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    found = {"model.embed_tokens.weight": [config["vocab_size"], width]}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        found |= {layer + f"self_attn.{kind}_proj.weight": [width, width] for kind in "qo"}
        found |= {layer + f"self_attn.{kind}_proj.weight": [kv, width] for kind in "kv"}
        found |= {layer + f"mlp.{kind}_proj.weight": [ff, width] for kind in ("gate", "up")}
        found |= {layer + "mlp.down_proj.weight": [width, ff], layer + "input_layernorm.weight": [width]}
        found[layer + "post_attention_layernorm.weight"] = [width]
    return found | {"model.norm.weight": [width]}


def median(runs: list[Measured]) -> Measured:
    fields = ("wall", "cpu", "peak_mb", "written_mb")
    return Measured(*(statistics.median(getattr(run, field) for run in runs) for field in fields))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--peer-source", type=Path)
    parser.add_argument("--peer-bin", type=Path)
    parser.add_argument("--type", default="q4_k_m")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--tokenizer", type=Path, help="a Llama checkpoint whose tokenizer --shape uses")
    parser.add_argument("--work", type=Path, help="folder for outputs")
    arguments = parser.parse_args()
    arguments.checkpoint = arguments.checkpoint.resolve()
    if arguments.shape and not (arguments.checkpoint / "model.safetensors").exists():
        # In a process of its own: the kernel counts this one's peak memory to every process it starts.
        work = (arguments.checkpoint, arguments.shape, arguments.tokenizer)
        maker = multiprocessing.Process(target=make_checkpoint, args=work)
        maker.start()
        maker.join()
    with tempfile.TemporaryDirectory(dir=arguments.work) as name:
        compare(arguments, Path(name))


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    mine: list[Measured] = []
    peer: list[Measured] = []
    for _ in range(arguments.runs):
        mine.append(ours(arguments, folder))
        if arguments.peer_source is not None:
            peer.append(theirs(arguments, folder))
    first = median(mine)
    print(f"{arguments.checkpoint.name} → {arguments.type}, {arguments.threads} threads, {arguments.runs} runs")
    print(f"localrun: {first}; cores used {first.cpu / first.wall:.2f}")
    if not peer:
        return
    second = median(peer)
    print(f"llama.cpp: {second}; cores used {second.cpu / second.wall:.2f}")
    for field in ("wall", "cpu", "peak_mb", "written_mb"):
        print(f"{field:>12}: {getattr(first, field) / getattr(second, field):.2f} x")
    print("tensor data identical:", same_tensors(folder / "ours.gguf", folder / "theirs.gguf"))
    speeds = decode_speeds(arguments, [folder / "ours.gguf", folder / "theirs.gguf"])
    print(f"decode speed: {speeds[0] / speeds[1]:.2f} x")


if __name__ == "__main__":
    main()
