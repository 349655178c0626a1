"""How many threads the next decode uses: as many as there are cores that nobody else wants.

A decode waits at hundreds of barriers for each token. With one thread more than there are free cores, every barrier
waits for the scheduler, and decoding becomes ten times slower instead of a little. So the count follows the load.

Knows a probe of the load and the times of steps; knows no operating system. Invariants: between 1 and the number of
cores; a fixed count asked for by the user is never changed; down at once, up only when the load has stayed away.
"""

from __future__ import annotations

from collections.abc import Callable

Probe = Callable[[], float | None]
"""Cores that other programs use, or None when there is nothing new to say."""

_ROUNDING = 0.35
"""A third of a core taken by others still leaves more from a whole thread than it costs."""
_CALM_LOOKS = 2
"""Looks (of 60 ms and more) in a row that must show room before a thread is added."""


class ThreadGovernor:
    """Follows the load, and what was measured at each load."""

    def __init__(self, n_cores: int, probe: Probe, *, fixed: int | None = None, n_prefill: int | None = None) -> None:
        """`n_prefill` threads compute prompts while nobody else wants a core (a core's second thread helps there)."""
        self._n_cores = n_cores
        self._n_prefill = n_prefill or n_cores
        self._probe = probe
        self._fixed = fixed
        self._threads = fixed or n_cores
        self._calm = 0
        self._level = 0
        self._token_s: dict[tuple[int, int], float] = {}
        """Seconds of a one-row step by (cores taken by others, threads)."""
        self._unplaced: list[float] = []
        """Times since the last look: they count only if the load turns out to have stayed the same."""

    @property
    def threads(self) -> int:
        """For steps of few rows."""
        return self._threads

    @property
    def threads_prefill(self) -> int:
        """For steps of many rows."""
        free = self._fixed is None and self._threads == self._n_cores
        return self._n_prefill if free else self._threads

    def update(self) -> bool:
        """Look at the load, if it is time to; whether the thread count has changed."""
        if self._fixed is not None:
            return False
        others = self._probe()
        if others is None:
            return False
        self._place(round(others))
        wanted = self._wanted(others)
        if wanted == self._threads:
            self._calm = 0
            return False
        if wanted > self._threads:
            self._calm += 1
            if self._calm < _CALM_LOOKS:
                return False
        self._calm = 0
        self._threads = wanted
        return True

    def observe(self, n_rows: int, seconds: float) -> None:
        """A step with `n_rows` rows took `seconds`."""
        if n_rows == 1:
            self._unplaced.append(seconds)

    def _place(self, level: int) -> None:
        """Take the times since the last look into account, if the load was the same before and after them."""
        if self._unplaced and level == self._level:
            key = (level, self._threads)
            seconds = sum(self._unplaced) / len(self._unplaced)
            old = self._token_s.get(key, seconds)
            self._token_s[key] = old + (seconds - old) / 4
        self._unplaced.clear()
        self._level = level

    def _wanted(self, others: float) -> int:
        free = max(1, min(self._n_cores, int(self._n_cores - others + _ROUNDING)))
        known = {n: s for (level, n), s in self._token_s.items() if level == self._level}
        if free in known and known:
            # Where both were measured under this load, the measurement decides.
            best = min(known, key=lambda n: known[n])
            if known[best] < 0.9 * known[free]:
                return best
        return free
