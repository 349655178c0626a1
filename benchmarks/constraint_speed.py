"""What a constraint costs: time per token beside free text, and what forced text gains. Ratios of one run.

    python benchmarks/constraint_speed.py MODEL.gguf [--rounds N] [--tokens N] [--threads N]

1. Per emitted token: a JSON array of strings (nothing is forced) beside free text of the same length, in turns.
2. Characters a second: an object with long property names (forced text is decoded in batches) beside free text.
3. `llama-completion -j` with the same schema, where `LLAMA_COMPLETION` names it (built from the engine's sources).
4. The matcher alone, without a model: mask, accept, forced and closing for each token of random outputs. CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import localrun
from localrun.constraint import check, prepare
from localrun.hardware.cpu import physical_cores
from localrun.llama.model import LlamaModel
from localrun.params import ConstraintSpec
from localrun.responder import Result

STRINGS = {"type": "array", "items": {"type": "string", "minLength": 40}, "minItems": 50}
NAMES = [
    f"{a}_{b}_of_the_{c}"
    for a in ("preferred", "alternative")
    for b in ("description", "classification")
    for c in ("product", "manufacturer")
]
LONG_NAMES = {
    "type": "object",
    "properties": {name: {"type": "integer", "minimum": 0, "maximum": 100} for name in NAMES},
    "required": NAMES,
    "additionalProperties": False,
}  # fmt: skip
PROMPT = "Describe a chair in numbers."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    with localrun.load(arguments.model, offline=True, n_ctx=1024, threads=arguments.threads) as model:
        compare(model, arguments)
        peer(model, arguments)
    matcher_alone(Path(arguments.model))


def compare(model: localrun.Model, arguments: argparse.Namespace) -> None:
    """Free and constrained in turns, so that whatever else the machine does strikes all of them."""
    free: list[Result] = []
    strings: list[Result] = []
    named: list[Result] = []
    prompt = PROMPT if model.info.can_chat else PROMPT.encode()
    for seed in range(arguments.rounds + 1):
        params = {"seed": seed, "max_tokens": arguments.tokens, "temperature": 1.0}
        results = (
            model.generate(prompt, ignore_eos=True, **params),
            model.generate(prompt, constraint=spec(STRINGS, close=False), **params),
            model.generate(prompt, constraint=spec(LONG_NAMES), **params | {"max_tokens": 400}),
        )
        if seed > 0:  # the first round warms up
            for kept, result in zip((free, strings, named), results, strict=True):
                kept.append(result)
    per_token = [seconds_per_token(c) / seconds_per_token(f) for c, f in zip(strings, free, strict=True)]
    speeds = [chars_per_second(c) / chars_per_second(f) for c, f in zip(named, free, strict=True)]
    print(f"free text                {1e3 * statistics.median(map(seconds_per_token, free)):8.2f} ms a token")
    print(f"constrained JSON         {statistics.median(per_token):8.3f} x the time of free text per token")
    print(f"long property names      {statistics.median(speeds):8.2f} x the characters a second of free text")


def spec(schema: Mapping[str, object], *, close: bool = True) -> ConstraintSpec:
    return ConstraintSpec("json_schema", json.dumps(schema), "schema", close=close)


def seconds_per_token(result: Result) -> float:
    return result.timings.decode_s / max(1, result.usage.completion_tokens - 1)


def chars_per_second(result: Result) -> float:
    return len(result.text) / result.timings.decode_s


def matcher_alone(path: Path) -> None:
    """The CPU time of the matcher per token, and of the tables, without a decode: a busy machine does not change it."""
    model = LlamaModel.load(path, vocab_only=True)
    table = model.vocabulary
    start = time.thread_time()
    vocabulary = prepare(table)
    print(f"tables for {table.n_tokens:,} tokens {time.thread_time() - start:8.3f} s")
    rng = np.random.default_rng(0)
    costs: list[float] = []
    for schema in (STRINGS, LONG_NAMES, {}, {"type": "array", "items": {"type": "string", "maxLength": 500}}):
        constraint = check(spec(dict(schema))).bind_to(vocabulary)
        for _ in range(5):
            matcher = constraint.matcher()
            for step in range(100):
                logits = rng.gumbel(size=table.n_tokens).astype(np.float32)
                start = time.thread_time()
                matcher.mask(logits)
                masked = time.thread_time()
                token = int(np.argmax(logits))
                if token in table.eog_ids:
                    break
                chosen = time.thread_time()
                matcher.accept(token)
                for forced in matcher.forced():
                    matcher.accept(forced)
                matcher.closing(400 - step)
                costs.append(masked - start + time.thread_time() - chosen)
                if matcher.must_end:
                    break
    milliseconds = 1e3 * np.array(costs)
    median, high = np.percentile(milliseconds, [50, 99])
    print(f"matcher alone            {median:8.3f} ms a token (99 % under {high:.2f}, worst {milliseconds.max():.2f})")
    model.close()


@dataclass(frozen=True, slots=True)
class Completion:
    """One run of llama.cpp's tool, as its own account has it."""

    text: str
    n_tokens: int
    seconds: float
    """Decoding and sampling, without the prompt."""


def peer(model: localrun.Model, arguments: argparse.Namespace) -> None:
    """llama.cpp's own tool on the same schema and prompt, in turns with ours."""
    tool = os.environ.get("LLAMA_COMPLETION")
    if tool is None:
        print("llama-completion is not here: LLAMA_COMPLETION names its path")
        return
    costs: list[float] = []
    seconds: list[float] = []
    speeds: list[float] = []
    schema = ["-n", "400", "-j", json.dumps(LONG_NAMES)]
    for seed in range(1, arguments.rounds + 1):
        params = {"seed": seed, "max_tokens": 400, "temperature": 1.0}
        ours = model.generate(PROMPT.encode(), constraint=spec(LONG_NAMES), **params)
        theirs = completion(tool, arguments, seed, schema)
        free = completion(tool, arguments, seed, ["-n", str(arguments.tokens), "--ignore-eos"])
        costs.append(theirs.seconds / theirs.n_tokens / (free.seconds / free.n_tokens))
        seconds.append(ours.timings.decode_s / theirs.seconds)
        speeds.append(chars_per_second(ours) / (len(theirs.text) / theirs.seconds))
    print(f"llama-completion -j      {statistics.median(costs):8.3f} x the time of its own free text per token")
    print(f"the same schema, ours    {statistics.median(seconds):8.3f} x its time for the whole object")
    print(f"the same schema, ours    {statistics.median(speeds):8.2f} x its characters a second")


def completion(tool: str, arguments: argparse.Namespace, seed: int, extra: list[str]) -> Completion:
    """Run the tool once, and read the times it prints."""
    command = [tool, "-m", arguments.model, "-p", PROMPT, "-no-cnv", "--no-display-prompt", "--seed", str(seed)]
    command += ["--temp", "1.0", "-t", str(arguments.threads or physical_cores()), *extra]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, check=True)
    evaluated = re.search(r"(?<!prompt )eval time =\s*([\d.]+) ms /\s*(\d+) runs", done.stderr)
    sampled = re.search(r"sampling time =\s*([\d.]+) ms", done.stderr)
    if evaluated is None or sampled is None:
        sys.exit(f"{tool} printed no times: {done.stderr[-500:]}")
    text = done.stdout.removesuffix("\n\n").removesuffix(" [end of text]").strip()
    return Completion(text, int(evaluated[2]), (float(evaluated[1]) + float(sampled[1])) / 1e3)


if __name__ == "__main__":
    main()
