"""The importance matrix: collected from a running model, exchanged with llama.cpp, used by the pass."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.constants import GGMLQuantizationType

from quantize import pipeline
from quantize.blocks import PlainSearch, n_matrices
from quantize.errors import QuantizeError, RecipeError, SourceError
from quantize.importance import Entry, ImportanceMatrix, MatrixColumns, read_matrix, texts, write_matrix
from quantize.importance.collect import collect, weight_name, with_start
from quantize.importance.generate import PROMPTS, generate
from quantize.model import Model
from quantize.plan import make_plan
from quantize.recipe import Recipe, check_matrix
from quantize.runtime import LoadedModel
from quantize.tensor_view import check_layout
from quantize.types import parse_mix
from tests.quantize.oracle import llama_quantize
from tests.quantize.synthetic import llama, read_tensors, tensor

TIED = llama()
EXPERTS = llama(n_expert=4, embd=256, ff=256, n_layer=1)


def write(model: Model, mix: str, path: Path, matrix: ImportanceMatrix | None = None, *, exact: bool = False) -> Path:
    names = None if matrix is None else matrix.names
    plan = make_plan(model, Recipe(parse_mix(mix)), path, matrix_names=names)
    weights = PlainSearch() if matrix is None else MatrixColumns(matrix, exact=exact)
    pipeline.run(plan, weights, fingerprint="x", threads=2)
    pipeline.finish(plan)
    return path


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(TIED, "f32", tmp_path_factory.mktemp("m") / "tied.gguf")


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(EXPERTS, "f32", tmp_path_factory.mktemp("m") / "experts.gguf")


def chunks(n: int, length: int = 64) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, 257, length).astype(np.int32) for _ in range(n)]


def random_matrix(model: Model) -> ImportanceMatrix:
    rng = np.random.default_rng(9)
    entries = {}
    for t in model.tensors:
        if len(t.shape) > 1 and t.name != "token_embd.weight":
            n = n_matrices(t)
            entries[t.name] = Entry(rng.random((n, t.n_cols), np.float32) * 50, np.full(n, 37, np.float32))
    return ImportanceMatrix(entries, ("a.txt",), 3, 512)


def test_the_layout_of_the_engine_s_tensors_is_the_one_that_is_read() -> None:
    operations = check_layout()
    assert operations.mul_mat != operations.mul_mat_id


def test_every_matrix_is_collected_the_tied_head_too(tied: Path) -> None:
    found = collect(tied, chunks(2), datasets=("x",), threads=1)
    assert found.names == {t.name for t in TIED.tensors if len(t.shape) > 1}
    for t in TIED.tensors:
        if len(t.shape) > 1:
            assert found.entries[t.name].sums.shape == (1, t.n_cols)
            assert (found.entries[t.name].sums >= 0).all()
            assert found.entries[t.name].counts.tolist() == [128]


def test_the_sums_are_the_squared_inputs_of_the_matrix(tied: Path) -> None:
    # The first norm has weights of one, so the input of the first query is the embedding divided by its own length.
    tokens = chunks(1)[0]
    embedding = TIED.tensors[0].read(0, 258)[with_start(tokens, 257)]
    normed = embedding / np.sqrt((embedding**2).mean(axis=1, keepdims=True) + 1e-5)
    found = collect(tied, [tokens], datasets=(), threads=1)
    for kind in "qkv":
        entry = found.entries[f"blk.0.attn_{kind}.weight"]
        np.testing.assert_allclose(entry.sums[0], (normed**2).sum(axis=0), rtol=1e-4)


def test_experts_are_counted_by_the_tokens_that_reach_them(experts: Path) -> None:
    found = collect(experts, chunks(2), datasets=(), threads=1)
    gate, down = found.entries["blk.0.ffn_gate_exps.weight"], found.entries["blk.0.ffn_down_exps.weight"]
    assert gate.counts.sum() == 2 * 64 * 2  # two experts for each token of two chunks
    assert gate.counts.tolist() == down.counts.tolist()
    assert gate.sums.shape == (4, 256)
    # What reaches all experts together is what reaches the router, twice.
    router = found.entries["blk.0.ffn_gate_inp.weight"]
    np.testing.assert_allclose(gate.sums.sum(axis=0), 2 * router.sums[0], rtol=1e-4)


def test_a_copy_on_another_device_keeps_its_name() -> None:
    assert weight_name("CUDA0#blk.0.attn_q.weight#0") == "blk.0.attn_q.weight"
    assert weight_name("blk.0.attn_q.weight") == "blk.0.attn_q.weight"


def test_a_matrix_survives_its_file_in_llama_cpp_s_form(tmp_path: Path) -> None:
    matrix = random_matrix(EXPERTS)
    write_matrix(matrix, tmp_path / "m.gguf")
    again = read_matrix(tmp_path / "m.gguf")
    assert again.digest == matrix.digest
    assert (again.datasets, again.chunk_count, again.chunk_size) == (("a.txt",), 3, 512)
    reader = GGUFReader(tmp_path / "m.gguf")
    assert reader.fields["general.type"].contents() == "imatrix"
    shapes = {t.name: t.shape.tolist() for t in reader.tensors}
    assert shapes["blk.0.ffn_up_exps.weight.in_sum2"] == [256, 4]
    assert shapes["blk.0.ffn_up_exps.weight.counts"] == [1, 4]


def test_the_older_form_is_read(tmp_path: Path) -> None:
    name, values = b"blk.0.attn_q.weight", np.linspace(1, 4, 256, dtype="<f4")
    entry = struct.pack("<i", len(name)) + name + struct.pack("<ii", 5, 256) + values.tobytes()
    (tmp_path / "m.dat").write_bytes(struct.pack("<i", 1) + entry + struct.pack("<ii", 7, 3) + b"abc")
    found = read_matrix(tmp_path / "m.dat")
    assert found.chunk_count == 7
    np.testing.assert_allclose(found.entries["blk.0.attn_q.weight"].mean_squares()[0], values / 5)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"GGUF" + b"\xff" * 40,
        struct.pack("<i", 1 << 30),
        struct.pack("<ii", 1, -5),
        b"<!DOCTYPE html>" * 9,
    ],
)
def test_a_damaged_matrix_is_an_error_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.dat").write_bytes(content)
    with pytest.raises(SourceError, match=r"bad\.dat"):
        read_matrix(tmp_path / "bad.dat")


def test_a_matrix_that_is_not_there_or_a_model_is_refused(tmp_path: Path, tied: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read_matrix(tmp_path / "none.gguf")
    with pytest.raises(SourceError, match="no importance data"):
        read_matrix(tied)


def test_figures_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    matrix = ImportanceMatrix({"x": Entry(np.array([[np.nan, 1]], np.float32), np.array([1], np.float32))})
    write_matrix(matrix, tmp_path / "m.gguf")
    with pytest.raises(SourceError, match="NaN"):
        read_matrix(tmp_path / "m.gguf")


@pytest.mark.parametrize("mix", ["q4_k_m", "q4_0", "q5_0", "iq4_xs", "iq3_s", "q2_k", "q3_k_m"])
def test_with_a_matrix_the_data_equals_that_of_llama_quantize(mix: str, tied: Path, tmp_path: Path) -> None:
    matrix = random_matrix(TIED)
    write(TIED, mix, tmp_path / "ours.gguf", matrix, exact=True)
    values = {name: entry.mean_squares() for name, entry in matrix.entries.items()}
    llama_quantize(tied, tmp_path / "theirs.gguf", int(parse_mix(mix).file_type), matrix=values)
    assert read_tensors(tmp_path / "ours.gguf") == read_tensors(tmp_path / "theirs.gguf")


def test_with_a_matrix_experts_equal_those_of_llama_quantize(experts: Path, tmp_path: Path) -> None:
    matrix = random_matrix(EXPERTS)
    write(EXPERTS, "q4_k_m", tmp_path / "ours.gguf", matrix, exact=True)
    values = {name: entry.mean_squares() for name, entry in matrix.entries.items()}
    llama_quantize(experts, tmp_path / "theirs.gguf", int(parse_mix("q4_k_m").file_type), matrix=values)
    assert read_tensors(tmp_path / "ours.gguf") == read_tensors(tmp_path / "theirs.gguf")


def test_tensors_without_data_get_ones_unless_exactness_is_asked_for() -> None:
    empty, embedding = ImportanceMatrix({}), TIED.tensors[0]
    assert MatrixColumns(empty, exact=True).of(embedding, GGMLQuantizationType.Q4_0) is None
    assert (MatrixColumns(empty).of(embedding, GGMLQuantizationType.Q4_0) == np.ones((1, 256))).all()


def test_an_expert_without_data_gets_what_its_layer_shows() -> None:
    sums = np.stack([np.arange(1, 257), np.zeros(256)]).astype(np.float32) * 1000
    stack = tensor("blk.0.ffn_up_exps.weight", np.zeros((2, 4, 256)))
    matrix = ImportanceMatrix({stack.name: Entry(sums, np.array([1000, 0], np.float32))})
    weights = MatrixColumns(matrix).of(stack, GGMLQuantizationType.Q4_K)
    assert weights is not None
    np.testing.assert_allclose(weights[1], np.arange(1, 257), rtol=1e-5)
    exact = MatrixColumns(matrix, exact=True).of(stack, GGMLQuantizationType.Q4_K)
    assert exact is not None
    assert (exact[1] == 1).all()


def test_one_count_for_all_experts_is_understood() -> None:
    stack = tensor("blk.0.ffn_up_exps.weight", np.zeros((2, 4, 256)))
    entry = Entry(np.ones((1, 512), np.float32), np.array([4], np.float32))
    weights = MatrixColumns(ImportanceMatrix({stack.name: entry}), exact=True).of(stack, GGMLQuantizationType.Q4_K)
    assert weights is not None
    assert weights.shape == (2, 256)


def test_a_matrix_of_another_model_is_refused() -> None:
    matrix = ImportanceMatrix({"blk.0.attn_q.weight": Entry(np.ones((1, 128), np.float32), np.ones(1, np.float32))})
    with pytest.raises(RecipeError, match=r"another model|figures for blk\.0\.attn_q"):
        MatrixColumns(matrix).of(TIED.tensors[3], GGMLQuantizationType.Q4_K)


def test_a_matrix_for_pruned_layers_is_renumbered() -> None:
    matrix = random_matrix(TIED)
    renumbered = matrix.renumbered({0: 1})
    assert renumbered.entries["blk.0.attn_q.weight"] is matrix.entries["blk.1.attn_q.weight"]
    assert "blk.1.attn_q.weight" not in renumbered.entries


def test_a_collected_matrix_serves_the_types_that_need_one(tied: Path, tmp_path: Path) -> None:
    matrix = collect(tied, chunks(2), datasets=(), threads=1)
    recipe = Recipe(parse_mix("iq2_s"))
    plan = make_plan(TIED, recipe, tmp_path / "x.gguf", matrix_names=matrix.names)
    check_matrix([planned.choice for planned in plan.tensors], recipe, matrix.names)


def test_without_text_nothing_is_collected(tied: Path) -> None:
    with pytest.raises(QuantizeError, match="no calibration text"):
        collect(tied, [], datasets=(), threads=1)


def test_a_token_outside_of_the_vocabulary_is_refused(tied: Path) -> None:
    with pytest.raises(QuantizeError, match="token ids go from"):
        collect(tied, [np.full(40, 100_000, np.int32)], datasets=(), threads=1)


def test_a_file_that_the_engine_cannot_load_says_why(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(QuantizeError, match=r"cannot load .*x\.gguf: "):
        LoadedModel(tmp_path / "x.gguf")


def test_the_model_writes_the_same_text_again_and_other_text_for_evaluation(tied: Path) -> None:
    with LoadedModel(tied) as model:
        first = generate(model, 300, held_out=False, threads=1, max_length=128)
        again = generate(model, 300, held_out=False, threads=1, max_length=128)
        other = generate(model, 300, held_out=True, threads=1, max_length=128)
    assert len(first) == 300
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_calibration_and_evaluation_texts_do_not_overlap() -> None:
    for kind in (texts.prose, texts.code):
        calibration, evaluation = kind(held_out=False), kind(held_out=True)
        assert min(len(calibration), len(evaluation)) > 50_000
        lines = {line for line in calibration.splitlines() if len(line) > 60}
        shared = lines & {line for line in evaluation.splitlines() if len(line) > 60}
        assert len(shared) < len(lines) / 50
    assert len(set(PROMPTS)) == len(PROMPTS)


@pytest.mark.parametrize(("content", "message"), [(b"", "empty"), (b" \n", "empty"), (b"caf\xe9", "byte 3 is 0xe9")])
def test_a_calibration_file_that_is_no_text_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        texts.from_file(tmp_path / "t.txt")
