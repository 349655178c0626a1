"""`/v1/embeddings`: texts in, vectors out.

Knows the endpoint's fields; knows no engine. Invariant: a text is never cut; one that is too long is refused with both
numbers.
"""

from __future__ import annotations

import array
import asyncio
import base64
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from localrun.errors import LocalrunError
from localrun.serve.answering import GONE
from localrun.serve.failures import ApiError, as_api_error
from localrun.serve.fields import Fields
from localrun.serve.servable import Loaded

MOST_TEXTS = 2048


class Vector(Protocol):
    """What comes of a text."""

    @property
    def vector(self) -> list[float]: ...

    @property
    def n_tokens(self) -> int: ...


@runtime_checkable
class EmbeddingModel(Protocol):
    """A loaded model that gives vectors."""

    n_dimensions: int
    failed: bool

    def embed(self, text: str) -> Vector: ...


@dataclass(frozen=True, slots=True)
class EmbeddingAsk:
    """A request, understood."""

    model: str | None
    texts: tuple[str, ...]
    as_base64: bool
    dimensions: int | None


def embedding_ask(body: Mapping[str, Any]) -> EmbeddingAsk:
    """Raises `ApiError` 400."""
    given = Fields(body)
    texts = given.texts("input", MOST_TEXTS)
    if not texts or not all(texts):
        raise given.wrong("input", "is missing or empty; it is a text or a list of texts")
    form = given.word("encoding_format", ("float", "base64"))
    return EmbeddingAsk(given.text("model"), texts, form == "base64", given.integer("dimensions", 1, 2**20))


async def embed(ask: EmbeddingAsk, loaded: Loaded, gone: asyncio.Event) -> dict[str, Any]:
    """The response's object. Raises `ApiError`, also when the client is `gone`: nobody reads what would come."""
    model, name = loaded.model, loaded.servable.name
    if not isinstance(model, EmbeddingModel):
        raise ApiError(400, f"{name} has no embeddings: it generates text", param="model")
    if ask.dimensions not in (None, model.n_dimensions):
        message = f"dimensions is {ask.dimensions}, and {name} gives {model.n_dimensions}"
        raise ApiError(400, message, param="dimensions")
    found = []
    for i, text in enumerate(ask.texts):
        try:
            # In turn: the model takes one text at a time, and threads that wait for it would be missed elsewhere.
            async with loaded.turn:
                if gone.is_set():
                    raise ApiError(GONE, "the client went away")
                found.append(await asyncio.to_thread(model.embed, text))
        except LocalrunError as error:
            api = as_api_error(error)
            raise ApiError(api.status, f"input[{i}]: {api.message}", kind=api.kind, code=api.code) from error
    n_tokens = sum(item.n_tokens for item in found)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": _told(item.vector, as_base64=ask.as_base64)}
            for i, item in enumerate(found)
        ],
        "model": name,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }


def _told(vector: list[float], *, as_base64: bool) -> list[float] | str:
    if not as_base64:
        return vector
    values = array.array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()  # the API's floats are little-endian
    return base64.b64encode(values.tobytes()).decode()
