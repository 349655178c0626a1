"""What an answer cost, in words: the same in the status line, in plain mode and in a summary on stderr.

Knows results; knows no screen. Invariant: numbers that were not measured are not shown.
"""

from __future__ import annotations

import unicodedata

from localrun.responder import Finish, Result

FINISHES: dict[str, str] = {
    "interrupted": "stopped",
    "length": "cut off by the length limit",
    "context": "cut off: the context is full",
    "timeout": "cut off by the time limit",
    "error": "broken off by an error",
    "crashed": "broken off: localrun ended in the middle of it",
}
"""How an answer ended, where that is worth a word."""


def reused_words(result: Result) -> str:
    """How much of the prompt was found in a cache; empty without a prompt."""
    usage = result.usage
    if not usage.prompt_tokens:
        return ""
    reused = usage.cached_ram_tokens + usage.cached_disk_tokens
    disk = " from disk" if usage.cached_disk_tokens else ""
    return f"reused {reused:,} of {usage.prompt_tokens:,} tokens{disk}"


def meter_words(result: Result) -> tuple[str, ...]:
    """Reuse, speed and wait of one answer, each a few words."""
    timings = result.timings
    words = [reused_words(result)]
    if timings.decode_tps:
        words.append(f"{timings.decode_tps:.1f} tokens/s")
    if timings.ttft_s:
        words.append(f"TTFT {timings.ttft_s:.2f} s")
    return tuple(word for word in words if word)


def finish_words(finish: Finish | str | None) -> str:
    """How an answer ended, if it did not simply end."""
    return FINISHES.get(finish or "", "")


def visible(text: str) -> str:
    """The text with control characters made visible, so that no model and no file can drive a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter in "\n\t" or _is_harmless(letter) else _picture(letter) for letter in text)


def _is_harmless(letter: str) -> bool:
    return unicodedata.category(letter) != "Cc"


def _picture(letter: str) -> str:
    return chr(0x2400 + ord(letter)) if ord(letter) < 0x20 else "\N{REPLACEMENT CHARACTER}"
