"""`localrun tokenize`: the token ids, pieces and count of a text."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from localrun.cli import options as o
from localrun.cli.inputs import text_or_stdin
from localrun.cli.output import to_json, write_stdout
from localrun.cli.settings import load_config
from localrun.errors import ModelFileError, UsageError


def tokenize(
    text: Annotated[str | None, typer.Argument(help="The text; stdin if left out.", show_default=False)] = None,
    model: o.Model = None,
    ids: Annotated[bool, typer.Option("--ids", help="Only the ids, one a line.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Only how many there are.")] = False,
    special: Annotated[bool, typer.Option("--special", help="Written special tokens become themselves.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    offline: o.Offline = None,
    quiet: o.Quiet = None,
) -> int:
    """Show how a model cuts a text into tokens: an id and its piece on each line."""
    from localrun.catalog import load_catalogue, resolve
    from localrun.cli.fetch_progress import fetch_progress
    from localrun.gguf import read_header
    from localrun.llama.model import LlamaModel

    config = load_config({"model": model, "offline": offline, "quiet": quiet})
    if sum((ids, count, json_output)) > 1:
        raise UsageError("--ids, --count and --json exclude each other")
    data = text_or_stdin(text, "TEXT").encode()
    name = config.get("model") or load_catalogue().default
    file = resolve(name, offline=bool(config.get("offline")), progress=fetch_progress(quiet=bool(config.get("quiet"))))
    if not read_header(file.path).metadata.get("tokenizer.ggml.tokens"):
        raise ModelFileError(f"{file.path} has no vocabulary")
    loaded = LlamaModel.load(file.path, vocab_only=True)
    try:
        tokens = loaded.vocabulary.encode(data, special=special)
        pieces = [loaded.vocabulary.piece(token).decode("utf-8", "backslashreplace") for token in tokens]
    finally:
        loaded.close()
    if json_output:
        write_stdout(to_json({"count": len(tokens), "tokens": tokens, "pieces": pieces}))
    elif count:
        write_stdout(f"{len(tokens)}\n")
    elif ids:
        write_stdout("".join(f"{token}\n" for token in tokens))
    else:
        rows = zip(tokens, pieces, strict=True)
        write_stdout("".join(f"{token}\t{json.dumps(piece, ensure_ascii=False)}\n" for token, piece in rows))
    return 0
