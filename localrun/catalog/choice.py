"""Chooses the model file among the files of a repository or folder.

Knows how GGUF files are named (quantization at the end, shards numbered, projectors apart); touches neither disk nor
network. Invariant: what is chosen is one complete model, or the error says what there is to choose from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from localrun.catalog.references import HubReference
from localrun.errors import ModelNotFoundError

_QUANT = re.compile(
    r"(?:^|[-._/])(?P<quant>(?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_0|BF16|F16|FP16|F32|MXFP4(?:_MOE)?|NVFP4))"
    r"(?:-\d{5}-of-\d{5})?\.gguf",
    re.IGNORECASE,
)
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)")
_NO_MODEL = re.compile(r"mmproj|imatrix", re.IGNORECASE)

PREFERENCE = (
    "Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0", "MXFP4", "IQ4_XS", "IQ4_NL", "Q4_1", "Q5_K_S",
    "Q3_K_M", "BF16", "F16", "F32",
)  # fmt: skip
"""Which quantization is taken when none is named: the usual compromise first, then what is nearest to it."""


def quantization_in(name: str) -> str | None:
    """The quantization that a file name ends in, in capitals; None if it has none."""
    match = _QUANT.search(name)
    return match["quant"].upper() if match else None


def complete_models(files: Iterable[str]) -> list[tuple[str, ...]]:
    """The models among `files` (names with `/`): each as its files, first shard first. Incomplete sets are left out."""
    sets: dict[str, dict[int, str]] = {}
    sizes: dict[str, int] = {}
    for name in files:
        if not name.lower().endswith(".gguf") or _NO_MODEL.search(name.rsplit("/", 1)[-1]):
            continue
        shard = _SHARD.search(name)
        key = _SHARD.sub("", name)
        sets.setdefault(key, {})[int(shard[1]) if shard else 1] = name
        sizes[key] = int(shard[2]) if shard else 1
    return [
        tuple(numbered[i] for i in sorted(numbered))
        for key, numbered in sorted(sets.items())
        if sorted(numbered) == list(range(1, sizes[key] + 1))
    ]


def choose(reference: HubReference, files: Iterable[str]) -> tuple[str, ...]:
    """The files of the model that `reference` means among `files`, first shard first.

    Raises `ModelNotFoundError` that lists what there is if none or several fit.
    """
    models = complete_models(files)
    if reference.file is not None:
        for model in models:
            if reference.file in model:
                return model
        raise _none_fits(reference, f"no file {reference.file!r}", [m[0] for m in models], reference.file)
    if not models:
        raise ModelNotFoundError(
            f"{reference.text} holds no GGUF model", hint="name a repository of GGUF files; they often end in -GGUF"
        )
    by_quant: dict[str, list[tuple[str, ...]]] = {}
    for model in models:
        by_quant.setdefault(quantization_in(model[0]) or "", []).append(model)
    if reference.quant is not None:
        fitting = by_quant.get(reference.quant.upper(), [])
        if not fitting:
            names = [quant for quant in by_quant if quant]
            raise _none_fits(reference, f"no quantization {reference.quant}", names, reference.quant.upper())
    elif len(models) == 1:
        fitting = models
    else:
        fitting = next((by_quant[quant] for quant in PREFERENCE if quant in by_quant), models)
    if len(fitting) > 1:
        raise _none_fits(reference, "several models that fit", [m[0] for m in fitting], "")
    return fitting[0]


def _none_fits(reference: HubReference, what: str, names: list[str], wanted: str) -> ModelNotFoundError:
    import difflib

    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5) if wanted else []
    shown = near or names[:8]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) and not near else ""
    hint = f"{'did you mean' if near else 'there are'}: {', '.join(shown)}{more}" if shown else None
    return ModelNotFoundError(f"hf:{reference.repo} has {what}", hint=hint)
