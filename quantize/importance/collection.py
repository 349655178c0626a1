"""Text and collection together: an importance matrix of a file with the default text or the user's."""

from __future__ import annotations

from pathlib import Path

from quantize.errors import UnsupportedError
from quantize.importance.calibration import default_chunks, file_chunks
from quantize.importance.collect import collect
from quantize.importance.matrix import ImportanceMatrix
from quantize.progress import ProgressCallback
from quantize.runtime import LoadedModel


def collect_default(
    path: Path,
    calibration: Path | None = None,
    *,
    threads: int,
    gpu_layers: int = 0,
    progress: ProgressCallback | None = None,
) -> ImportanceMatrix:
    """The matrix of a GGUF model.

    Args:
        calibration: a text file; None takes text that the model writes, and text that comes with Python.

    Raises:
        UnsupportedError: the model predicts no tokens.
        SourceError: the calibration file cannot be used.
        QuantizeError: the engine cannot run the model.
    """
    with LoadedModel(path, gpu_layers=gpu_layers) as model:
        if not model.can_generate:
            raise UnsupportedError(
                f"{path.name} predicts no tokens, so no importance matrix can be collected", hint="use --imatrix off"
            )
        if calibration is not None:
            chunks, datasets = file_chunks(model, calibration)
        else:
            chunks, datasets = default_chunks(model, threads=threads, progress=progress)
    return collect(path, chunks, datasets=datasets, threads=threads, gpu_layers=gpu_layers, progress=progress)
