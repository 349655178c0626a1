"""Models on this machine as something to serve.

Knows the catalogue, headers and the local engine; knows no HTTP. Invariant: every file is checked before the server
starts.
"""

from __future__ import annotations

from collections.abc import Callable

from localrun.catalog import ModelFile
from localrun.gguf import GGUFHeader, read_header
from localrun.hardware.footprint import footprint
from localrun.hardware.planner import context_size
from localrun.hardware.shape import model_shape
from localrun.local.embedder import LocalEmbedder, is_embedding_model, longest_text
from localrun.local.loading import plan_context
from localrun.local.responder import LocalResponder
from localrun.params import EngineParams
from localrun.serve.servable import Model, Servable


def servable(file: ModelFile, params: EngineParams) -> Servable:
    """A model file that can be loaded. Raises `ModelFileError` or `DoesNotFitError`."""
    header = read_header(file.path)
    if is_embedding_model(header):
        return _embedder(file, header, params)
    n_ctx = plan_context(header, params).n_ctx
    shape = model_shape(header)
    return Servable(
        name=file.name,
        load=_loader(file, params),
        n_bytes=footprint(shape, context_size(shape, params, n_ctx, flash=False)).total,
        details={
            "max_model_len": n_ctx,
            "architecture": header.architecture,
            "quantization": header.quantization,
            "size": header.file_size,
        },
    )


def _embedder(file: ModelFile, header: GGUFHeader, params: EngineParams) -> Servable:
    return Servable(
        name=file.name,
        load=lambda: LocalEmbedder(file, header, params),
        n_bytes=header.file_size,
        details={
            "max_model_len": longest_text(header, params),
            "architecture": header.architecture,
            "quantization": header.quantization,
            "size": header.file_size,
        },
    )


def _loader(file: ModelFile, params: EngineParams) -> Callable[[], Model]:
    def load() -> Model:
        responder = LocalResponder(file, params)
        try:
            responder.reserve()
        except BaseException:
            responder.close()
            raise
        return responder

    return load
