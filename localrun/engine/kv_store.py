"""KV blocks on disk, found by their content.

A block is the keys and values of a fixed number of tokens. Its key is a hash over everything before it and in it
(as vLLM hashes its blocks), starting from the identity of the model and engine: so whoever computed a prefix, in
whatever conversation, everybody with the same beginning finds it, and no token is ever written twice.

Knows files and hashes; knows no engine. Invariants: a file under its final name is complete; what is read is verified
(sizes, checksum, exact token ids) or ignored; many processes may use one folder at once; a full disk costs the cache,
never an answer. The folder is readable by its owner only: the blocks are somebody's texts.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import queue
import threading
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localrun.engine.kv_block import SUFFIX, UnsoundBlockError, has_its_size, packed_header, read_block, stored_tokens
from localrun.engine.kv_folder import evict, folder_size
from localrun.engine.ports import Block
from localrun.paths import ensure_private

logger = logging.getLogger(__name__)

_KEY_BYTES = 16
_PARENT_CHARS = 12
"""Of the parent's key in a block's file name: enough to find the block's siblings by name alone."""
_SIBLINGS = 256
"""Of the blocks with one past, at most so many are looked into."""
_DRAINED = 0.9
"""After an eviction the folder has this share of its budget, so that not every write evicts."""


@dataclass(frozen=True, slots=True)
class Key:
    """Where a block lies: its own hash and its parent's."""

    own: str
    parent: str

    @property
    def file_name(self) -> str:
        return f"{self.parent[:_PARENT_CHARS]}-{self.own}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Sibling:
    """A stored block with the past of another one."""

    key: Key
    tokens: list[int]
    n_common: int
    """Tokens at its beginning that are those it was compared with."""


@dataclass(slots=True)
class StoreCounters:
    """What happened to the store in this process."""

    read_bytes: int = 0
    written_bytes: int = 0
    damaged: int = 0
    problems: list[str] = field(default_factory=list)
    """One line for each kind of trouble, once."""


