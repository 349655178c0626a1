"""Blocks on disk: found by content, verified, shared by processes, never in the way."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from localrun.engine.disk_prefix import DiskPrefix
from localrun.engine.engine import Engine
from localrun.engine.kv_block import packed_header
from localrun.engine.kv_folder import clear, evict, folder_size, stored_models
from localrun.engine.kv_store import KVStore
from localrun.params import GenerationParams, OverflowPolicy
from tests.engine.driver import GREEDY, Listener, make, run
from tests.fakes import FakeBackend

BLOCK = 16


def store(root: Path, identity: str = "model A", budget: int = 1 << 30) -> KVStore:
    return KVStore(root, identity, block_tokens=BLOCK, budget_bytes=budget)


def answer(prompt: bytes, root: Path | None, *, kind: str = "full", window: int = 0, n: int = 10) -> Listener:
    """One prompt in a fresh process: a new backend, a new engine, and the folder `root`."""
    backend = FakeBackend(memory_kind=kind, n_window=window, n_batch=16)  # type: ignore[arg-type]
    disk = DiskPrefix(backend, store(root)) if root is not None else None
    engine = Engine(backend, n_parallel=1, n_chunk=16, disk=disk)
    sequence, listener = make(prompt, GenerationParams(sampling=GREEDY, max_tokens=n))
    run(engine, sequence)
    if disk is not None:
        disk.close()
    return listener


DOCUMENT = b"a document of some length that is asked about more than once. "


@pytest.mark.parametrize(("kind", "window"), [("full", 0), ("window", 20)])
def test_a_fresh_process_finds_the_prefix_and_says_the_same(kind: str, window: int, tmp_path: Path) -> None:
    first = answer(DOCUMENT + b"what?", tmp_path, kind=kind, window=window)
    second = answer(DOCUMENT + b"- and why?", tmp_path, kind=kind, window=window)
    assert first.finished.n_cached_disk == 0
    assert second.finished.n_cached_disk == 56  # of 62: whole groups of rows, also inside a block
    assert second.text == answer(DOCUMENT + b"- and why?", None, kind=kind, window=window).text


def test_an_identical_prompt_leaves_its_last_piece_to_compute(tmp_path: Path) -> None:
    prompt = DOCUMENT[: 3 * BLOCK]
    texts = {answer(prompt, tmp_path).text for _ in range(3)}
    assert texts == {answer(prompt, None).text}
    assert answer(prompt, tmp_path).finished.n_cached_disk == 3 * BLOCK - 8


def test_a_damaged_block_that_begins_alike_costs_its_tokens_and_not_the_text(tmp_path: Path) -> None:
    answer(DOCUMENT + b"what?", tmp_path)
    blocks = store(tmp_path)
    whole = len(DOCUMENT) // BLOCK
    for file in tmp_path.glob(f"*/{blocks.past(blocks.keys(list(DOCUMENT)), whole)[:12]}-*.kv"):
        damage(file, "flipped")
    second = answer(DOCUMENT + b"- and why?", tmp_path)
    assert second.finished.n_cached_disk == whole * BLOCK
    assert second.text == answer(DOCUMENT + b"- and why?", None).text


def test_a_block_under_the_name_of_another_past_is_not_used(tmp_path: Path) -> None:
    answer(DOCUMENT + b"what?", tmp_path)
    blocks = store(tmp_path)
    keys = blocks.keys(list(DOCUMENT))
    other = keys[2].file_name.split("-")[1]
    (folder,) = tmp_path.iterdir()
    for file in folder.glob(f"{blocks.past(keys, len(keys))[:12]}-*.kv"):
        file.unlink()
    (folder / keys[2].file_name).rename(folder / f"{blocks.past(keys, len(keys))[:12]}-{other}")
    assert blocks.closest(blocks.past(keys, len(keys)), list(DOCUMENT[2 * BLOCK : 3 * BLOCK])) is None


def test_what_was_generated_is_found_by_the_next_turn(tmp_path: Path) -> None:
    first = answer(DOCUMENT, tmp_path, n=30)
    longer = DOCUMENT + first.text.encode() + b" and then?"
    second = answer(longer, tmp_path)
    assert second.finished.n_cached_disk > len(DOCUMENT)
    assert second.text == answer(longer, None).text


def test_no_token_is_written_twice_in_a_growing_conversation(tmp_path: Path) -> None:
    conversation = b""
    written = 0
    for turn in range(10):
        conversation += b"question number %d, please? " % turn
        backend = FakeBackend(n_ctx_seq=2000, n_cells=4000, n_batch=64)
        blocks = store(tmp_path)
        disk = DiskPrefix(backend, blocks)
        sequence, listener = make(conversation, GenerationParams(sampling=GREEDY, max_tokens=20))
        run(Engine(backend, n_parallel=1, disk=disk), sequence)
        disk.close()
        written += blocks.counters.written_bytes
        conversation += listener.text.encode()
    assert written == folder_size(tmp_path)
    (model,) = stored_models(tmp_path)
    assert model.n_blocks <= len(conversation) // BLOCK


def test_a_shifted_context_is_not_stored(tmp_path: Path) -> None:
    backend = FakeBackend(n_ctx_seq=64, n_cells=128)
    blocks = store(tmp_path)
    disk = DiskPrefix(backend, blocks)
    params = GenerationParams(sampling=GREEDY, max_tokens=150, on_overflow=OverflowPolicy.SHIFT)
    run(Engine(backend, n_parallel=1, disk=disk), make(DOCUMENT[:40], params)[0])
    disk.close()
    assert blocks.counters.written_bytes == 0


def test_another_identity_finds_nothing(tmp_path: Path) -> None:
    answer(DOCUMENT + b"what?", tmp_path)
    other = store(tmp_path, "model B")
    assert other.n_present(other.keys(list(DOCUMENT))) == 0


def damage(path: Path, how: str) -> None:
    """Spoil a block; the last four kinds are made by somebody who knows the format."""
    data = bytearray(path.read_bytes())
    key, tokens = path.stem.split("-")[1], bytes(data[24 : 24 + 4 * BLOCK])
    path.unlink()
    if how == "flipped":
        data[-1] ^= 1
    elif how == "cut":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = bytearray()
    elif how == "foreign":
        data = bytearray(b"something else entirely" * 10)
    elif how == "older":
        data[4] = 0
    elif how == "other tokens":
        data[24] ^= 1
    elif how == "a pipe":
        os.mkfifo(path)
        return
    elif how == "no payload":
        data = bytearray(packed_header(key, tokens, b"") + tokens)
    elif how == "other positions":
        payload = json.dumps([[900 + i, token, False] for i, token in enumerate(range(BLOCK))]).encode()
        data = bytearray(packed_header(key, tokens, payload) + tokens + payload)
    elif how == "eight terabytes":
        data[16:24] = (8 << 40).to_bytes(8, "little")
    path.write_bytes(data)
    if how == "eight terabytes":
        os.truncate(path, 24 + 4 * BLOCK + (8 << 40))


FAULTS = ["flipped", "cut", "empty", "foreign", "older", "other tokens"]
FORGED = ["a pipe", "no payload", "other positions", "eight terabytes"]


@pytest.mark.parametrize("how", [*FAULTS, *FORGED])
def test_a_damaged_block_is_ignored_with_one_warning_and_made_again(how: str, tmp_path: Path) -> None:
    answer(DOCUMENT + b"what?", tmp_path)
    files = sorted(tmp_path.glob("*/*.kv"))
    for file in files:
        damage(file, how)
    backend = FakeBackend(n_batch=16)
    blocks = store(tmp_path)
    disk = DiskPrefix(backend, blocks)
    sequence, listener = make(DOCUMENT + b"what?", GenerationParams(sampling=GREEDY, max_tokens=10))
    run(Engine(backend, n_parallel=1, n_chunk=16, disk=disk), sequence)
    disk.close()
    assert listener.text == answer(DOCUMENT + b"what?", None).text
    assert listener.finished.n_cached_disk == 0
    assert listener.notices == ["cache"] * (how not in {"no payload", "other positions"})
    # All were made again, but for one with other tokens at the end, which may be a block of another prompt.
    made_again = answer(DOCUMENT + b"what?", tmp_path).finished.n_cached_disk
    assert made_again == (48 if how == "other tokens" else 56)
    assert answer(DOCUMENT + b"what?", tmp_path).finished.n_cached_disk > 0


def test_a_block_under_the_name_of_one_with_the_same_tokens_is_not_used(tmp_path: Path) -> None:
    prompt = b"the same 16 byte" * 3 + b"and an end to it"
    answer(prompt, tmp_path)
    blocks = store(tmp_path)
    (folder,) = tmp_path.iterdir()
    first, second = (folder / key.file_name for key in blocks.keys(list(prompt))[:2])
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    again = answer(prompt, tmp_path)
    assert again.finished.n_cached_disk == 0
    assert again.text == answer(prompt, None).text


def test_a_disk_that_refuses_costs_the_cache_and_not_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("localrun.engine.kv_store.os.open", full)
    listener = answer(DOCUMENT, tmp_path)
    assert listener.text == answer(DOCUMENT, None).text
    assert not list(tmp_path.glob("*/*.kv"))


def test_a_read_only_folder_is_no_crash(tmp_path: Path) -> None:
    target = tmp_path / "file-in-the-way"
    target.write_text("not a folder")
    assert answer(DOCUMENT, target).text == answer(DOCUMENT, None).text


def test_the_budget_is_kept_by_deleting_what_was_used_longest_ago(tmp_path: Path) -> None:
    answer(DOCUMENT, tmp_path)
    old = sorted(tmp_path.glob("*/*.kv"))
    for file in old:
        os.utime(file, (1, 1))
    answer(b"quite another text, and a longer one than before", tmp_path)
    new = [file for file in tmp_path.glob("*/*.kv") if file not in old]
    evict(tmp_path, sum(file.stat().st_size for file in new))
    assert sorted(tmp_path.glob("*/*.kv")) == sorted(new)
    assert clear(tmp_path) > 0
    assert not list(tmp_path.iterdir())


def test_what_may_not_be_deleted_is_not_told_as_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(DOCUMENT, tmp_path)
    size = folder_size(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("localrun.engine.kv_folder.Path.unlink", refuse)
    assert evict(tmp_path, 0) == size
    assert clear(tmp_path) == 0


def test_only_the_owner_can_read_the_cache(tmp_path: Path) -> None:
    root = tmp_path / "kv"
    answer(DOCUMENT, root)
    for path in (root, *root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name == "identity"


def test_where_two_prompts_part_is_known_to_the_token(tmp_path: Path) -> None:
    answer(b"Today is the 21st. " + DOCUMENT, tmp_path)
    backend = FakeBackend()
    sequence, _ = make(b"Today is the 22nd. " + DOCUMENT)
    divergence = DiskPrefix(backend, store(tmp_path)).divergence(sequence)
    assert divergence is not None
    assert divergence.position == len(b"Today is the 2")
    assert bytes(divergence.here).startswith(b"2n")
    assert bytes(divergence.there).startswith(b"1s")


def test_something_new_diverges_from_nothing(tmp_path: Path) -> None:
    answer(DOCUMENT, tmp_path)
    sequence, _ = make(b"# another beginning, as long as a block at least")
    assert DiskPrefix(FakeBackend(), store(tmp_path)).divergence(sequence) is None


_WRITER = """
import sys
from pathlib import Path
from tests.engine.test_kv_store import answer, DOCUMENT
for i in range(6):
    print(answer(DOCUMENT + bytes([65 + i]) * 20, Path(sys.argv[1])).text)
"""


def test_eight_processes_over_one_folder_say_the_right_text(tmp_path: Path) -> None:
    expected = "".join(answer(DOCUMENT + bytes([65 + i]) * 20, None).text + "\n" for i in range(6))
    processes = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for process in processes:
        assert process.communicate(timeout=120)[0] == expected
        assert process.returncode == 0
    assert not list(tmp_path.glob("*/*.part"))


def test_a_writer_that_is_killed_leaves_nothing_that_is_taken_for_a_block(tmp_path: Path) -> None:
    code = _WRITER + "\nimport os\nos.kill(os.getpid(), 9)\n"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.DEVNULL)
    (folder,) = tmp_path.iterdir()
    (folder / "half.part").write_bytes(b"LRKV")
    assert answer(DOCUMENT + b"AAAA", tmp_path).text == answer(DOCUMENT + b"AAAA", None).text
