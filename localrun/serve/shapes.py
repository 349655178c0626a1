"""Answers in OpenAI's JSON: chunks of a stream, and whole objects.

Knows field names; knows no engine and no connection. Invariant: a chunk is written in one piece, since there is one for
every token: what is the same in all chunks of a response is encoded once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from typing import Any

from localrun.responder import PrefillProgress, ReasoningPiece, Result, TextPiece, TokenChosen, Warning_
from localrun.serve.calling import CallArguments, CallBegun
from localrun.serve.turn import Ended, Told

END_OF_STREAM = b"data: [DONE]\n\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Shapes:
    """One response: its id, model and kind."""

    def __init__(self, *, chat: bool, model: str, per_prompt: int = 1) -> None:
        self.chat = chat
        self._per_prompt = per_prompt
        self.model = model
        self.id = ("chatcmpl-" if chat else "cmpl-") + os.urandom(12).hex()
        self._created = int(time.time())
        kind = "chat.completion.chunk" if chat else "text_completion"
        head = {"id": self.id, "object": kind, "created": self._created, "model": model}
        self._head = f"data: {_json(head)[:-1]},".encode()

    # streams ------------------------------------------------------------------------------------------------------

    def role(self, index: int) -> bytes:
        """The first chunk of a choice of a chat."""
        return self._choice(index, '{"role":"assistant","content":""}')

    def text(self, index: int, text: str) -> bytes:
        """A chunk of text."""
        return self._text(index, text, [])

    def chunks(self, index: int, told: Iterable[Told], *, progress: bool) -> bytes:
        """The chunks for what one choice was told; neighbouring pieces of text share one."""
        out, text, chosen = [], "", []
        for item in told:
            if isinstance(item, TokenChosen):
                chosen.append(item)
                continue
            if isinstance(item, TextPiece):
                text += item.text
                continue
            if text:
                out.append(self._text(index, text, chosen))
                text, chosen = "", []
            out.append(self._other(index, item, chosen, progress=progress))
        if text or chosen:
            out.append(self._text(index, text, chosen))
        return b"".join(out)

    def usage_chunk(self, results: Iterable[Result]) -> bytes:
        return self._head + f'"choices":[],"usage":{_json(usage(results, self._per_prompt))}}}\n\n'.encode()

    def warnings_chunk(self, warnings: Iterable[Warning_]) -> bytes:
        return self._head + f'"choices":[],"warnings":{_json(told_warnings(warnings))}}}\n\n'.encode()

    def error(self, body: dict[str, Any]) -> bytes:
        """An error after the stream has begun."""
        return f"data: {_json(body)}\n\n".encode()

    def _text(self, index: int, text: str, chosen: list[TokenChosen]) -> bytes:
        delta = f'{{"content":{_json(text)}}}' if self.chat else _json(text)
        return self._choice(index, delta, chosen)

    def _other(self, index: int, item: Told, chosen: list[TokenChosen], *, progress: bool) -> bytes:
        if isinstance(item, ReasoningPiece):
            return self._choice(index, f'{{"reasoning_content":{_json(item.text)}}}')
        if isinstance(item, PrefillProgress):
            if not progress:
                return b""
            numbers = {"total": item.total, "cache": item.cached, "processed": item.done}
            return self._head + f'"choices":[],"prompt_progress":{_json(numbers)}}}\n\n'.encode()
        if isinstance(item, CallBegun):
            function = {"name": item.name, "arguments": ""}
            call = {"index": item.number, "id": item.id, "type": "function", "function": function}
            return self._choice(index, f'{{"tool_calls":[{_json(call)}]}}')
        if isinstance(item, CallArguments):
            call = {"index": item.number, "function": {"arguments": item.text}}
            return self._choice(index, f'{{"tool_calls":[{_json(call)}]}}')
        assert isinstance(item, Ended)
        stop = f',"stop_reason":{_json(item.result.stop)}' if item.result.stop is not None else ""
        return self._choice(index, "{}" if self.chat else '""', chosen, item.finish, stop)

    def _choice(
        self, index: int, delta: str, chosen: list[TokenChosen] | None = None, finish: str | None = None, more: str = ""
    ) -> bytes:
        name = "delta" if self.chat else "text"
        logprobs = _json(self._logprobs(chosen)) if chosen else "null"
        end = f'"{finish}"' if finish else "null"
        choice = f'{{"index":{index},"{name}":{delta},"logprobs":{logprobs},"finish_reason":{end}{more}}}'
        return self._head + f'"choices":[{choice}]}}\n\n'.encode()

    # whole --------------------------------------------------------------------------------------------------------

    def whole(self, choices: list[list[Told]], warnings: Iterable[Warning_], *, echo: str = "") -> dict[str, Any]:
        """The object of a response that is not streamed."""
        ends = [told[-1] for told in choices]
        results = [end.result for end in ends if isinstance(end, Ended)]
        body: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": self._created,
            "model": self.model,
            "choices": [self._whole_choice(i, told, echo) for i, told in enumerate(choices)],
            "usage": usage(results, self._per_prompt),
        }
        if warnings := list(warnings):
            body["warnings"] = told_warnings(warnings)
        return body

    def _whole_choice(self, index: int, told: list[Told], echo: str) -> dict[str, Any]:
        end = told[-1]
        assert isinstance(end, Ended)
        text = "".join(item.text for item in told if isinstance(item, TextPiece))
        chosen = [item for item in told if isinstance(item, TokenChosen)]
        choice: dict[str, Any] = {"index": index}
        if self.chat:
            choice["message"] = self._message(text, told)
        else:
            choice["text"] = echo + text
        choice["logprobs"] = self._logprobs(chosen) if chosen else None
        choice["finish_reason"] = end.finish
        if end.result.stop is not None:
            choice["stop_reason"] = end.result.stop
        return choice

    def _message(self, text: str, told: list[Told]) -> dict[str, Any]:
        calls: list[dict[str, Any]] = []
        for item in told:
            if isinstance(item, CallBegun):
                calls.append({"id": item.id, "type": "function", "function": {"name": item.name, "arguments": ""}})
            elif isinstance(item, CallArguments):
                calls[-1]["function"]["arguments"] += item.text
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
        if reasoning := "".join(item.text for item in told if isinstance(item, ReasoningPiece)):
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = calls
        return message

    # log-probabilities --------------------------------------------------------------------------------------------

    def _logprobs(self, chosen: list[TokenChosen]) -> dict[str, Any]:
        if self.chat:
            entries = []
            for token in chosen:
                top = [_token(piece, logprob) for piece, logprob in token.top]
                entries.append({**_token(token.piece, token.logprob), "top_logprobs": top})
            return {"content": entries, "refusal": None}
        return {
            "tokens": [_written(token.piece) for token in chosen],
            "token_logprobs": [_finite(token.logprob) for token in chosen],
            "top_logprobs": [{_written(piece): _finite(logprob) for piece, logprob in token.top} for token in chosen],
            "text_offset": [],
        }


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": _written(piece), "logprob": _finite(logprob), "bytes": list(piece)}


def _finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI writes -9999 for a token that cannot come."""
    return max(logprob, -9999.0)


def _written(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


def usage(results: Iterable[Result], per_prompt: int = 1) -> dict[str, Any]:
    """OpenAI's token counts. A prompt counts once, not for each of its `per_prompt` choices."""
    results = list(results)
    firsts = results[::per_prompt]
    prompt = sum(result.usage.prompt_tokens for result in firsts)
    cached = sum(result.usage.cached_ram_tokens + result.usage.cached_disk_tokens for result in firsts)
    completion = sum(result.usage.completion_tokens for result in results)
    reasoning = sum(result.usage.reasoning_tokens for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def told_warnings(warnings: Iterable[Warning_]) -> list[dict[str, str]]:
    """Warnings of an answer, each once."""
    return [{"code": w.code, "message": w.message} for w in dict.fromkeys(warnings)]
