"""Names of models → files on this machine.

    from localrun.catalog import resolve, find, load_catalogue, local_models

    model = resolve("smollm2:135m", offline=False, progress=None)   # ModelFile
    model.path, model.name, model.source, model.sha256, model.draft, model.notes
    find("smollm2:135m")                                            # ModelFile or None; never a request
    load_catalogue().default                                        # the name of the default model

Importing this package, and resolving a model that is here, imports no HTTP client. `Progress` is what `resolve` tells
its progress to.
"""

from localrun.catalog.entries import Catalogue, Entry, load_catalogue
from localrun.catalog.local import LocalModel, local_models
from localrun.catalog.progress import Progress
from localrun.catalog.resolve import ModelFile, find, resolve

__all__ = [
    "Catalogue",
    "Entry",
    "LocalModel",
    "ModelFile",
    "Progress",
    "find",
    "load_catalogue",
    "local_models",
    "resolve",
]
