"""Vectors are those of the model, and a text is never cut."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from localrun.catalog import ModelFile
from localrun.gguf import read_header
from localrun.llama.embedding import EmbeddingContext
from localrun.llama.model import LlamaModel
from localrun.local.embedder import is_embedding_model
from localrun.params import EngineParams
from localrun.serve.app import ServeOptions
from localrun.serve.local_models import servable
from quantize.source import open_source
from tests.quantize.checkpoint import engine, tiny
from tests.serve.conftest import Server, running_server, until

Start = Callable[..., Server]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT that says it wants the mean of its states."""
    from quantize.metadata import u32

    folder = tmp_path_factory.mktemp("bert")
    model = open_source(tiny.write_checkpoint(folder / "checkpoint", tiny.load("bert"), tiny.load("tokenizers")))
    model.metadata["bert.pooling_type"] = u32(1)
    return engine.write_f32(model, folder / "bert.gguf")


@pytest.fixture(scope="module")
def embedding_server(bert: Path) -> Iterator[Server]:
    entry = servable(ModelFile(bert, "bert", "file"), EngineParams(threads=1))
    with running_server([entry], ServeOptions()) as running, Server(running, {}) as server:
        yield server


def test_vectors_are_the_mean_of_the_states_of_transformers(bert: Path) -> None:
    recorded = tiny.load("bert")
    prompts = recorded["prompts"]
    states = np.frombuffer(base64.b64decode(recorded["logits"]), "<f4").reshape(len(prompts), len(prompts[0]), -1)
    model = LlamaModel.load(bert)
    context = EmbeddingContext(model, n_ctx=64, threads=1)
    for prompt, expected in zip(prompts, states.mean(axis=1), strict=True):
        vector = np.array(context.embed(prompt))
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-3)
    context.close()
    model.close()


def test_openais_client_gets_vectors_in_both_forms(embedding_server: Server) -> None:
    create = embedding_server.client().embeddings.create
    plain = create(model="bert", input=["one", "two", "one"], encoding_format="float")
    packed = create(model="bert", input="one")  # the client asks for base64 and unpacks it
    vectors = [np.array(item.embedding) for item in plain.data]
    assert [item.index for item in plain.data] == [0, 1, 2]
    assert np.allclose(vectors[0], vectors[2])
    assert not np.allclose(vectors[0], vectors[1])
    assert np.isclose(np.linalg.norm(vectors[0]), 1)
    assert np.allclose(packed.data[0].embedding, vectors[0], atol=1e-6)
    assert plain.usage.prompt_tokens > packed.usage.prompt_tokens > 0


def test_texts_that_are_too_long_are_refused_with_both_numbers(embedding_server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match=r"input\[1\]: the text has [\d,]+ tokens, the context holds \d+"):
        embedding_server.client().embeddings.create(model="bert", input=["short", "word " * 2000])


def test_each_kind_of_model_refuses_what_it_cannot_do(embedding_server: Server, steady_server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="generates no text"):
        embedding_server.client().chat.completions.create(model="bert", messages=[{"role": "user", "content": "Hi"}])
    with pytest.raises(openai.BadRequestError, match="tiny has no embeddings"):
        steady_server.client().embeddings.create(model="tiny", input="Hi")
    with pytest.raises(openai.BadRequestError, match="dimensions is 3"):
        embedding_server.client().embeddings.create(model="bert", input="Hi", dimensions=3)
    for wrong in ("", [], [[1, 2]], ["a", ""], 7):
        assert embedding_server.post("/v1/embeddings", {"input": wrong}).status_code == 400


def test_a_client_that_goes_away_ends_its_texts(embedding_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    [entry] = embedding_server.running.service.pool.loaded
    embed, seen, gone = entry.model.embed, [], threading.Event()

    def slow(text: str) -> Any:
        seen.append(text)
        gone.wait(20)
        return embed(text)

    monkeypatch.setattr(entry.model, "embed", slow)
    body = json.dumps({"input": ["one"] * 1000}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    client = socket.create_connection(("127.0.0.1", int(embedding_server.url.rsplit(":", 1)[1])))
    client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    until(lambda: len(seen) == 1)
    assert entry.in_flight == 1
    client.close()
    until(lambda: embedding_server.post("/v1/completions", {}).status_code == 400)  # the loop has seen it go
    gone.set()
    until(lambda: entry.users == 0)
    assert len(seen) < 5
    assert entry.in_flight == 0


def test_an_embedding_model_is_replaced_after_a_bug_in_it(embedding_server: Server) -> None:
    def broken(_tokens: object) -> list[float]:
        raise KeyError("broken")

    [entry] = embedding_server.running.service.pool.loaded
    entry.model._context.embed = broken
    answer = embedding_server.post("/v1/embeddings", {"input": "one"})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "engine_failed"
    assert "because of a bug: KeyError: 'broken'" in answer.json()["error"]["message"]
    assert embedding_server.post("/v1/embeddings", {"input": "one"}).status_code == 200
    assert embedding_server.running.service.pool.loaded != [entry]


def test_embedding_models_are_told_by_their_pooling(bert: Path) -> None:
    assert is_embedding_model(read_header(bert))
