"""From a source to a finished file: the order in which everything happens.

Knows the stages, none of their insides. Invariant: whatever can be found wrong with the source, the recipe or the
destination is found before a weight is read.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from gguf.constants import GGUFValueType

from quantize import pipeline
from quantize.base import base_file, base_plan
from quantize.blocks import ColumnWeights, PlainSearch
from quantize.cores import available_cores, free_cores
from quantize.destination import (
    check_destination,
    check_output_name,
    check_report_names,
    default_output,
    fingerprint,
    source_files,
)
from quantize.errors import QuantizeError, RecipeError
from quantize.importance import ImportanceMatrix, MatrixColumns, read_matrix, write_matrix
from quantize.importance.texts import from_file
from quantize.model import MetadataValue, Model
from quantize.plan import Plan, make_plan
from quantize.progress import ProgressCallback
from quantize.recipe import Recipe, parse_layers, parse_override, prune
from quantize.report.quality import QualityReport, placeholder, write_reports
from quantize.settings import Result, Settings
from quantize.source import open_source
from quantize.split import parse_size
from quantize.types import IGNORE_MATRIX, parse_mix


class Conversion:
    """One conversion, prepared: the model is open and the plan is made, no weight has been read."""

    def __init__(self, source: Path, output: Path | None, settings: Settings) -> None:
        """Raises SourceError, RecipeError, DestinationError: see `convert`."""
        if output is not None:
            check_output_name(output)
        check_report_names(settings.report_files)
        self.source = source
        self.settings = settings
        self.threads = settings.threads or available_cores()
        self._engine_threads = self.threads
        model = open_source(source, pre_tokenizer=settings.pre_tokenizer, name=settings.name)
        self._kept_layers: dict[int, int] | None = None
        if settings.prune_layers is not None:
            layers = parse_layers(settings.prune_layers)
            n_layer = int(model.metadata[f"{model.architecture}.block_count"].value)  # type: ignore[call-overload]
            model = prune(model, layers)
            self._kept_layers = dict(enumerate(layer for layer in range(n_layer) if layer not in layers))
        self.model: Model = model
        overrides = tuple(parse_override(text) for text in settings.tensors)
        mix = None if settings.type.lower() == "copy" else parse_mix(settings.type)
        if mix is None and (overrides or settings.pure):
            raise RecipeError("copy changes no types", hint="drop --tensor and --pure, or choose another --type")
        self.recipe = Recipe(mix, overrides, settings.pure)
        self.output = default_output(source, self.recipe.name, name=settings.name) if output is None else output
        self.split = parse_size(settings.split) if settings.split is not None else None
        self._matrix = self._given_matrix()
        self.collects_matrix = self._matrix is None and str(settings.imatrix) == "auto" and self._would_use_matrix()
        for flag, path in (("calibration", settings.calibration), ("save_imatrix", settings.save_imatrix)):
            if path is not None and not self.collects_matrix:
                raise RecipeError(
                    f"{flag.replace('_', '-')} {path} has no use: no importance matrix is collected",
                    hint="it goes with --imatrix auto and a type that uses one",
                )
        self.plan = self._plan(pending=self.collects_matrix)
        self.warnings = list(self.plan.warnings)
        if not self._predicts_tokens() and (settings.report or str(settings.imatrix) == "auto"):
            self.warnings.append("the model predicts no tokens: no importance matrix, no quality report")
        self._checked = False
        self._kept_matrix: Path | None = None

    def check_destination(self) -> None:
        """Refuse an output that would fail later, or destroy the source. Raises DestinationError."""
        if self._checked:
            return
        self._checked = True
        if self.settings.calibration is not None:
            from_file(self.settings.calibration)  # raises what is wrong with it now, not after minutes
        settings = self.settings
        beside = [("--report", path) for path in settings.report_files]
        if settings.save_imatrix is not None:
            beside.append(("--save-imatrix", settings.save_imatrix))
        inputs = [] if settings.calibration is None else [settings.calibration]
        if str(settings.imatrix) not in {"auto", "off"}:
            inputs.append(Path(settings.imatrix))
        self.warnings += check_destination(
            self.source,
            self.plan,
            base=base_plan(self.model, self.output) if self._needs_base_file() else None,
            beside=beside,
            inputs=inputs,
            force=settings.force,
        )

    def run(self, progress: ProgressCallback | None = None) -> Result:
        """Do everything. Raises what `convert` says."""
        started = time.monotonic()
        self.check_destination()
        if not self.collects_matrix and not self._reports():
            done = self._write(progress)
            quality = None
        else:
            self._engine_threads = self.settings.threads or free_cores()
            pruned = self._kept_layers is not None
            with base_file(
                self.model,
                self.source,
                self.output,
                pruned=pruned,
                fingerprint=self._source_fingerprint("base"),
                threads=self.threads,
                progress=progress,
            ) as base:
                if self.collects_matrix:
                    self._collect(base, progress)
                done = self._write(progress)
                quality = self._measure(base, done, progress) if self._reports() else None
        return Result(
            files=tuple(file.path for file in self.plan.files),
            plan=self.plan,
            seconds=time.monotonic() - started,
            pass_result=done,
            matrix="off" if self._matrix is None else self._matrix.source or "auto",
            quality=quality,
            warnings=self.warnings,
        )

    def _base_name(self) -> str:
        """The source, with the float type that most of it is stored in."""
        kinds = Counter[str]()
        for tensor in self.model.tensors:
            kinds[tensor.source_type.name.lower()] += tensor.n_values
        pruned = ", pruned" if self._kept_layers is not None else ""
        return f"{self.source.resolve().name} ({kinds.most_common(1)[0][0]}{pruned})"

    def _predicts_tokens(self) -> bool:
        entry = self.model.metadata.get(f"{self.model.architecture}.attention.causal")
        return entry is None or bool(entry.value)

    def _given_matrix(self) -> ImportanceMatrix | None:
        if str(self.settings.imatrix) in {"auto", "off"}:
            return None
        matrix = read_matrix(Path(self.settings.imatrix))
        return matrix if self._kept_layers is None else matrix.renumbered(self._kept_layers)

    def _would_use_matrix(self) -> bool:
        if self.recipe.mix is None or not self.recipe.mix.quantizes or not self._predicts_tokens():
            return False
        return any(
            planned.choice.type not in IGNORE_MATRIX and planned.choice.type != planned.choice.tensor.source_type
            for planned in self._plan(pending=True).tensors
        )

    def _reports(self) -> bool:
        """A report compares; where every tensor keeps its type there is nothing to compare."""
        changed = any(p.choice.type != p.choice.tensor.source_type for p in self.plan.tensors)
        quantized = self.recipe.mix is not None and self.recipe.mix.quantizes
        return self.settings.report and changed and quantized and self._predicts_tokens()

    def _needs_base_file(self) -> bool:
        is_own_base = self.source.is_file() and self._kept_layers is None
        return not is_own_base and (self.collects_matrix or self._reports())

    def _plan(self, *, pending: bool = False) -> Plan:
        extra: dict[str, MetadataValue] = {}
        if self._matrix is not None:
            extra |= _matrix_metadata(self._matrix)
        if self.settings.report and self.recipe.mix is not None and self.recipe.mix.quantizes:
            extra |= placeholder()
        return make_plan(
            self.model,
            self.recipe,
            self.output,
            matrix_names=None if self._matrix is None else self._matrix.names,
            matrix_pending=pending,
            extra_metadata=extra,
            split_bytes=self.split,
        )

    def _collect(self, base: Path, progress: ProgressCallback | None) -> None:
        """Collect the matrix, or take the one that an interrupted run collected from the same source and text."""
        from quantize.importance.collection import collect_default  # loads the engine

        identity = hashlib.sha256(self._source_fingerprint(str(self.settings.calibration)).encode()).hexdigest()[:16]
        kept = self.output.with_name(f"{self.output.name}.{identity}.imatrix.gguf")
        if kept.exists():
            self._matrix = read_matrix(kept)
        else:
            self._matrix = collect_default(
                base,
                self.settings.calibration,
                threads=self._engine_threads,
                gpu_layers=self.settings.gpu_layers,
                progress=progress,
            )
            write_matrix(self._matrix, kept)
        if self.settings.save_imatrix is not None:
            write_matrix(self._matrix, self.settings.save_imatrix)
        self._kept_matrix = kept
        self._matrix = ImportanceMatrix(
            self._matrix.entries, self._matrix.datasets, self._matrix.chunk_count, self._matrix.chunk_size
        )
        self.plan = self._plan()

    def _source_fingerprint(self, *more: str) -> str:
        return fingerprint(source_files(self.source), *more, str(self.settings.prune_layers))

    def _write(self, progress: ProgressCallback | None) -> pipeline.PassResult:
        weights: ColumnWeights = PlainSearch()
        digest = "none"
        if self._matrix is not None:
            weights = MatrixColumns(self._matrix, exact=self.settings.exact)
            digest = self._matrix.digest
        done = pipeline.run(
            self.plan,
            weights,
            fingerprint=self._source_fingerprint(digest, str(self.settings.exact)),
            threads=self.threads,
            progress=progress,
            measure_error=self._reports(),
        )
        pipeline.finish(self.plan)
        if self._kept_matrix is not None:
            self._kept_matrix.unlink(missing_ok=True)
        return done

    def _measure(
        self, base: Path, done: pipeline.PassResult, progress: ProgressCallback | None
    ) -> QualityReport | None:
        from quantize.report.quality import measure  # loads the engine

        try:
            report = measure(
                base,
                self.plan.files[0].path,
                base_name=self._base_name(),
                errors={name: error.relative for name, error in done.errors.items()},
                plan=self.plan,
                threads=self._engine_threads,
                gpu_layers=self.settings.gpu_layers,
                progress=progress,
            )
        except QuantizeError as error:
            # The file is complete; that it could not be measured must not look like a failure to make it.
            self.warnings.append(f"no quality report: {error.message}")
            return None
        report.store(self.plan.files[0])
        write_reports(report, self.settings.report_files)
        return report


def convert(
    source: Path | str,
    output: Path | str | None = None,
    *,
    progress: ProgressCallback | None = None,
    **settings: object,
) -> Result:
    """Convert a checkpoint folder or a GGUF file to a quantized GGUF file.

    Args:
        source: a Hugging Face checkpoint folder, a GGUF file, or the first of a set of shards.
        output: the file to write; by default a name made from the source and the type, in the current folder.
        progress: called from the calling thread with what was done.
        **settings: the fields of `Settings`.

    Raises:
        SourceError, UnsupportedError: the source is incomplete, damaged or of an unknown kind.
        RecipeError: types, patterns or layers that make no sense for this model.
        DestinationError, NoSpaceError: the output is the source, or cannot be written.
        WeightError: a weight is NaN, infinite or too large for its type.
        KeyboardInterrupt: interrupted; the same call goes on where it stopped.
    """
    prepared = Conversion(Path(source), None if output is None else Path(output), Settings(**settings))  # type: ignore[arg-type]
    return prepared.run(progress)


def dry_run(source: Path | str, output: Path | str | None = None, **settings: object) -> Plan:
    """The plan that `convert` would carry out with the same arguments; reads headers only. Raises the same errors."""
    prepared = Conversion(Path(source), None if output is None else Path(output), Settings(**settings))  # type: ignore[arg-type]
    return prepared.plan


def _matrix_metadata(matrix: ImportanceMatrix) -> Mapping[str, MetadataValue]:
    """The keys that llama-quantize writes about its importance matrix."""
    datasets: Sequence[str] = matrix.datasets or ("unknown",)
    return {
        "quantize.imatrix.file": MetadataValue(matrix.source or "localrun", GGUFValueType.STRING),
        "quantize.imatrix.dataset": MetadataValue(", ".join(datasets), GGUFValueType.STRING),
        "quantize.imatrix.entries_count": MetadataValue(len(matrix.entries), GGUFValueType.UINT32),
        "quantize.imatrix.chunks_count": MetadataValue(matrix.chunk_count, GGUFValueType.UINT32),
    }
