"""From a model's name to an engine that answers, as fast as can be.

Knows the order that lets things happen at once: the library reads the weights while Python imports the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from localrun.catalog import ModelFile, Progress, load_catalogue, resolve
from localrun.local.loading import Loading
from localrun.params import EngineParams

if TYPE_CHECKING:
    from localrun.local.responder import LocalResponder


def open_responder(
    model: str | None,
    params: EngineParams | None = None,
    *,
    offline: bool = False,
    progress: Progress | None = None,
    on_load: Callable[[float], None] | None = None,
) -> LocalResponder:
    """Find `model` (the default for None), fetching it if need be, and start to load it.

    Raises `ModelNotFoundError`, `FetchError`, `ModelFileError`, `DoesNotFitError`.
    """
    return open_model(find_model(model, offline=offline, progress=progress), params, on_load=on_load)


def find_model(model: str | None, *, offline: bool = False, progress: Progress | None = None) -> ModelFile:
    """The file of `model` (the default for None), fetched if need be."""
    return resolve(load_catalogue().default if model is None else model, offline=offline, progress=progress)


def open_model(
    file: ModelFile, params: EngineParams | None = None, *, on_load: Callable[[float], None] | None = None
) -> LocalResponder:
    """Start to load a file, and import the engine meanwhile. Raises `ModelFileError`, `DoesNotFitError`."""
    loading = Loading(file.path, params or EngineParams(), on_load)
    try:
        from localrun.local.responder import LocalResponder

        return LocalResponder(file, loading=loading)
    except BaseException:  # Ctrl-C among them
        loading.close()
        raise
