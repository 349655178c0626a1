"""The `Responder` on this machine.

Knows the template, the engine's thread and the constraint of a request; knows no command and no screen. Loading runs
beside the caller, who may render templates meanwhile. Invariants: an error reaches the one who asked, and `close`
leaves no thread and no memory behind.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from localrun.chat.messages import Message
from localrun.engine.disk_prefix import DiskPrefix
from localrun.engine.engine import Engine
from localrun.engine.kv_store import KVStore
from localrun.engine.sequence import Sequence
from localrun.engine.threads import ThreadGovernor
from localrun.engine.worker import EngineWorker
from localrun.errors import ConstraintError, UsageError
from localrun.gguf import GGUFHeader, known_sha256, read_header
from localrun.hardware.cpu import physical_cores, usable_cpus
from localrun.hardware.load import LoadProbe
from localrun.llama.context import LlamaContext
from localrun.local.answer import Answer, Sink
from localrun.local.loading import Loaded, load_model, open_context, plan_context
from localrun.local.output import AnswerOutput
from localrun.local.reuse import cache_budget, cache_identity
from localrun.local.weights import check_small_weights
from localrun.params import EngineParams
from localrun.paths import default_paths
from localrun.responder import Event, ModelIdentity, ModelInfo, Request, Warning_

if TYPE_CHECKING:
    from localrun.catalog import ModelFile, Progress
    from localrun.chat.prompt import PromptEncoder
    from localrun.chat.template import ChatTemplate, Prompt
    from localrun.constraint.compiled import CheckedConstraint, CompiledConstraint, PreparedVocabulary
    from localrun.constraint.matcher import TokenMatcher

_FIRST_ANSWER = 512
"""Tokens that memory is taken for when a request has no limit; the context grows when an answer is longer."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt as token ids; `prompt` is its rendered text, None for a raw one."""

    ids: list[int]
    prompt: Prompt | None

    @property
    def warnings(self) -> list[Warning_]:
        return [Warning_(n.code, n.message) for n in self.prompt.notices] if self.prompt is not None else []


