"""Messages to token ids: special tokens only where the template put them, BOS exactly once.

Knows a template and a vocabulary; runs no model. Invariant: the control tokens in the ids are those that the template
wrote; a text that merely looks like one ("<|im_end|>" pasted by a user) becomes ordinary tokens. Everything else is
tokenized exactly as the whole rendered text would be.

How. The whole text is tokenized with special tokens, and so is its skeleton, in which every message is one private-use
character: characters of a message cannot take part in a token there. When both have the same control tokens, none came
from a message, not even half of one at its edge: done. Otherwise the text is cut at the control tokens of the template
alone (the tokenizer cuts there first too, so no ordinary token changes), and the stretches in between that hold a
look-alike are tokenized as plain text. Where a template compares or cuts its messages their places are unknown: then
private-use characters stand for those of a look-alike while the template works, and are replaced after the cut.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from localrun.chat.messages import Message, Notice
from localrun.chat.provenance import Marks, Span, unescaped
from localrun.chat.reasoning import ReasoningFormat, from_vocabulary
from localrun.chat.rendered import Prompt
from localrun.chat.template import ChatTemplate
from localrun.errors import InputError, TemplateError

MARKED_TEXT = Notice(
    "marked_text",
    "the chat template treats a message differently because special tokens written in it are taken as plain text",
)


class Encoder(Protocol):
    """What is needed of a vocabulary (a part of the engine's `TokenTable`)."""

    def piece(self, token: int) -> bytes: ...

    def is_control(self, token: int) -> bool: ...

    def encode(self, text: bytes, *, special: bool = False) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """Token ids of a rendered conversation."""

    ids: list[int]
    prompt: Prompt

    @property
    def notices(self) -> tuple[Notice, ...]:
        return self.prompt.notices


class PromptEncoder:
    """One model's template and vocabulary. `bos` is the BOS token, if the model wants one. Not thread-safe."""

    def __init__(self, template: ChatTemplate, vocabulary: Encoder, *, bos: int | None) -> None:
        self._template = template
        self._vocabulary = vocabulary
        self._bos = bos
        self._written: dict[int, str | None] = {}  # token -> written form if it is a control token

    def encode(self, messages: Sequence[Message], *, prefill: Message | None = None, **options: Any) -> EncodedPrompt:
        """Render the messages with `ChatTemplate.render`'s options and tokenize. Raises `TemplateError`."""
        prompt = self._template.render(messages, prefill=prefill, **options)
        ids = self._ids(prompt.text)
        if prompt.spans is not None:
            if self._controls(ids) != self._controls(self._ids(_skeleton(prompt.text, prompt.spans))):
                ids = self._protected(prompt.text, prompt.spans)
        else:
            prompt, ids = self._untraced(prompt, ids, messages, {"prefill": prefill, **options})
        return EncodedPrompt(self._with_bos(ids), prompt)

    @cached_property
    def reasoning(self) -> ReasoningFormat | None:
        """How the model writes its reasoning: as its template does, or with tags that are single tokens."""
        return self._template.reasoning or from_vocabulary(lambda tag: len(self._ids(tag)) == 1)

    def encode_raw(self, text: bytes) -> list[int]:
        """Token ids of a text without a template; BOS is added where the model wants one. Special tokens count."""
        return self._with_bos(self._vocabulary.encode(text, special=True))

    # Places of control tokens

    def _ids(self, text: str) -> list[int]:
        return self._vocabulary.encode(_utf8(text), special=True)

    def _written_form(self, token: int) -> str | None:
        if token not in self._written:
            is_control = self._vocabulary.is_control(token)
            self._written[token] = self._vocabulary.piece(token).decode(errors="replace") if is_control else None
        return self._written[token]

    def _controls(self, ids: list[int]) -> list[int]:
        return [token for token in ids if self._written_form(token)]

    def _places(self, text: str) -> Iterator[Span]:
        """Where the control tokens of a text stand, in order."""
        position = 0
        for token in self._controls(self._ids(text)):
            written = self._written_form(token) or ""
            start = text.find(written, position)
            if start >= 0:  # else an unknown character, which is tokenized as a control token but not written as one
                position = start + len(written)
                yield start, position

    # Look-alikes

    def _protected(self, text: str, spans: Sequence[Span]) -> list[int]:
        """Tokenize a text in which some control tokens lie inside the spans, or reach into one."""
        ends = [end for _, end in spans]
        made: list[Span] = []
        foreign: list[int] = []
        for start, end in self._places(text):
            after = bisect(ends, start)  # the first span that ends after the place begins
            if after < len(spans) and spans[after][0] < end:
                foreign.append(start)
            else:
                made.append((start, end))
        return self._join(
            [(text[a:b], bisect_left(foreign, a) < bisect_left(foreign, b)) for a, b in _between(made, len(text))]
        )

    def _untraced(
        self, plain: Prompt, ids: list[int], messages: Sequence[Message], options: dict[str, Any]
    ) -> tuple[Prompt, list[int]]:
        """Tokenize a prompt in which the places of the messages are not known.

        With every character of the messages disguised, the control tokens are the template's own. The least disguise
        that gives the same ones is taken: none; look-alikes; whatever a control token could begin or end with.
        """
        mask = _Mask(
            [self._template.source, plain.text, *(text for m in messages for text in (m.content, m.reasoning))]
        )
        controls = self._controls(ids)
        try:
            own = self._controls(self._ids(self._template.render(messages, disguise=mask.all_of, **options).text))
        except TemplateError:
            own = None
        if own == controls:
            return plain, ids
        borders = {
            text[i] for token in {*controls, *(own or ())} if (text := self._written_form(token)) for i in (0, -1)
        }

        def no_look_alikes(text: str) -> str:
            return self._masked(text, mask)

        def no_borders(text: str) -> str:
            return mask.hide(text, borders)

        for disguise in (no_look_alikes, no_borders):
            masked = mask.unescaped(self._template.render(messages, disguise=disguise, **options))
            if own == self._controls(self._ids(masked.text)):
                break
        made = list(self._places(masked.text))
        pieces = [masked.text[a:b] for a, b in _between(made, len(masked.text))]
        text = mask.lifted(masked.text)
        notices = plain.notices if text == plain.text else (*masked.notices, MARKED_TEXT)
        joined = self._join([(mask.lifted(piece), mask.is_in(piece)) for piece in pieces])
        return replace(masked, text=text, notices=notices), joined

    def _masked(self, text: str, mask: _Mask) -> str:
        """The text without anything in it that would be tokenized as a control token."""
        while places := list(self._places(text)):
            characters = list(text)
            for start, _ in places:
                characters[start] = mask.of(characters[start])
            text = "".join(characters)
        return text

    def _join(self, pieces: list[tuple[str, bool]]) -> list[int]:
        """Tokenize (text, whether it is protected), alternately gap and control token, in runs as long as possible."""
        ids: list[int] = []
        run = ""
        for i, (text, is_protected) in enumerate(pieces):
            if is_protected:
                before, after = (pieces[j][0] if 0 <= j < len(pieces) else "" for j in (i - 1, i + 1))
                ids += self._ids(run) + self._vocabulary.encode(_utf8(self._stripped(before, text, after)))
                run = ""
            else:
                run += text
        return ids + self._ids(run)

    def _stripped(self, before: str, text: str, after: str) -> str:
        """The text without white space at its ends that the control tokens beside it swallow (those of Phi-3 do)."""
        inner = text.strip()
        head, _, tail = text.partition(inner) if inner else (text, "", "")
        if before and head and self._ids(before + head) == self._ids(before):
            text = text[len(head) :]
        if after and tail and self._ids(tail + after) == self._ids(after):
            text = text[: len(text) - len(tail)]
        return text

    def _with_bos(self, ids: list[int]) -> list[int]:
        if self._bos is None or ids[:1] == [self._bos]:
            return ids
        return [self._bos, *ids]


class _Mask:
    """Private-use characters that stand for others, one each."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._marks = Marks(texts)
        self._hidden: dict[str, str] = {}  # stand-in -> character
        self._stand_ins: dict[str, str] = {}

    def of(self, character: str) -> str:
        if character not in self._stand_ins:
            self._stand_ins[character] = self._marks.single()
            self._hidden[self._stand_ins[character]] = character
        return self._stand_ins[character]

    def hide(self, text: str, characters: Iterable[str]) -> str:
        """The text with a stand-in for each of these characters."""
        return text.translate({ord(character): self.of(character) for character in characters})

    def all_of(self, text: str) -> str:
        """The text with a stand-in for everything but white space."""
        return self.hide(text, {character for character in text if not character.isspace()})

    def unescaped(self, prompt: Prompt) -> Prompt:
        """The prompt with stand-ins that the template wrote as escapes put back."""
        return replace(prompt, text=unescaped(prompt.text, self._hidden))

    def is_in(self, text: str) -> bool:
        return not self._hidden.keys().isdisjoint(text)

    def lifted(self, text: str) -> str:
        return text.translate({ord(stand_in): character for stand_in, character in self._hidden.items()})


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a message holds half a character, U+{ord(text[error.start]):04X}", hint="the text must be valid Unicode"
        ) from error


def _skeleton(text: str, spans: Sequence[Span]) -> str:
    mark = Marks([text]).single()
    parts, end = [], 0
    for start, stop in spans:
        parts += [text[end:start], mark]
        end = stop
    return "".join([*parts, text[end:]])


def _between(places: Sequence[Span], n: int) -> Iterator[Span]:
    """The places themselves and the gaps around them: every character of 0..n once, in order."""
    position = 0
    for start, end in places:
        yield position, start
        yield start, end
        position = end
    yield position, n
