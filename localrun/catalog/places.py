"""Where localrun keeps the files that it has fetched itself (those of the hub stay in the hub's own cache).

Knows names only; touches no disk. Invariant: two references never share a file.
"""

from __future__ import annotations

from pathlib import Path

from localrun.catalog.references import IndexReference, UrlReference
from localrun.paths import default_paths


def index_path(reference: IndexReference) -> Path:
    """Where the model from a wheel lies: below the package and version, under its path in the wheel."""
    folder = f"{reference.package.lower().replace('_', '-')}-{reference.version}"
    return default_paths().models / "pypi" / folder / reference.member.replace("/", "--")


def url_path(reference: UrlReference) -> Path:
    """Where the file of a URL lies: in a folder for the URL, under the file's own name."""
    import hashlib  # seven milliseconds that a model from elsewhere need not wait for

    digest = hashlib.sha256(reference.text.encode()).hexdigest()[:16]
    return default_paths().models / "web" / digest / reference.file_name
