"""From what the user typed to a model file on this machine, fetching it where it is not here.

The order: a path is itself; otherwise what is here already (our own downloads, the hub's cache, LM Studio, Ollama),
and only then the sources, one after the other. Invariant: a model that is here costs no request, and no import of an
HTTP client.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localrun.catalog.entries import Catalogue, Entry, Source, load_catalogue
from localrun.catalog.places import index_path, url_path
from localrun.catalog.progress import Progress, Silent
from localrun.catalog.references import (
    HubReference,
    IndexReference,
    NameReference,
    PathReference,
    Reference,
    Remote,
    parse_reference,
)
from localrun.errors import FetchError, ModelFileError, ModelNotFoundError, OfflineError
from localrun.paths import can_list


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model on this machine: the first of its files, and what is known about it."""

    path: Path
    name: str
    """As the user may type it again: the catalogue's name, a reference, or the file's name without its ending."""
    source: str
    """Where it came from: `hf:…`, `pypi:…`, a URL, `ollama`, or `file`."""
    entry: Entry | None = None
    """Its entry in the catalogue."""
    notes: tuple[str, ...] = ()
    """What happened that the user did not ask for: a source that failed, another one used."""

    @property
    def draft(self) -> str | None:
        """The catalogue's name of its draft partner."""
        return self.entry.draft if self.entry else None

    @property
    def sha256(self) -> str | None:
        """The checksum if it is known without reading the file."""
        from localrun.gguf.identity import known_sha256

        return known_sha256(self.path)


def resolve(model: str, *, offline: bool = False, progress: Progress | None = None) -> ModelFile:
    """The file of `model`, fetched if need be. `offline` forbids every request.

    Raises `UsageError` for a name that is malformed, `ModelNotFoundError` for one that nobody knows (with near
    matches), and `FetchError` or its subclasses if no source could deliver.
    """
    reference = parse_reference(model)
    if (found := _find(reference)) is not None:
        return found
    name, entry = _known(reference)
    if offline:
        raise OfflineError(
            f"{name} is not on this machine, and nothing may be fetched offline",
            hint=f"run `localrun pull {name}` once with a network",
        )
    if entry is not None:
        return _fetch_entry(entry, progress or Silent())
    assert not isinstance(reference, NameReference | PathReference)  # `_known` has refused those
    path = _fetch(Source(reference), progress or Silent())
    return ModelFile(path, name, reference.text)


def require(model: str) -> ModelFile:
    """The file of `model`, which must be on this machine. No request is made.

    Raises `ModelNotFoundError` if it is not here, `UsageError` for a malformed name.
    """
    reference = parse_reference(model)
    if (found := _find(reference)) is not None:
        return found
    name, _ = _known(reference)
    raise ModelNotFoundError(f"{name} is not on this machine", hint=f"`localrun pull {name}` fetches it")


def check_exists(model: str) -> None:
    """Refuse a name that nothing could be fetched by: a path without a file, a name of no catalogue. Makes no request.

    Raises `ModelNotFoundError` with near names, `UsageError` for a malformed name.
    """
    reference = parse_reference(model)
    if _find(reference) is None:
        _known(reference)


def find(model: str) -> ModelFile | None:
    """The file of `model` if it is on this machine; None otherwise. No request is made.

    Raises `UsageError` for a malformed name.
    """
    return _find(parse_reference(model))


def local_copy(reference: Remote) -> Path | None:
    """The file that `reference` means, if something has fetched it already."""
    if isinstance(reference, HubReference):
        from localrun.catalog.hub_cache import find_in_hub_cache
        from localrun.catalog.lm_studio import find_in_lm_studio

        return find_in_hub_cache(reference) or find_in_lm_studio(reference)
    path = index_path(reference) if isinstance(reference, IndexReference) else url_path(reference)
    return path if os.path.isfile(path) else None


def _find(reference: Reference) -> ModelFile | None:
    if isinstance(reference, PathReference):
        return _at_path(reference.path)
    if not isinstance(reference, NameReference):
        path = local_copy(reference)
        if path is None and isinstance(reference, HubReference):
            return _in_ollama(f"hf.co/{reference.repo}:{reference.quant or 'latest'}", None)
        return ModelFile(path, reference.text, reference.text) if path is not None else None
    entry = load_catalogue().find(reference.name)
    if entry is not None:
        for source in entry.sources:
            if (path := local_copy(source.reference)) is not None:
                return ModelFile(path, entry.name, source.reference.text, entry)
    return _in_ollama(reference.name, entry)


