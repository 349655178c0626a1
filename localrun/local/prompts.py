"""Requests → token ids, through one model's chat template.

Knows the header's template and a vocabulary; knows no engine. Invariant: a request that the template refuses is an
error before anything is computed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from localrun.chat.messages import Message
from localrun.errors import UsageError
from localrun.gguf import GGUFHeader
from localrun.llama.vocabulary import Vocabulary
from localrun.responder import Request, Warning_

if TYPE_CHECKING:
    from localrun.chat.prompt import PromptEncoder
    from localrun.chat.rendered import Prompt
from localrun.chat.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt as token ids; `prompt` is its rendered text, None for a raw one."""

    ids: list[int]
    prompt: Prompt | None

    @property
    def warnings(self) -> list[Warning_]:
        return [Warning_(n.code, n.message) for n in self.prompt.notices] if self.prompt is not None else []


class Prompts:
    """The prompts of one model. Any thread may use it."""

    def __init__(self, header: GGUFHeader, name: str) -> None:
        self._header = header
        self._name = name
        self._lock = threading.Lock()
        self._encoder: PromptEncoder | None = None

    @cached_property
    def template(self) -> ChatTemplate:
        """The model's chat template, compiled once. Raises `TemplateError` for a base model."""
        from localrun.chat.template import ChatTemplate

        tokens = self._header.array("tokenizer.ggml.tokens")

        def written(key: str) -> str:
            token = self._header.integer(f"tokenizer.ggml.{key}_token_id")
            return str(tokens[token]) if tokens is not None and token is not None and token < len(tokens) else ""

        return ChatTemplate(
            self._header.chat_template, bos_token=written("bos"), eos_token=written("eos"), name=self._name
        )

    def encoder(self, vocabulary: Vocabulary) -> PromptEncoder:
        """The template together with the model's vocabulary."""
        if self._encoder is None:
            from localrun.chat.prompt import PromptEncoder

            bos = vocabulary.bos if vocabulary.adds_bos else None
            self._encoder = PromptEncoder(self.template, vocabulary, bos=bos)
        return self._encoder

    def render(self, request: Request) -> Prompt | None:
        """The prompt of a request through the template; None for a raw one. Raises `TemplateError`."""
        if request.raw is not None:
            return None
        return self.template.render(request.messages, **self._options(request))

    def encode(self, request: Request, vocabulary: Vocabulary) -> Encoded:
        """Token ids of a request's prompt, and what there is to say about it."""
        if request.raw is not None:
            bos = [vocabulary.bos] if vocabulary.adds_bos and vocabulary.bos is not None else []
            ids = vocabulary.encode(request.raw, special=True)
            if not ids and not bos:
                raise UsageError("the prompt is empty")
            return Encoded(ids if ids[:1] == bos else [*bos, *ids], None)
        with self._lock:
            encoded = self.encoder(vocabulary).encode(request.messages, **self._options(request))
        return Encoded(encoded.ids, encoded.prompt)

    def _options(self, request: Request) -> dict[str, Any]:
        constrained = request.params.constraint is not None
        begun = bool(request.prefill or request.prefill_reasoning)
        return {
            "think": request.params.think,
            "prefill": Message("assistant", request.prefill, request.prefill_reasoning) if begun else None,
            "tools": request.tools or None,
            # A model that would think by itself must begin now: the constraint waits for the end of its block.
            "open_reasoning": constrained and not request.verbatim and self.template.reasoning is not None,
            "markup": request.prefill_markup,
        }
