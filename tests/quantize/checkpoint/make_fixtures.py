"""Record what Hugging Face's libraries and llama.cpp's converter make of tiny checkpoints.

Run by hand when an architecture or a tokenizer is added, in an environment of its own:

    pip install torch transformers sentencepiece safetensors
    python -m tests.quantize.checkpoint.make_fixtures LLAMA_CPP_FOLDER [NAME ...]

LLAMA_CPP_FOLDER is the source tree with convert_hf_to_gguf.py (`tests.sdist.sdist_root()` has it). The recordings in
fixtures/ hold tokens, names, hashes and logits, but no weights: `tiny` makes those again from their names.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.quantize.checkpoint import tiny
from tests.quantize.checkpoint.recorded_models import MODELS, Recorded
from tests.quantize.checkpoint.recorded_tokenizers import TOKENIZERS, record_tokenizer
from tests.quantize.checkpoint.texts import make_texts

PROMPT_LENGTH = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("names", nargs="*", help="models to record again (default: everything)")
    arguments = parser.parse_args()
    sys.path[:0] = [str(arguments.llama_cpp), str(arguments.llama_cpp / "gguf-py")]
    for name in [m for m in sys.modules if m.split(".")[0] == "gguf"]:
        del sys.modules[name]  # transformers may have loaded another version than the converter needs
    if not arguments.names:
        texts = make_texts()
        tiny.save("texts", texts)
        tiny.save("tokenizers", {name: record_tokenizer(name, texts) for name in TOKENIZERS})
    tokenizers = tiny.load("tokenizers")
    for model in MODELS:
        if not arguments.names or model.name in arguments.names:
            tiny.save(model.name, record_model(model, tokenizers))
            sys.stdout.write(f"recorded {model.name}\n")


def record_model(model: Recorded, tokenizers: dict[str, Any]) -> dict[str, Any]:
    work = Path(tempfile.mkdtemp())
    try:
        fixture = describe(model, work / "described", tokenizers)
        folder = tiny.write_checkpoint(work / model.folder_name, fixture, tokenizers)
        fixture["logits"], fixture["prompts"] = run(model, folder)
        fixture["expected"] = convert(model, folder, work / "out.gguf", tokenizers)
    finally:
        shutil.rmtree(work)
    return fixture


def describe(model: Recorded, folder: Path, tokenizers: dict[str, Any]) -> dict[str, Any]:
    """Configuration and weight names as transformers saves them."""
    vocabulary = len(json.loads(tokenizers[model.tokenizer]["files"]["tokenizer.json"])["model"]["vocab"])
    settings = dict(model.settings)
    size = {"vocab_size": vocabulary + 40}
    if "text_config" in settings:
        settings["text_config"] = {**size, **settings["text_config"]}
    else:
        settings = {**size, **settings}
    config = getattr(transformers, model.config_class)(**settings)
    torch.manual_seed(0)
    cls = getattr(transformers, model.model_class)
    instance = cls.from_config(config) if model.model_class.startswith("Auto") else cls(config)
    instance.to(torch.bfloat16).save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    saved = {k: v for k, v in saved.items() if k not in ("transformers_version", *model.left_out)} | model.rewritten
    if "text_config" in saved:
        nested = saved["text_config"]
        saved["text_config"] = {k: v for k, v in nested.items() if k not in model.nested_left_out} | model.nested
    header = read_header(folder / "model.safetensors")
    weights = [(name, model.dtype, entry["shape"]) for name, entry in sorted(header.items())]
    weights = model.stored_weights(weights)
    return {
        "files": {"config.json": saved, **model.files},
        "tokenizer": model.tokenizer,
        "weights": weights,
        "shards": model.n_shards,
        "norms_around": model.norms_around,
        "folder": model.folder_name,
    }


def read_header(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def run(model: Recorded, folder: Path) -> tuple[str, list[list[int]]]:
    """Logits (or hidden states) of a few prompts in float32, as base64."""
    instance = getattr(transformers, model.model_class).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **model.loading
    )
    instance = instance.to(torch.float32).eval()
    if model.table_gelu:
        for module in instance.modules():
            for name in ("act_fn", "intermediate_act_fn"):
                if hasattr(module, name):
                    setattr(module, name, TableGelu())
    n_tokens = instance.config.get_text_config().vocab_size - 45
    prompts = []
    for seed in range(2):
        raw = (tiny.noise(f"prompt {seed}", PROMPT_LENGTH) + 1) / 2
        prompts.append([int(v) for v in 3 + raw * (n_tokens - 3)])
    outputs = []
    with torch.inference_mode():
        for prompt in prompts:
            result = instance(torch.tensor([prompt]), **model.forwarding)
            state = result.logits if hasattr(result, "logits") else result.last_hidden_state
            outputs.append(state[0].float().numpy())
    return base64.b64encode(np.stack(outputs).astype("<f4").tobytes()).decode(), prompts


class TableGelu(torch.nn.Module):
    """GELU (tanh form) as `ggml_vec_gelu_f32` computes it: argument and result in half precision."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()


def convert(model: Recorded, folder: Path, out: Path, tokenizers: dict[str, Any]) -> dict[str, Any]:
    """Run llama.cpp's converter; its hash cannot know a vocabulary this small, so the pre-tokenizer is given to it."""
    import gguf
    from conversion import ModelBase, get_model_class
    from conversion.base import TextModel

    pre = tokenizers[model.tokenizer]["pre"]
    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    hparams = ModelBase.load_hparams(folder, False)
    cls = get_model_class(hparams["architectures"][0])
    with torch.inference_mode():
        cls(folder, gguf.LlamaFileType.ALL_F32, out).write()
    reader = gguf.GGUFReader(out)
    metadata = {
        key: {"value": field.contents(), "types": [t.name for t in field.types]}
        for key, field in reader.fields.items()
        if not key.startswith("GGUF.")
    }
    tensors = [
        [t.name, t.tensor_type.name, [int(n) for n in t.shape[::-1]], hashlib.sha256(t.data.tobytes()).hexdigest()]
        for t in reader.tensors
    ]
    return {"metadata": metadata, "tensors": tensors}


if __name__ == "__main__":
    main()