def _known(reference: Reference) -> tuple[str, Entry | None]:
    """The proper name and the catalogue entry of something that is not here; raises if it cannot be had at all."""
    if isinstance(reference, PathReference):
        raise _no_such_path(reference.path)
    if not isinstance(reference, NameReference):
        return reference.text, None
    catalogue = load_catalogue()
    entry = catalogue.find(reference.name)
    if entry is None:
        raise _unknown_name(reference.name, catalogue)
    return entry.name, entry


def _at_path(path: Path) -> ModelFile | None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error
    if stat.S_ISDIR(mode):
        inside = sorted(p.name for p in path.glob("*.gguf"))
        raise ModelFileError(
            f"{path} is a folder", hint=f"it holds {', '.join(inside[:5])}" if inside else _of_folder(path)
        )
    return ModelFile(path, path.name.removesuffix(".gguf"), "file")


def _of_folder(path: Path) -> str:
    """What can be done with a folder without a model file."""
    if any(path.glob("*.safetensors")):
        return f"it holds a checkpoint: `localrun quantize {path} -o model.gguf --type q4_k_m` makes a model of it"
    return "it holds no .gguf file"


def _in_ollama(name: str, entry: Entry | None) -> ModelFile | None:
    """What Ollama has under this name, if the engine can run it."""
    from localrun.catalog.ollama import find_in_ollama

    model = find_in_ollama(name)
    if model is None:
        return None
    if entry is not None:
        # There is another way to get this model, so a file that only Ollama's own engine can read is no answer.
        from localrun.gguf import read_header

        try:
            read_header(model.path)
        except ModelFileError:
            return None
    return ModelFile(model.path, entry.name if entry else model.name, "ollama", entry)


def _fetch_entry(entry: Entry, progress: Progress) -> ModelFile:
    """Try the sources in order."""
    failures: list[tuple[Source, ModelNotFoundError]] = []
    notes: list[str] = []
    for source in entry.sources:
        if failures:
            notes.append(f"{failures[-1][1].message}; using {source.reference.text}")
            progress.note(notes[-1])
        try:
            path = _fetch(source, progress)
        except ModelNotFoundError as error:  # FetchError and its kinds too
            failures.append((source, error))
        else:
            return ModelFile(path, entry.name, source.reference.text, entry, tuple(notes))
    raise _all_failed(entry, [error for _, error in failures])


def _fetch(source: Source, progress: Progress) -> Path:
    reference = source.reference
    if isinstance(reference, HubReference):
        from localrun.catalog.hub import fetch_from_hub

        return fetch_from_hub(reference, source.sha256, progress)
    if isinstance(reference, IndexReference):
        from localrun.catalog.index import fetch_from_index

        return fetch_from_index(reference, source.size, source.sha256, progress)
    from localrun.catalog.web import fetch_from_url

    return fetch_from_url(reference, source.size, source.sha256, progress)


def _all_failed(entry: Entry, errors: list[ModelNotFoundError]) -> ModelNotFoundError:
    """One error for all sources: the only one, or a summary of the kind that all of them share.

    That nothing can be reached says nothing of the model, so there its name is added.
    """
    if len(errors) == 1 and not isinstance(errors[0], OfflineError):
        return errors[0]
    kind = type(errors[0]) if len({type(error) for error in errors}) == 1 else FetchError
    reasons = "; ".join(error.message for error in errors)
    # That a network is out of reach is the least of the reasons: another source had got further.
    by_weight = sorted(errors, key=lambda error: isinstance(error, OfflineError))
    hint = next((error.hint for error in by_weight if error.hint), None)
    return kind(f"{entry.name} could not be fetched: {reasons}", hint=hint)


def _no_such_path(path: Path) -> ModelNotFoundError:
    folder = path.parent
    names = [p.name for p in folder.glob("*.gguf")] if can_list(folder) else []
    import difflib

    near = difflib.get_close_matches(path.name, names, n=3)
    hint = f"did you mean {', '.join(str(folder / n) for n in near)}" if near else None
    return ModelNotFoundError(f"{path} does not exist", hint=hint or "`localrun list` shows what is on this machine")


def _unknown_name(name: str, catalogue: Catalogue) -> ModelNotFoundError:
    shown = name if len(name) <= 100 else name[:100] + "…"
    if name.count("/") == 1 and " " not in name:
        return ModelNotFoundError(f"no model {shown!r} is known", hint=f"if it is on the hub: hf:{shown}")
    near = catalogue.near(name, _names_elsewhere())
    hint = f"did you mean {', '.join(near)}? " if near else ""
    return ModelNotFoundError(f"no model {shown!r} is known", hint=hint + "`localrun list --catalog` shows all names")


def _names_elsewhere() -> Iterator[str]:
    from localrun.catalog.ollama import ollama_models

    return (model.name for model in ollama_models() if model.problem is None)
