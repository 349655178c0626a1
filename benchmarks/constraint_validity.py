"""How many outputs of a weak model at a high temperature satisfy their schema: thirty schemas, ten seeds each.

    python benchmarks/constraint_validity.py MODEL.gguf [--seeds N] [--max-tokens N]

Every output that is complete is validated with `jsonschema` against the schema as it stands here. An output that the
budget cut off is counted as incomplete; the last tokens of the budget close the value where that is possible.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

import localrun
from localrun.errors import IncompleteOutputError, InvalidOutputError

SCHEMAS = Path(__file__).with_name("constraint_schemas.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    with localrun.load(arguments.model, offline=True, n_ctx=1024, threads=arguments.threads) as model:
        for line in SCHEMAS.read_text(encoding="utf-8").splitlines():
            name, schema = json.loads(line).values()
            for seed in range(arguments.seeds):
                verdict, text = outcome(model, schema, seed, arguments.max_tokens)
                counts[verdict] += 1
                if verdict != "valid":
                    print(f"{name} seed {seed}: {verdict}: {text[:200]!r}", flush=True)
    print(f"{counts.total()} outputs: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))


def outcome(model: localrun.Model, schema: Any, seed: int, max_tokens: int) -> tuple[str, str]:
    """One generation: valid, invalid or incomplete, with its text."""
    prompt = "Answer with JSON. Invent an example."
    params: dict[str, Any] = {
        "temperature": 1.5,
        "seed": seed,
        "max_tokens": max_tokens,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
    }
    try:
        result = model.generate(prompt, schema=json.dumps(schema), **params)
    except InvalidOutputError as error:
        return "invalid", str(error)
    except IncompleteOutputError as error:
        return "incomplete", str(error)
    if result.finish != "stop":
        return "incomplete", result.text
    try:
        valid = Draft202012Validator(schema).is_valid(json.loads(result.text))
    except json.JSONDecodeError:
        valid = False
    return "valid" if valid else "invalid", result.text


if __name__ == "__main__":
    main()
