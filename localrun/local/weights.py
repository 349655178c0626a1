"""A look at the small weights before they are loaded.

Knows GGUF headers and F32 values. A NaN in a norm poisons every logit, but the CPU kernels quantize activations and
can hide it: what comes out then is finite and wrong. Norms and biases are a few megabytes even in the largest models,
so they are looked at each time; the large matrices are not.
"""

from __future__ import annotations

import math
import mmap

from localrun.errors import NonFiniteLogitsError
from localrun.gguf import GGUFHeader


def check_small_weights(header: GGUFHeader) -> None:
    """Raise `NonFiniteLogitsError` for a one-dimensional F32 tensor that holds NaN or an infinite value."""
    for number, path in enumerate(header.shards):
        infos = [t for t in header.tensors if t.shard == number and t.type.name == "F32" and len(t.shape) == 1]
        if not infos:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for info in infos:
                with memoryview(data) as view, view[info.offset : info.offset + info.n_bytes].cast("f") as values:
                    total = sum(values)
                # A sum is not finite as soon as one value is not; weights are far too small to overflow it.
                if not math.isfinite(total):
                    raise NonFiniteLogitsError(
                        f"{path}: the tensor {info.name} holds NaN or infinite values",
                        hint="the file is damaged or was converted wrongly; fetch or convert it again",
                    )