class KVStore:
    """The blocks of one identity in one folder."""

    def __init__(self, root: Path, identity: str, *, block_tokens: int = 32, budget_bytes: int) -> None:
        """`identity` names everything that the bytes depend on but the tokens. Creates nothing before it writes."""
        self.block_tokens = block_tokens
        self.counters = StoreCounters()
        self._root = root
        self._seed = hashlib.sha256(f"{identity}\n{block_tokens}".encode()).hexdigest()[: 2 * _KEY_BYTES]
        self._folder = root / self._seed[:_KEY_BYTES]
        self._identity = identity
        self._budget = budget_bytes
        self._queue: queue.SimpleQueue[tuple[Key, bytes, Block] | None] = queue.SimpleQueue()
        self._pending: set[str] = set()
        self._writer: threading.Thread | None = None
        self._failed = False
        self._n_told = 0

    # finding and reading ------------------------------------------------------------------------------------------

    def keys(self, tokens: Sequence[int]) -> list[Key]:
        """The keys of all whole blocks of `tokens`, in order."""
        size = self.block_tokens
        data = array("i", tokens).tobytes()
        width = 4 * size
        keys, parent = [], self._seed
        for start in range(0, len(tokens) // size * width, width):
            own = _own_key(parent, data[start : start + width])
            keys.append(Key(own, parent))
            parent = own
        return keys

    def past(self, keys: Sequence[Key], n: int) -> str:
        """The key of everything before block `n`, whose predecessors have `keys`."""
        return keys[n - 1].own if n else self._seed

    def n_present(self, keys: Sequence[Key]) -> int:
        """How many of `keys` are there, from the first on without a gap."""
        for i, key in enumerate(keys):
            if not self.has(key):
                return i
        return len(keys)

    def load(self, keys: Sequence[Key], tokens: Sequence[int]) -> Iterator[Block]:
        """The blocks of `keys`, whose tokens are `tokens`, up to the first that is missing or damaged.

        One at a time, so that none of them needs memory longer than it takes to use it.
        """
        size = self.block_tokens
        for i, key in enumerate(keys):
            held = array("i", tokens[i * size : (i + 1) * size]).tobytes()
            payload = self._read(key, held)
            if payload is None:
                # What comes behind it may be damaged as well, and is written again only where it is gone.
                for later, start in zip(keys[i + 1 :], range((i + 1) * size, len(tokens), size), strict=False):
                    self._read(later, array("i", tokens[start : start + size]).tobytes())
                return
            yield payload

    def has(self, key: Key) -> bool:
        """Whether this one is there, or about to be written."""
        # `Path.exists` raises where a folder may not be looked into, which costs the cache and not the answer.
        return key.own in self._pending or os.path.exists(self._folder / key.file_name)

    def load_state(self, key: Key, tokens: Sequence[int]) -> Block | None:
        """The state of a whole sequence of `tokens`, saved under the key of its last block; None if it is unsound."""
        return self._read(key, array("i", tokens).tobytes())

    def load_sibling(self, sibling: Sibling) -> Block | None:
        """A block that `closest` found; None for one that is damaged or gone."""
        return self._read(sibling.key, array("i", sibling.tokens).tobytes())

    def closest(self, past: str, tokens: Sequence[int]) -> Sibling | None:
        """The stored block after `past` that agrees longest with `tokens`.

        None where nothing with this past is stored: then nobody came this way.
        """
        best: Sibling | None = None
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.startswith(f"{past[:_PARENT_CHARS]}-"))
        except OSError:
            return None
        for name in names[:_SIBLINGS]:
            other = stored_tokens(self._folder / name) if name.endswith(SUFFIX) else []
            key = Key(_own_key(past, array("i", other).tobytes()), past)
            if name != key.file_name:
                continue  # damaged, or of another past whose key begins alike
            n_common = next((i for i, (a, b) in enumerate(zip(other, tokens, strict=False)) if a != b), None)
            n_common = min(len(other), len(tokens)) if n_common is None else n_common
            if best is None or n_common > best.n_common:
                best = Sibling(key, other, n_common)
        return best

    def drop(self, key: Key) -> None:
        """Delete a block that turned out to be of no use."""
        with contextlib.suppress(OSError):
            (self._folder / key.file_name).unlink()

    def _read(self, key: Key, tokens: bytes) -> Block | None:
        """The block of exactly these tokens; None for one that is missing or damaged."""
        path = self._folder / key.file_name
        try:
            payload = read_block(path, key.own, tokens)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._problem(f"a cached block cannot be read: {error.strerror}")
            return None
        except UnsoundBlockError:
            self.counters.damaged += 1
            self._problem("a cached block is damaged or foreign: it is computed again")
            self.drop(key)
            return None
        self.counters.read_bytes += len(payload)
        with contextlib.suppress(OSError):
            os.utime(path)  # used now: evicted last
        return payload

    # writing ------------------------------------------------------------------------------------------------------

    def save(self, key: Key, tokens: Sequence[int], payload: Block) -> None:
        """Write a block beside whatever else happens. Does nothing after the disk has refused one."""
        if self._failed or key.own in self._pending:
            return
        self._pending.add(key.own)
        self._queue.put((key, array("i", tokens).tobytes(), payload))
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_all, name="localrun-kv-writer", daemon=True)
            self._writer.start()

    def new_problems(self) -> list[str]:
        """What went wrong since this was asked last, one line for each kind, once."""
        problems = self.counters.problems[self._n_told :]
        self._n_told += len(problems)
        return problems

    def close(self) -> None:
        """Wait until everything is written. Idempotent."""
        if self._writer is not None:
            self._queue.put(None)
            self._writer.join()
            self._writer = None

    def _write_all(self) -> None:
        size = None
        while (item := self._queue.get()) is not None:
            key, tokens, payload = item
            if not self._failed:
                try:
                    written = self._write(key, tokens, payload)
                    size = (size + written) if size is not None else folder_size(self._root)
                    if size > self._budget:
                        size = evict(self._root, int(self._budget * _DRAINED))
                except OSError as error:
                    self._failed = True
                    self._problem(f"the prefix cache could not be written: {error.strerror}")
            self._pending.discard(key.own)

    def _write(self, key: Key, tokens: bytes, payload: Block) -> int:
        path = self._folder / key.file_name
        if path.exists() and has_its_size(path):
            return 0
        ensure_private(self._root)
        if not self._folder.is_dir():
            ensure_private(self._folder)
            (self._folder / "identity").write_text(self._identity, encoding="utf-8")
        part = self._folder / f"{key.own}.{os.getpid()}.part"
        header = packed_header(key.own, tokens, payload)
        try:
            with open(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
                file.write(header)
                file.write(tokens)
                file.write(payload)
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        written = len(header) + len(tokens) + len(payload)
        self.counters.written_bytes += written
        return written

    def _problem(self, line: str) -> None:
        if line not in self.counters.problems:
            self.counters.problems.append(line)
            logger.warning("%s", line)


def _own_key(past: str, tokens: bytes) -> str:
    return hashlib.sha256(past.encode() + tokens).hexdigest()[: 2 * _KEY_BYTES]
