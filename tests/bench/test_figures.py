"""Promises of results: nothing is lost in a file, and only a real change is called one."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from localrun.bench.charts import bar, comparison_text, quantity, result_text
from localrun.bench.figures import BenchResult, Figure, compare, load_result, percentile
from localrun.bench.html import result_page
from localrun.errors import InputError


def figure(name: str = "tpot/depth=512", samples: tuple[float, ...] = (0.1, 0.11, 0.12), **more: object) -> Figure:
    values = {"label": name, "unit": "s", "higher_is_better": False, "group": name.split("/")[0], "x": 512.0}
    return Figure(name=name, samples=samples, **(values | more))  # type: ignore[arg-type]


def result(*figures: Figure, **more: object) -> BenchResult:
    values: dict[str, object] = {
        "suite": "quick",
        "machine": {"description": "a machine"},
        "model": {"name": "m", "quantization": "Q4_0", "fingerprint": "f"},
        "settings": {"threads": 2},
        "bandwidth": 30e9,
        "started": "2026-01-01T00:00:00+00:00",
    }
    return BenchResult(figures=list(figures), **(values | more))  # type: ignore[arg-type]


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    one = result(figure(bytes_per_token=10, roofline_share=0.5), figure("load", (1.0,)), notes=["busy"])
    path = tmp_path / "r.json"
    path.write_text(json.dumps(one.as_json()))
    assert load_result(path) == one


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "null", '{"format": 2}', '{"format": 1, "figures": [{"name": "x"}]}', '{"format": 1}', "\x00"],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"r\.json"):
        load_result(path)
    with pytest.raises(InputError):
        load_result(tmp_path / "nothing.json")


def test_the_spread_ignores_one_outlier() -> None:
    assert figure(samples=(1.0, 1.0, 1.0, 1.0, 9.0)).spread == 0
    assert figure(samples=(1.0,)).spread == 0
    assert figure(samples=(1.0, 2.0, 3.0)).spread == pytest.approx(1.4826)


def test_noise_is_no_change() -> None:
    chance = random.Random(1)
    for _ in range(50):
        before, after = (figure(samples=tuple(chance.gauss(1, 0.05) for _ in range(5))) for _ in range(2))
        (change,) = compare(result(before), result(after)).changes
        assert not change.is_real or abs(change.after - change.before) > 2 * change.noise


@pytest.mark.parametrize(
    ("before", "after", "real", "better"),
    [
        ((1.0, 1.01, 0.99), (2.0, 2.01, 1.99), True, False),
        ((2.0, 2.01, 1.99), (1.0, 1.01, 0.99), True, True),
        ((1.0, 1.01, 0.99), (1.01, 1.02, 1.0), False, False),
        ((1.0, 2.0, 3.0), (2.0, 3.0, 4.0), False, False),
    ],
)
def test_a_change_is_real_beyond_the_noise_only(
    before: tuple[float, ...], after: tuple[float, ...], real: bool, better: bool
) -> None:
    (change,) = compare(result(figure(samples=before)), result(figure(samples=after))).changes
    assert change.is_real == real
    assert not real or change.is_better == better


def test_two_runs_that_are_not_comparable_say_so() -> None:
    other = {"description": "another machine"}
    found = compare(result(figure()), result(figure("decode/depth=512"), machine=other, settings={"threads": 1}))
    assert len(found.warnings) == 2
    assert found.missing == ("tpot/depth=512",)
    text = comparison_text(found)
    assert "another machine" in text
    assert "0 figures changed" in text


def test_percentiles_are_samples_by_nearest_rank() -> None:
    samples = [float(n) for n in range(1, 101)]
    assert [percentile(samples, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]
    assert percentile([3.0], 0.5) == percentile([3.0], 0.99) == 3
    assert percentile([1.0, 2.0], 0.5) == 1


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.0123, "s", "12.3 ms"), (2.5, "s", "2.50 s"), (123.4, "tokens/s", "123 tokens/s"), (99.6, "%", "100 %")],
)
def test_quantities_are_written_as_people_read_them(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_bars_grow_with_the_value() -> None:
    lengths = [len(bar(value, 10, 20)) for value in range(11)]
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[10]) == (0, 20)
    assert bar(1, 0) == ""


def test_the_text_has_every_figure_and_the_roofline() -> None:
    text = result_text(result(figure(bytes_per_token=100_000_000, roofline_share=0.42), notes=["busy"]))
    assert "tpot/depth=512" in text
    assert "42 % of what memory allows" in text
    assert "note     busy" in text
    assert "\x1b" not in text


def test_the_page_is_complete_and_escapes_foreign_text() -> None:
    evil = {"name": "<script>alert(1)</script>", "quantization": "Q4_0", "fingerprint": "f"}
    points = [figure(f"tpot/depth={n}", x=float(n)) for n in (128, 512)]
    page = result_page(result(*points, model=evil), compare(result(figure(samples=(1.0,))), result(*points)))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<svg") == 1
    assert "http" not in page.replace("http://www.w3.org", "")
    assert page.rstrip().endswith("</html>")
    (picture,) = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    ElementTree.fromstring(picture)
