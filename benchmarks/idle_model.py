"""What a second model costs that is loaded in the same process and has nothing to do.

    python benchmarks/idle_model.py MODEL.gguf OTHER.gguf [--threads 2] [--rounds 4]

OpenMP counts the threads of all teams in a process, idle ones too, and stops spinning where they are more than the
cores. Decoding is timed alone, then after each answer of the other model.
"""

from __future__ import annotations

import argparse
import os
import statistics

import localrun

PROMPT = b"Tell a story about the sea."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("other")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    options = {"threads": arguments.threads, "cache": False, "offline": True}
    with localrun.load(arguments.model, **options) as model:
        tokens_per_second(model)
        alone = [tokens_per_second(model) for _ in range(arguments.rounds)]
        with localrun.load(arguments.other, **options) as other:
            beside = []
            for _ in range(arguments.rounds):
                tokens_per_second(other, 8)
                beside.append(tokens_per_second(model))
    a, b = statistics.median(alone), statistics.median(beside)
    print(f"alone {a:.1f}   beside an idle model {b:.1f} tokens/s   ratio {b / a:.2f}")


def tokens_per_second(model: localrun.Model, n: int = 96) -> float:
    result = model.generate(PROMPT, max_tokens=n, temperature=0, ignore_eos=True)
    return (result.usage.completion_tokens - 1) / result.timings.decode_s


if __name__ == "__main__":
    main()
