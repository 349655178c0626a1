"""The engine's log: who listens, and what is known of it while nobody does."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from localrun.errors import ModelLoadError
from localrun.llama.buffers import buffer_sizes
from localrun.llama.library import bindings, engine_log, silent_engine
from localrun.llama.model import LlamaModel

LOGGER = "localrun.engine.native"


@pytest.mark.model
def test_a_silent_engine_says_nothing_and_speaks_again_afterwards(
    smollm2: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    with silent_engine():
        LlamaModel.load(smollm2, vocab_only=True).close()
    assert not caplog.records
    LlamaModel.load(smollm2, vocab_only=True).close()
    assert caplog.records


@pytest.mark.model
def test_the_engine_is_not_silenced_where_somebody_listens_to_everything(
    smollm2: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "localrun")
    with silent_engine():
        LlamaModel.load(smollm2, vocab_only=True).close()
    assert caplog.records


@pytest.mark.model
def test_sizes_are_complete_only_if_somebody_listened_all_the_time(smollm2: Path) -> None:
    with buffer_sizes() as heard:
        LlamaModel.load(smollm2).close()
    with buffer_sizes() as missed, silent_engine():
        LlamaModel.load(smollm2).close()
    with silent_engine(), buffer_sizes() as late:
        pass
    assert heard.complete
    assert heard.of("model") > 0
    assert not missed.complete
    assert not late.complete


def test_a_load_that_fails_unheard_is_tried_again_for_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(60))
    tried = 0
    load = bindings().llama_model_load_from_file

    def first_in_silence(*arguments: object) -> object:
        nonlocal tried
        tried += 1
        if tried > 1:
            return load(*arguments)
        with silent_engine():
            return load(*arguments)

    monkeypatch.setattr(bindings(), "llama_model_load_from_file", first_in_silence)
    engine_log().clear_errors()
    with pytest.raises(ModelLoadError) as failure:
        LlamaModel.load(path)
    assert tried == 2
    assert "gave no reason" not in str(failure.value)
