"""Every directory localrun uses.

Knows the environment (`LOCALRUN_HOME` moves everything) and the platform's conventions; creates nothing by itself
except through `ensure_private`. Invariant: no other module builds a path from the home directory.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Paths:
    """The directories of one localrun installation. None of them need exist."""

    config: Path
    """`config.toml` and the user's own `models.toml`."""
    data: Path
    """Sessions: what the user would miss."""
    cache: Path
    """What can be made again: downloads from the package index, KV blocks, tuning results."""

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def user_models_file(self) -> Path:
        return self.config / "models.toml"

    @property
    def sessions_db(self) -> Path:
        return self.data / "sessions.db"

    @property
    def models(self) -> Path:
        """Model files that come from a package index or a URL (hub files stay in the Hugging Face cache)."""
        return self.cache / "models"

    @property
    def kv_blocks(self) -> Path:
        return self.cache / "kv"

    @property
    def vocabularies(self) -> Path:
        """The tokens of models that were used with constraints."""
        return self.cache / "vocabularies"

    @property
    def tuning(self) -> Path:
        return self.cache / "tuning"


def default_paths() -> Paths:
    """The directories in force: under `LOCALRUN_HOME` if it is set, else where the platform wants them."""
    if home := os.environ.get("LOCALRUN_HOME"):
        root = Path(home).expanduser()
        return Paths(config=root / "config", data=root / "data", cache=root / "cache")
    import platformdirs

    return Paths(
        config=Path(platformdirs.user_config_dir("localrun", appauthor=False)),
        data=Path(platformdirs.user_data_dir("localrun", appauthor=False)),
        cache=Path(platformdirs.user_cache_dir("localrun", appauthor=False)),
    )


def runtime_dir() -> Path:
    """Where running servers leave their sockets and announcements: a folder that only this user can enter."""
    if home := os.environ.get("LOCALRUN_HOME"):
        return Path(home).expanduser() / "run"
    if sys.platform.startswith("linux") and not os.environ.get("XDG_RUNTIME_DIR"):
        return default_paths().cache / "run"  # no login session (cron, a container): there is no such folder
    import platformdirs

    return Path(platformdirs.user_runtime_dir("localrun", appauthor=False, ensure_exists=False))


def can_list(folder: Path) -> bool:
    """Whether it is a folder whose content may be seen. Never raises, whatever the folders above it allow."""
    return os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK)


def nearest_existing(path: Path) -> Path:
    """`path` itself, or the nearest folder above it that is there, as far as may be seen. Never raises."""
    return next((place for place in (path, *path.parents) if os.path.exists(place)), Path(path.anchor or "."))


def ensure_private(directory: Path) -> Path:
    """Create `directory` (and its parents) readable by its owner only, and return it.

    Prompts and conversations are private: mode 0700 on POSIX.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory
