"""A summary of messages, made by the model that is talking, in as many passes as its context needs.

Knows prompts for summaries and token counts; knows neither tree nor store. Invariant: every word that is to be
summarized has been in a prompt; nothing is cut off to make it fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from localrun.chat.conversation.room import ContextFullError, measure
from localrun.chat.messages import Message
from localrun.params import GenerationParams, SamplingParams
from localrun.responder import Done, Event, ReasoningPiece, Request, Responder, TextPiece

_INSTRUCTION = (
    "Summarize the conversation above for someone who has to go on with it. Keep every fact, name, number, decision"
    " and open question; leave out greetings. Write short paragraphs, nothing else."
)
_SHARE = 8
"""A summary takes at most an eighth of the context."""
_LONGEST = 500
"""Tokens of a summary where the engine does not say how long its context is."""
_SMALLEST = 200
"""Characters of a part that is not halved further."""


def summarize(responder: Responder, paragraphs: Sequence[str]) -> Iterator[Event]:
    """Yield the events of the summary of `paragraphs`; earlier passes show only as progress.

    Raises `ContextFullError` if even a small part does not fit.
    """
    waiting = list(paragraphs)
    so_far = ""
    while True:
        part = _fill(responder, waiting, so_far)
        request = _request(responder, part, so_far)
        if not waiting:
            yield from responder.respond(request)
            return
        text = ""
        for event in responder.respond(request):
            if isinstance(event, Done):
                if event.result.finish == "interrupted":
                    yield event
                    return
                text = event.result.text
            elif not isinstance(event, TextPiece | ReasoningPiece):
                yield event
        so_far = text


def _fill(responder: Responder, waiting: list[str], so_far: str) -> list[str]:
    """Take from the front of `waiting` what fits into one pass; a paragraph that never fits is halved."""
    part: list[str] = []
    while waiting:
        if not measure(responder, _request(responder, [*part, waiting[0]], so_far)).is_full:
            part.append(waiting.pop(0))
            continue
        if part:
            return part
        long = waiting.pop(0)
        if len(long) <= _SMALLEST:
            raise ContextFullError(measure(responder, _request(responder, [long], so_far)), can_make_room=False)
        waiting[:0] = [long[: len(long) // 2], long[len(long) // 2 :]]
    return part


def _request(responder: Responder, paragraphs: Sequence[str], so_far: str) -> Request:
    before = [f"Summary of what came before: {so_far}"] if so_far else []
    content = "\n\n".join([*before, *paragraphs, _INSTRUCTION])
    limit = responder.info.context_limit
    # Greedy: the same conversation gets the same summary.
    longest = max(32, limit // _SHARE) if limit else _LONGEST
    params = replace(_PARAMS, max_tokens=longest, think=False if responder.info.can_think else None)
    return Request(params, messages=(Message("user", content),))


_PARAMS = GenerationParams(sampling=SamplingParams(temperature=0))
