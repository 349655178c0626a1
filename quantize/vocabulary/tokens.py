"""A growing list of tokens with types and scores, and the checks that every kind of vocabulary needs.

Knows GGUF's token types; not where tokens come from. Invariant: a finished list has exactly as many tokens as the model
has embeddings, and no text twice (the engine aborts the process on a double one).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gguf.constants import TokenType

from quantize.errors import SourceError
from quantize.metadata import Metadata, f32s, i32s, strings
from quantize.vocabulary.files import AddedToken

UNUSED_SCORE = -10000.0
ADDED_SCORE = -1000.0
"""Scores that llama.cpp's converter gives to padding and to added tokens: never preferred in a merge."""

_LOOK_SPECIAL = ("<pad>", "<mask>", "<2mass>", "[@BOS@]")


@dataclass(slots=True)
class TokenList:
    """Tokens by id. Starts as padding only."""

    n_tokens: int
    texts: list[str] = field(init=False)
    types: list[int] = field(init=False)
    scores: list[float] = field(init=False)
    dropped: list[AddedToken] = field(default_factory=list)
    """Added tokens whose id lies beyond the model's embeddings."""

    def __post_init__(self) -> None:
        self.texts = [f"[PAD{i}]" for i in range(self.n_tokens)]
        self.types = [TokenType.UNUSED] * self.n_tokens
        self.scores = [UNUSED_SCORE] * self.n_tokens

    def put(self, token_id: int, text: str, kind: int, score: float = 0.0) -> None:
        """Set one token. Raises SourceError when the model has no embedding for it."""
        if not 0 <= token_id < self.n_tokens:
            raise SourceError(
                f"the tokenizer has token {text!r} with id {token_id}, the model has {self.n_tokens} embeddings",
                hint="the tokenizer files belong to another model, or vocab_size in config.json is wrong",
            )
        self.texts[token_id], self.types[token_id], self.scores[token_id] = text, int(kind), score

    def put_added(self, token: AddedToken, *, spaces: bool = True) -> None:
        """Set an added token: control if special, else one that is found in the text as it stands."""
        if token.id >= self.n_tokens:
            self.dropped.append(token)
            return
        if token.special is None and self.texts[token.id] == token.content:
            return  # a token of the vocabulary itself, listed once more
        if token.special or looks_special(token.content):
            self.put(token.id, token.content, TokenType.CONTROL, ADDED_SCORE)
        else:
            # The engine looks for such tokens in the text before spaces are replaced.
            text = token.content.replace("\u2581", " ") if spaces else token.content
            self.put(token.id, text, TokenType.USER_DEFINED, ADDED_SCORE)

    def ids(self) -> dict[str, int]:
        """Text to id, without padding."""
        return {t: i for i, t in enumerate(self.texts) if self.types[i] != TokenType.UNUSED}

    def metadata(self, *, with_scores: bool) -> Metadata:
        """The token arrays as GGUF keys. Raises SourceError when a text occurs twice or is empty."""
        try:
            "".join(self.texts).encode()
        except UnicodeEncodeError as error:
            raise SourceError(f"a token holds half a character: {error.object[error.start : error.end]!r}") from None
        seen: dict[str, int] = {}
        for token_id, text in enumerate(self.texts):
            if seen.setdefault(text, token_id) != token_id:
                raise SourceError(f"tokens {seen[text]} and {token_id} have the same text {text!r}")
        if "" in seen:
            raise SourceError(f"token {seen['']} is empty")
        keys = {"tokenizer.ggml.tokens": strings(self.texts)}
        if with_scores:
            keys["tokenizer.ggml.scores"] = f32s(self.scores)
        return keys | {"tokenizer.ggml.token_type": i32s(self.types)}

    def warnings(self) -> tuple[str, ...]:
        if not self.dropped:
            return ()
        names = ", ".join(repr(t.content) for t in self.dropped[:5])
        return (f"{len(self.dropped)} added tokens have no embedding and were left out: {names}",)


def looks_special(text: str) -> bool:
    """Tokens that checkpoints declare as ordinary although they steer the model. Same rule as llama.cpp's converter."""
    return (
        text in _LOOK_SPECIAL
        or (text.startswith("<|") and text.endswith("|>"))
        or (text.startswith("<\uff5c") and text.endswith("\uff5c>"))
        or (text.startswith("<unused") and text.endswith(">"))
    )
