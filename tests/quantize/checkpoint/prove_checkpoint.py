"""Prove the conversion of a real checkpoint: the same comparisons as for the tiny ones, on a folder of your own.

In an environment with torch and transformers, then in the project's own:

    python -m tests.quantize.checkpoint.prove_checkpoint record FOLDER OUT.npz LLAMA_CPP_FOLDER
    python -m tests.quantize.checkpoint.prove_checkpoint check FOLDER OUT.npz
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.quantize.checkpoint import tiny

N_PROMPTS, LENGTH = 4, 48


def record(folder: Path, out: Path, llama_cpp: Path) -> None:
    """Logits, token ids, and the converter's tensors and metadata, with its own way to find the pre-tokenizer."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

    texts = tiny.load("texts")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    flat = [token for row in ids for token in row]
    prompts = [flat[i * 500 : i * 500 + LENGTH] for i in range(N_PROMPTS)]
    cls = AutoModelForCausalLM if "CausalLM" in (folder / "config.json").read_text() else AutoModel
    model = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        results = [model(torch.tensor([prompt])) for prompt in prompts]
    logits = [(r.logits if hasattr(r, "logits") else r.last_hidden_state)[0].numpy() for r in results]
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    for name in [m for m in sys.modules if m.split(".")[0] == "gguf"]:
        del sys.modules[name]
    import gguf
    from conversion import ModelBase, get_model_class

    with tempfile.TemporaryDirectory() as work, torch.inference_mode():
        converted = Path(work) / "out.gguf"
        cls = get_model_class(ModelBase.load_hparams(folder, False)["architectures"][0])
        cls(folder, gguf.LlamaFileType.ALL_F32, converted).write()
        reader = gguf.GGUFReader(converted)
        tensors = {t.name: [list(map(int, t.shape[::-1])), _hash(t.data)] for t in reader.tensors}
        metadata = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    described = json.dumps({"ids": ids, "prompts": prompts, "tensors": tensors, "metadata": metadata})
    np.savez(out, logits=np.stack(logits), described=np.frombuffer(described.encode(), np.uint8))


def check(folder: Path, recorded: Path) -> None:
    """Print what is equal and what differs."""
    from quantize.source import open_source
    from tests.quantize.checkpoint import engine

    data = np.load(recorded)
    described: dict[str, Any] = json.loads(data["described"].tobytes())
    started = time.perf_counter()
    model = open_source(folder)
    say(f"opened in {time.perf_counter() - started:.2f} s: {model.architecture}, {len(model.tensors)} tensors")
    differing = [
        t.name for t in model.tensors if [list(t.shape), _hash(t.read(0, t.n_rows))] != described["tensors"][t.name]
    ]
    say(f"tensors: {len(model.tensors)} of {len(described['tensors'])}, differing {differing}")
    for key in sorted({*model.metadata, *described["metadata"]}):
        ours = model.metadata[key].value if key in model.metadata else None
        theirs = described["metadata"].get(key)
        same = (
            np.float32(ours) == np.float32(theirs) if isinstance(ours, float) and theirs is not None else ours == theirs
        )
        if not same:
            say(f"metadata {key}: ours {str(ours)[:60]}, converter's {str(theirs)[:60]}")
    texts = tiny.load("texts")
    with tempfile.TemporaryDirectory() as work:
        path = engine.write_f32(model, Path(work) / "model.gguf")
        with engine.opened(path, vocabulary_only=True) as vocabulary:
            ids = [engine.tokenize(vocabulary, text, add_special=False) for text in texts]
        wrong = [text for text, a, b in zip(texts, ids, described["ids"], strict=True) if a != b]
        say(f"token ids: {len(texts) - len(wrong)} of {len(texts)} texts equal {wrong[:3]}")
        difference = np.abs(
            engine.logits(path, described["prompts"], hidden=model.architecture == "bert") - data["logits"]
        )
    say(f"logits: largest difference {difference.max():.2e}, their deviation {data['logits'].std():.2f}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _hash(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {"record": record, "check": check}[command](*map(Path, paths))
