"""A rendered conversation, and the answer that is begun behind it.

Values; knows no template and no vocabulary. Invariant: whatever is added says whether a message wrote it or the
template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localrun.chat.messages import Message, Notice
from localrun.chat.provenance import Span, parted


@dataclass(frozen=True, slots=True)
class Prompt:
    """Rendered text, and what is known about it."""

    text: str
    spans: tuple[Span, ...] | None
    """Half-open ranges of `text` that came from messages; None where they could not be traced."""
    in_reasoning: bool = False
    """The prompt ends inside a thinking block: the model's output begins with reasoning."""
    notices: tuple[Notice, ...] = ()

    @property
    def segments(self) -> list[tuple[str, bool]]:
        """(text, whether the template wrote it), in order; joined they are `text`."""
        spans = ((0, len(self.text)),) if self.spans is None else self.spans
        return [(text, not inside) for text, inside in parted(self.text, spans)]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of an answer."""

    content: list[tuple[str, bool]]
    """(text, whether it is the template's own), in order."""
    reasoning: str

    @property
    def has_header(self) -> bool:
        """The template's own text comes first: it says what kind of output follows."""
        return bool(self.content) and self.content[0][1]

    @classmethod
    def of(cls, prefill: Message, markup: Sequence[Span], change: Callable[[str], str]) -> Beginning:
        """An assistant's message of which the ranges `markup` are the template's own; `change` changes the rest."""
        parts = [(text if own else change(text), own) for text, own in parted(prefill.content, markup)]
        return cls(parts, change(prefill.reasoning))


class Continuation:
    """A prompt that grows at its end."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self.text = prompt.text
        self._spans = prompt.spans

    def add(self, text: str, *, owned: bool = False) -> None:
        if owned and text and self._spans is not None:
            self._spans = (*self._spans, (len(self.text), len(self.text) + len(text)))
        self.text += text

    def prompt(self, in_reasoning: bool) -> Prompt:
        return Prompt(self.text, self._spans, in_reasoning, self._prompt.notices)
