"""The JSON Schema Test Suite, out of the source archive of `jsonschema`.

Knows pip and the tests' cache folder; knows nothing of localrun. A failed download raises, so a test fails and is not
skipped.
"""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.sdist import CACHE

LEFT_OUT = frozenset({"dynamicRef", "refRemote", "unevaluatedItems", "unevaluatedProperties", "vocabulary"})
"""Keywords that no grammar of ours takes, or that need other documents."""


@dataclass(frozen=True)
class Group:
    """One schema of the suite with its instances: (description, value, valid)."""

    keyword: str
    description: str
    schema: Any
    instances: tuple[tuple[str, Any, bool], ...]


@functools.cache
def suite_root() -> Path:
    """The suite's `tests` folder, fetched through pip on first use."""
    release = version("jsonschema")
    root = CACHE / f"jsonschema-{release}"
    if not root.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="suite-", dir=CACHE))
        try:
            _fetch(release, work)
            try:
                (work / "json").rename(root)
            except OSError:
                if not root.is_dir():  # else another process was first, with the same content
                    raise
        finally:
            shutil.rmtree(work)
    return root / "tests"


def _fetch(release: str, work: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run([*command, "--dest", str(work), f"jsonschema=={release}"], capture_output=True, text=True)
    archives = list(work.glob("jsonschema-*.tar.gz"))
    if done.returncode != 0 or len(archives) != 1:
        raise RuntimeError(f"pip could not fetch the source archive of jsonschema {release}: {done.stderr}")
    with tarfile.open(archives[0]) as tar:
        for member in tar:
            _, _, inside = member.name.partition("/")
            if member.isfile() and inside.startswith("json/tests/"):
                member.name = inside
                tar.extract(member, work, filter="data")


def groups(draft: str = "draft2020-12") -> list[Group]:
    """All groups of a draft, but for those of `LEFT_OUT`."""
    found = []
    for file in sorted((suite_root() / draft).glob("*.json")):
        if file.stem not in LEFT_OUT:
            for group in json.loads(file.read_text(encoding="utf-8")):
                instances = tuple((test["description"], test["data"], test["valid"]) for test in group["tests"])
                schema = group["schema"]
                if draft == "draft7" and isinstance(schema, dict):  # the suite leaves the dialect to the reader
                    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
                found.append(Group(file.stem, group["description"], schema, instances))
    return found


def written_forms(value: Any) -> Iterator[str]:
    """The compact JSON texts of a value: every order of properties, integral floats as integers too."""
    if isinstance(value, float) and value.is_integer():
        yield from (str(int(value)), json.dumps(value))
    elif isinstance(value, list):
        for items in itertools.islice(itertools.product(*map(written_forms, value)), 200):
            yield f"[{','.join(items)}]"
    elif isinstance(value, dict):
        for order in itertools.islice(itertools.permutations(value), 130):
            for items in itertools.islice(itertools.product(*(written_forms(value[name]) for name in order)), 50):
                pairs = (
                    f"{json.dumps(name, ensure_ascii=False)}:{item}" for name, item in zip(order, items, strict=True)
                )
                yield f"{{{','.join(pairs)}}}"
    else:
        yield json.dumps(value, ensure_ascii=False)
