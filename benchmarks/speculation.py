"""Speculation by prompt lookup against plain decoding, in turns, on texts that copy and texts that do not.

python -m benchmarks.speculation MODEL.gguf [--rounds 4] [--tokens 160] [--threads N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from localrun.catalog import ModelFile
from localrun.local import LocalResponder
from localrun.params import EngineParams, GenerationParams, SamplingParams
from localrun.responder import Done, Request, Result

THINGS = ("lamp", "chair", "map", "ink", "rope")
LIST = "\n".join(f"{i}. The {name} is kept in room {i * 7}." for i, name in enumerate(THINGS, 1))
WORKLOADS = {
    "copy": f"{LIST}\n\nThe same list, copied:\n{LIST}\n\nThe same list, copied again:\n1. The lamp",
    "story": "Once upon a time, in a village by the sea, there lived",
    "facts": "The history of the bicycle begins in the early nineteenth century, when",
    "code": "def fibonacci(n):\n    if n < 2:\n        return n\n",
}
ASKED = {"copy": "≥ 1.3"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALRUN_HOME"] = folder
        plain, guessing = (open_model(a.model, a.threads, draft) for draft in (None, "ngram"))
        for name, prompt in WORKLOADS.items():
            pairs = [(ask(guessing, prompt, a.tokens), ask(plain, prompt, a.tokens)) for _ in range(a.rounds + 1)][1:]
            ratio = statistics.median(g.timings.decode_tps / p.timings.decode_tps for g, p in pairs)
            usage = pairs[-1][0].usage
            same = pairs[-1][0].text == pairs[-1][1].text
            print(
                f"{name:6} plain {pairs[-1][1].timings.decode_tps:6.1f} tokens/s   ratio {ratio:.2f}   "
                f"asked {ASKED.get(name, '≥ 0.97')}   {usage.draft_accepted} of {usage.draft_tokens} guesses right   "
                f"text {'the same' if same else 'differs'}",
                flush=True,
            )


def open_model(path: Path, threads: int, draft: str | None) -> LocalResponder:
    params = EngineParams(n_ctx=2048, threads=threads, cache=False, draft=draft)
    return LocalResponder(ModelFile(path, path.stem, "file"), params)


def ask(responder: LocalResponder, prompt: str, n: int) -> Result:
    params = GenerationParams(sampling=SamplingParams(temperature=0), max_tokens=n, ignore_eos=True)
    *_, last = responder.respond(Request(params, raw=prompt.encode()))
    assert isinstance(last, Done)
    return last.result


if __name__ == "__main__":
    main()
