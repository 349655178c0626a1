"""The model that a quantized file is compared with: a file without further loss that the engine can run.

A GGUF source is its own base. A checkpoint is written out once, in the float type it is stored in, and removed in the
end. Invariant: the base file never outlives the block that asked for it, except after a kill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gguf.constants import GGMLQuantizationType

from quantize import pipeline
from quantize.blocks import PlainSearch
from quantize.model import Model
from quantize.plan import Plan, make_plan
from quantize.progress import ProgressCallback
from quantize.recipe import Recipe
from quantize.types import FLOAT_TYPES, parse_mix

T = GGMLQuantizationType


def base_plan(model: Model, output: Path) -> Plan:
    """The plan for a base file beside the output: most weights in the type they have."""
    kinds = Counter[GGMLQuantizationType]()
    for tensor in model.tensors:
        if tensor.source_type in FLOAT_TYPES:
            kinds[tensor.source_type] += tensor.n_values
    common = kinds.most_common(1)[0][0] if kinds else T.F16
    path = output.with_name(f"{output.name}.base.gguf")
    return make_plan(model, Recipe(parse_mix(common.name)), path, matrix_names=None)


@contextmanager
def base_file(
    model: Model,
    source: Path,
    output: Path,
    *,
    pruned: bool,
    fingerprint: str,
    threads: int,
    progress: ProgressCallback | None,
) -> Iterator[Path]:
    """A path to run the base from, valid inside the block."""
    if source.is_file() and not pruned:
        yield source
        return
    plan = base_plan(model, output)
    path = plan.files[0].path
    try:
        pipeline.run(plan, PlainSearch(), fingerprint=fingerprint, threads=threads, progress=progress, stage="base")
        pipeline.finish(plan)
        yield path
    finally:
        pipeline.discard(plan)
        path.unlink(missing_ok=True)
