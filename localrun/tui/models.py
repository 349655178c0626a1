"""The shelf of models that localrun knows: its catalogue, and what lies on this machine.

Knows the catalogue and the memory; knows no screen. Invariant: nothing is fetched before `fetch` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localrun.errors import UsageError
from localrun.tui.ports import Fit, ModelChoice

_OVERHEAD = 1.2
"""Memory a model takes beside its weights, as a rule of thumb: context and buffers. `localrun plan` says it exactly."""
_COMFORT = 0.7
"""Up to this share of the free memory a model fits without a second thought."""
_BYTES_PER_GB = 10**9


class LocalModels:
    """Everything that could answer on this machine."""

    def __init__(self, *, offline: bool = False) -> None:
        self._offline = offline

    def choices(self) -> Sequence[ModelChoice]:
        """The catalogue and the models of other programs, those that are here first."""
        from localrun.catalog import find, load_catalogue, local_models
        from localrun.hardware.memory import available_memory

        catalogue = load_catalogue()
        free = available_memory()
        choices: list[ModelChoice] = []
        listed = set()
        for entry in catalogue.entries.values():
            file = find(entry.name)
            size = None if entry.gigabytes is None else int(entry.gigabytes * _BYTES_PER_GB)
            if file is not None:
                listed.add(file.path.resolve())
                size = file.path.stat().st_size
            detail = " · ".join(word for word in (entry.parameters, entry.license, entry.about) if word)
            is_default = entry.name == catalogue.default
            choices.append(ModelChoice(entry.name, size, file is not None, fit(size, free), detail, is_default))
        choices += [
            ModelChoice(model.name, model.size, True, fit(model.size, free), model.place)
            for model in local_models()
            if model.problem is None and model.path.resolve() not in listed
        ]
        return sorted(choices, key=lambda choice: not choice.is_here)

    def has(self, name: str) -> bool:
        """Whether the model is on this machine. Raises `UsageError` for a malformed name."""
        from localrun.catalog import find

        return find(name) is not None

    def check(self, name: str) -> None:
        """Raises `ModelNotFoundError` for a name that stands for nothing. No request is made."""
        from localrun.catalog.resolve import check_exists

        check_exists(name)

    def fetch(self, name: str, progress: Callable[[int, int | None], None], cancelled: Callable[[], bool]) -> None:
        """Download a model; an end by `cancelled` leaves what has arrived for the next try."""
        from localrun.catalog import resolve

        try:
            resolve(name, offline=self._offline, progress=_Watch(progress, cancelled))
        except _Cancelled:
            return


class RemoteModels:
    """The models of an engine elsewhere: it knows them itself, and nothing is fetched."""

    def choices(self) -> Sequence[ModelChoice]:
        """None: `/model NAME` names one, and a wrong name is answered with those that there are."""
        return ()

    def has(self, name: str) -> bool:
        return True

    def check(self, name: str) -> None:
        """Every name is the engine's to judge."""

    def fetch(self, name: str, progress: Callable[[int, int | None], None], cancelled: Callable[[], bool]) -> None:
        """Never called: everything is there."""
        raise UsageError(f"{name} is a model of another engine", hint="there is nothing to fetch")


class _Cancelled(KeyboardInterrupt):
    """The user does not want the download any more; fetching treats it like Ctrl-C."""


class _Watch:
    """Passes the catalogue's progress on, and ends the download when it is no longer wanted."""

    def __init__(self, progress: Callable[[int, int | None], None], cancelled: Callable[[], bool]) -> None:
        self._progress = progress
        self._cancelled = cancelled
        self._total: int | None = None

    def note(self, text: str) -> None:
        self._check()

    def start(self, label: str, total: int | None, done: int) -> None:
        self._total = total
        self.update(done)

    def update(self, done: int) -> None:
        self._check()
        self._progress(done, self._total)

    def finish(self) -> None:
        """The transfer has ended; `resolve` says how."""

    def _check(self) -> None:
        if self._cancelled():
            raise _Cancelled


def fit(size: int | None, free: int) -> Fit:
    """Whether a model of that size fits into the free memory, roughly."""
    if size is None:
        return "unknown"
    needed = size * _OVERHEAD
    if needed > free:
        return "too big"
    return "fits" if needed <= free * _COMFORT else "tight"