class LocalResponder:
    """One model, loaded once, answering any number of requests, several at a time if `n_parallel` says so."""

    def __init__(
        self,
        file: ModelFile,
        params: EngineParams | None = None,
        *,
        on_load: Callable[[float], None] | None = None,
    ) -> None:
        """Checks the file, then starts to load it. Raises `ModelFileError` or `DoesNotFitError`."""
        self._file = file
        self._params = params or EngineParams()
        self._header: GGUFHeader = read_header(file.path)
        self._plan = plan_context(self._header, self._params)
        self._on_load = on_load
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._worker: EngineWorker | None = None
        self._context: LlamaContext | None = None
        self._disk: DiskPrefix | None = None
        # Made early: its first look at the load spans the time it takes to load the model.
        cores = physical_cores()
        n_prefill = min(usable_cpus(), 2 * cores)
        self._governor = ThreadGovernor(cores, LoadProbe().others, fixed=self._params.threads, n_prefill=n_prefill)
        self._loaded: Future[Loaded] = Future()
        self._load_s = 0.0
        self._loader = threading.Thread(target=self._load, name="localrun-loader", daemon=True)
        self._loader.start()

    # the Responder interface --------------------------------------------------------------------------------------

    @cached_property
    def info(self) -> ModelInfo:
        template = self._header.chat_template
        return ModelInfo(
            identity=self.identity,
            context_limit=self._plan.n_ctx,
            can_chat=bool(template),
            can_think=bool(template) and self.template.reasoning is not None,
            details={"architecture": self._header.architecture, "parameters": f"{self._header.parameters:,}"},
        )

    @cached_property
    def identity(self) -> ModelIdentity:
        path = self._file.path
        return ModelIdentity(self._file.name, str(path), self._header.quantization, known_sha256(path))

    def respond(self, request: Request) -> Iterator[Event]:
        """Yield the events of one answer. Closing the iterator cancels it."""
        answer = self.start(request)
        try:
            yield from answer
        finally:
            answer.close()

    def stop(self) -> None:
        """End what runs: loading, or every answer. Any thread may call it."""
        self._stopping.set()
        for answer in list(self._answers):
            answer.stop()

    def count_tokens(self, request: Request) -> int:
        """Prompt tokens of a request, template included."""
        return len(self.encode(request).ids)

    def close(self) -> None:
        """End everything and free the model. Idempotent."""
        self._stopping.set()
        self._loader.join()
        if self._worker is not None:
            self._worker.close()
        if self._disk is not None:
            self._disk.close()
        if self._context is not None:
            self._context.close()
        if self._loaded.done() and self._loaded.exception() is None:
            self._loaded.result().model.close()

    # one answer ---------------------------------------------------------------------------------------------------

    def start(self, request: Request, sink: Sink | None = None) -> Answer:
        """Begin an answer and return it at once; with `sink`, its events go there beside others'.

        Raises `TemplateError`, `ConstraintError` or `UsageError` for a request that makes no sense.
        """
        submitted = time.perf_counter()
        self._stopping.clear()
        constraint = _checked(request)
        self.render(request)  # beside the loading: a template's refusal is told before a weight is needed
        loaded = self.wait_loaded()
        encoded = self.encode(request)
        tokens, prompt = encoded.ids, encoded.prompt
        compiled: CompiledConstraint | None = None
        if constraint is not None:
            compiled = constraint.bind_to(self._prepared)
        params = request.params
        answer = Answer(self, request, submitted=submitted, sink=sink, constraint=compiled)
        output = AnswerOutput(
            answer.put,
            stops=params.stop,
            form=self._encoder.reasoning if prompt is not None else None,
            in_reasoning=prompt.in_reasoning if prompt is not None else False,
            budget=params.think_budget,
        )
        sequence = Sequence(
            tokens=tokens,
            n_prompt=len(tokens),
            params=params,
            seed=params.sampling.seed if params.sampling.seed is not None else draw_seed(),
            output=output,
            notify=answer.notify,
            matcher=self._matcher(compiled, request) if compiled is not None else None,
            explain=request.explain,
        )
        answer.begin(sequence, output, [*loaded.warnings, *self._plan.warnings, *encoded.warnings])
        self._worker_for(len(tokens), params.max_tokens).submit(sequence)
        return answer

    def render(self, request: Request) -> Prompt | None:
        """The prompt of a request through the template; None for a raw one. Raises `TemplateError`."""
        if request.raw is not None:
            return None
        return self.template.render(request.messages, **self._template_options(request))

    def encode(self, request: Request) -> Encoded:
        """Token ids of a request's prompt, and what there is to say about it. Waits for the model."""
        vocabulary = self.wait_loaded().model.vocabulary
        if request.raw is not None:
            bos = [vocabulary.bos] if vocabulary.adds_bos and vocabulary.bos is not None else []
            ids = vocabulary.encode(request.raw, special=True)
            if not ids and not bos:
                raise UsageError("the prompt is empty")
            return Encoded(ids if ids[:1] == bos else [*bos, *ids], None)
        with self._lock:
            encoded = self._encoder.encode(request.messages, **self._template_options(request))
        return Encoded(encoded.ids, encoded.prompt)

    def _template_options(self, request: Request) -> dict[str, Any]:
        constrained = request.params.constraint is not None
        begun = bool(request.prefill or request.prefill_reasoning)
        return {
            "think": request.params.think,
            "prefill": Message("assistant", request.prefill, request.prefill_reasoning) if begun else None,
            "tools": request.tools or None,
            # A model that would think by itself must begin now: the constraint waits for the end of its block.
            "open_reasoning": constrained and self.template.reasoning is not None,
        }

    @cached_property
    def _encoder(self) -> PromptEncoder:
        from localrun.chat.prompt import PromptEncoder

        vocabulary = self.wait_loaded().model.vocabulary
        return PromptEncoder(self.template, vocabulary, bos=vocabulary.bos if vocabulary.adds_bos else None)

    def _matcher(self, constraint: CompiledConstraint, request: Request) -> TokenMatcher:
        """The constraint's state where the answer begins: at its start, or after the prefill."""
        matcher = constraint.matcher()
        if request.prefill and request.constrains_prefill:
            try:
                for token in self.wait_loaded().model.vocabulary.encode(request.prefill.encode()):
                    matcher.accept(token)
            except ConstraintError as error:
                raise UsageError("the beginning of the answer does not match the constraint") from error
        return matcher

    @cached_property
    def _prepared(self) -> PreparedVocabulary:
        """What all constraints of this model share: it takes 0.1 s and more to build."""
        from localrun.constraint import prepare

        return prepare(self.wait_loaded().model.vocabulary)

    def wait_loaded(self) -> Loaded:
        """The model, when it is there. Raises what loading raised."""
        return self._loaded.result()

    @property
    def cache_problems(self) -> list[str]:
        """What went wrong with the cache on disk, one line each; never a reason to fail."""
        return self._disk.problems if self._disk is not None else []

    def reserve(self) -> None:
        """Wait for the model and take the memory of all sequences now, so that none waits while it grows.

        Raises what loading raises, and `DoesNotFitError`.
        """
        self._worker_for(self._plan.n_ctx, 0)

    @property
    def load_s(self) -> float:
        return self._load_s

    @property
    def context_limit(self) -> int:
        return self._plan.n_ctx

    @cached_property
    def template(self) -> ChatTemplate:
        """The model's chat template. Raises `TemplateError` for a base model."""
        from localrun.chat.template import ChatTemplate

        tokens = self._header.array("tokenizer.ggml.tokens")

        def written(key: str) -> str:
            token = self._header.integer(f"tokenizer.ggml.{key}_token_id")
            return str(tokens[token]) if tokens is not None and token is not None and token < len(tokens) else ""

        return ChatTemplate(
            self._header.chat_template, bos_token=written("bos"), eos_token=written("eos"), name=self._file.name
        )

    def forget(self, answer: Answer) -> None:
        """Called by an answer that has ended."""
        with self._lock:
            if answer in self._answers:
                self._answers.remove(answer)

    def remember(self, answer: Answer) -> None:
        """Called by an answer that begins: `stop` reaches it."""
        with self._lock:
            self._answers.append(answer)
        if self._stopping.is_set():
            answer.stop()

    def cancel(self, sequence: Sequence) -> None:
        if self._worker is not None:
            self._worker.cancel(sequence)

    def _worker_for(self, n_prompt: int, max_tokens: int | None) -> EngineWorker:
        with self._lock:
            if self._worker is None:
                wanted = n_prompt + (max_tokens if max_tokens is not None else _FIRST_ANSWER) + 1
                n_first = min(self._plan.n_ctx, wanted) * self._params.n_parallel
                self._context = open_context(self.wait_loaded(), self._header, self._params, self._plan.n_ctx, n_first)
                self._disk = self._open_disk(self._context)
                engine = Engine(
                    self._context,
                    disk=self._disk,
                    n_parallel=self._params.n_parallel,
                    n_chunk=self._params.n_ubatch,
                    governor=self._governor,
                )
                self._worker = EngineWorker(engine, self._context)
            return self._worker

    def _open_disk(self, context: LlamaContext) -> DiskPrefix | None:
        if not self._params.cache:
            return None
        identity = cache_identity(self._file.name, self._header, context, self.wait_loaded().gpu_layers)
        root = default_paths().kv_blocks
        return DiskPrefix(context, KVStore(root, identity, budget_bytes=cache_budget(root)))

    def _load(self) -> None:
        started = time.perf_counter()

        def progress(fraction: float) -> bool:
            if self._on_load is not None:
                self._on_load(fraction)
            return not self._stopping.is_set()

        try:
            check_small_weights(self._header)
            loaded = load_model(self._file.path, self._params, self._plan, progress)
        except BaseException as error:  # handed to whoever waits for the model
            self._loaded.set_exception(error)
            return
        self._load_s = time.perf_counter() - started
        self._loaded.set_result(loaded)


def open_responder(
    model: str | None,
    params: EngineParams | None = None,
    *,
    offline: bool = False,
    progress: Progress | None = None,
    on_load: Callable[[float], None] | None = None,
) -> LocalResponder:
    """Find `model` (the default for None), fetching it if need be, and start to load it.

    Raises `ModelNotFoundError`, `FetchError`, `ModelFileError`, `DoesNotFitError`.
    """
    from localrun.catalog import load_catalogue, resolve

    file = resolve(model or load_catalogue().default, offline=offline, progress=progress)
    return LocalResponder(file, params, on_load=on_load)


def _checked(request: Request) -> CheckedConstraint | None:
    spec = request.params.constraint
    if spec is None:
        return None
    from localrun.constraint import check

    return check(spec)


def draw_seed() -> int:
    """A seed that nobody chose; the result reports it."""
    return int.from_bytes(os.urandom(4), "little") % (2**32 - 1)
