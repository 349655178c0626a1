"""Chooses GPU layers and context for a model on this machine, before a weight is read.

Knows budgets and placements; knows no engine. Invariant: what is chosen fits by the planner's own count, and whatever
the user would have got on a larger machine, and does not get, is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localrun.errors import DoesNotFitError
from localrun.gguf import GGUFHeader
from localrun.hardware.devices import Device, Memory, system_memory
from localrun.hardware.footprint import ContextSize
from localrun.hardware.placement import Placement, all_layers, fits, place
from localrun.hardware.shape import ModelShape, model_shape
from localrun.params import EngineParams, KVType

SMALLEST_CONTEXT = 512
_UNKNOWN_CONTEXT = 4096
_WANTED_CONTEXT = 8192
"""Layers leave the GPU for a context of this length, not for a longer one: a longer one is rarely used in full."""
_STEP = 256
_IDLE_SLOTS = {"full": 6, "window": 1, "state": 2}
"""Sequences kept for their prefix. Each costs memory of its own where layers have a window or a state."""
_SAVING_SLOTS = 1
_PAGED_SHARE = 4
"""Of a machine whose RAM is smaller than the mapped weights, a quarter is left to the context."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know. `code` is stable, `message` is prose."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How to load."""

    n_ctx: int
    """Tokens of one sequence."""
    n_parallel: int
    kv_type: KVType
    flash_attention: bool | None
    """None: the engine's own choice."""
    placement: Placement
    pages_from_disk: bool = False
    """The weights are larger than RAM: they are mapped, and read again from disk for every token."""
    notices: tuple[Notice, ...] = ()

    @property
    def gpu_layers(self) -> int:
        return self.placement.gpu_layers


def n_sequences(shape: ModelShape, n_parallel: int) -> int:
    """Sequences of a context: those that run, those kept for their prefix, one to save blocks with."""
    kind = "state" if shape.has_state else "window" if shape.window else "full"
    return min(256, n_parallel + _IDLE_SLOTS[kind] + _SAVING_SLOTS)


def context_size(shape: ModelShape, params: EngineParams, n_ctx: int, *, flash: bool) -> ContextSize:
    """The context that localrun makes for `n_ctx` tokens a sequence."""
    return ContextSize(
        n_cells=n_ctx * params.n_parallel,
        n_seq_max=n_sequences(shape, params.n_parallel),
        n_batch=params.n_batch,
        n_ubatch=params.n_ubatch,
        n_outputs=max(32, 16 * params.n_parallel),
        kv_type=params.kv_type,
        flash_attention=flash,
    )


def plan_load(
    header: GGUFHeader,
    params: EngineParams,
    devices: Sequence[Device] = (),
    *,
    memory: Memory | None = None,
    correction: float = 1.0,
) -> LoadPlan:
    """The layers, context and attention to load `header`'s model with.

    `correction` is what earlier loads on this machine took, over what was planned. Raises `DoesNotFitError` for a
    context or number of layers that was asked for and does not fit, and where not even the smallest context fits.
    """
    planner = Planner(model_shape(header), params, devices, memory or system_memory(), correction)
    return planner.plan()


class Planner:
    """One model on one machine."""

    def __init__(
        self,
        shape: ModelShape,
        params: EngineParams,
        devices: Sequence[Device] = (),
        memory: Memory | None = None,
        correction: float = 1.0,
    ) -> None:
        self.shape = shape
        self.params = params
        self.devices = tuple(devices)
        self.memory = memory or system_memory()
        self.correction = correction
        self.trained = shape.n_ctx_train or _UNKNOWN_CONTEXT
        self._paged = False
        """The weights in RAM do not count: they are mapped, and may be read again from disk."""
        self._asked_in_ram = params.spread.experts_in_ram(len(shape.layers))
        self._experts_in_ram = self._asked_in_ram or 0

    def plan(self) -> LoadPlan:
        """The best that fits. Raises `DoesNotFitError`."""
        wanted = self.params.n_ctx
        floor = wanted or min(self.trained, _WANTED_CONTEXT)
        layers = self._layers(floor)
        if layers is None and wanted is None:
            floor = min(self.trained, SMALLEST_CONTEXT)
            layers = self._layers(floor)
        if layers is None:
            return self._on_disk(wanted)
        # On a CPU, flash attention slows decoding: a context longer than usual is no reason to turn it on unasked.
        flash = self._flash(floor, layers)
        n_ctx = wanted or max(floor, self.longest(layers, flash=flash))
        return self._result(n_ctx, layers)

    def fits(self, n_ctx: int, gpu_layers: int) -> bool:
        """Whether a context of `n_ctx` fits with so many layers offloaded."""
        return any(self._fits(n_ctx, gpu_layers, flash) for flash in self._flash_choices(gpu_layers))

    def most_layers(self, n_ctx: int) -> int | None:
        """The most layers that leave room for a context of `n_ctx`; None if it does not fit at all."""
        return self._layers(n_ctx)

    def longest(self, gpu_layers: int, *, flash: bool | None = None) -> int:
        """The longest context that fits with so many layers offloaded, up to the trained length; 0 if none does.

        With `flash`, only with flash attention on or off.
        """

        def fitting(n_ctx: int) -> bool:
            return self.fits(n_ctx, gpu_layers) if flash is None else self._fits(n_ctx, gpu_layers, flash)

        limit = self.trained
        if not fitting(min(SMALLEST_CONTEXT, limit)):
            return 0
        if fitting(limit):
            return limit
        low, high = SMALLEST_CONTEXT // _STEP, -(-limit // _STEP)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fitting(middle * _STEP) else (low, middle)
        return min(limit, low * _STEP)

    def placement(self, n_ctx: int, gpu_layers: int, *, flash: bool | None = None) -> Placement:
        """Where everything lies then."""
        if flash is None:
            flash = self._flash(n_ctx, gpu_layers)
        context = context_size(self.shape, self.params, n_ctx, flash=flash)
        experts, spread = self._experts_in_ram, self.params.spread
        return place(self.shape, context, self.devices, gpu_layers, experts_in_ram=experts, spread=spread)

    # steps --------------------------------------------------------------------------------------------------------

    def _layers(self, n_ctx: int) -> int | None:
        """The most layers that leave room for `n_ctx`; None if it does not fit at all."""
        if self.params.gpu_layers is not None:
            asked = min(self.params.gpu_layers, all_layers(self.shape)) if self.devices else 0
            return asked if self.fits(n_ctx, asked) else None
        whole = all_layers(self.shape)
        if not self.devices:
            return 0 if self.fits(n_ctx, 0) else None
        self._experts_in_ram = self._asked_in_ram or 0
        if (
            self._asked_in_ram is None
            and not self.fits(n_ctx, whole)
            and any(layer.expert_bytes for layer in self.shape.layers)
        ):
            # A token uses few experts: they are the part that may lie in slower memory, as few as need be.
            self._experts_in_ram = self._fewest_experts_in_ram(n_ctx)
            if self._experts_in_ram:
                return whole
        # More layers take more of the cards, and less of RAM: the most that the cards hold is the best there is.
        low, high = 0, whole
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._cards_hold(n_ctx, middle) else (low, middle - 1)
        return low if self.fits(n_ctx, low) else None

    def _fewest_experts_in_ram(self, n_ctx: int) -> int:
        """The fewest layers whose experts must stay in RAM for everything else to fit; 0 if not even all help."""
        whole, low, high = all_layers(self.shape), 1, len(self.shape.layers)
        self._experts_in_ram = high
        if not self.fits(n_ctx, whole):
            return 0
        while low < high:
            self._experts_in_ram = (low + high) // 2
            low, high = (low, self._experts_in_ram) if self.fits(n_ctx, whole) else (self._experts_in_ram + 1, high)
        return low

    def _cards_hold(self, n_ctx: int, gpu_layers: int) -> bool:
        needs = self.placement(n_ctx, gpu_layers, flash=self._flash_choices(gpu_layers)[-1]).gpus
        pairs = zip(self.devices, needs, strict=True)
        return all(need.total * self.correction <= device.budget for device, need in pairs)

    def _flash_choices(self, gpu_layers: int) -> tuple[bool, ...]:
        """Attention to try, in order. On a CPU it is off unless a long context needs it; on a GPU it is on."""
        if self.params.flash_attention is not None:
            return (self.params.flash_attention,)
        if self.params.kv_type != "f16":
            return (True,)
        return (True,) if gpu_layers else (False, True)

    def _flash(self, n_ctx: int, gpu_layers: int) -> bool:
        choices = self._flash_choices(gpu_layers)
        return next((flash for flash in choices if self._fits(n_ctx, gpu_layers, flash)), choices[-1])

    def _fits(self, n_ctx: int, gpu_layers: int, flash: bool) -> bool:
        placement = self.placement(n_ctx, gpu_layers, flash=flash)
        if self._paged:
            ram = replace(placement.ram, weights=0)
            placement = replace(placement, ram=ram)
            return fits(placement, self.devices, self.memory.budget // _PAGED_SHARE, self.correction)
        return fits(placement, self.devices, self.memory.budget, self.correction)

    def _on_disk(self, wanted: int | None) -> LoadPlan:
        """Nothing fits. Mapped weights may be larger than RAM, at a price; the context may not."""
        weights = self.placement(wanted or SMALLEST_CONTEXT, 0).ram.weights
        if self._paged or not self.params.use_mmap or self.params.gpu_layers or weights <= self.memory.budget:
            raise self._refusal(wanted)
        paged = Planner(self.shape, self.params, self.devices, self.memory, self.correction)
        paged._paged = True
        try:
            return paged.plan()
        except DoesNotFitError as error:
            raise self._refusal(wanted) from error

    def _refusal(self, wanted: int | None) -> DoesNotFitError:
        layers = min(self.params.gpu_layers or 0, all_layers(self.shape)) if self.devices else 0
        n_ctx = wanted or SMALLEST_CONTEXT
        need = self.placement(n_ctx, layers).total * self.correction / 1e9
        room = (self.memory.budget + sum(d.budget for d in self.devices if layers and d.kind == "gpu")) / 1e9
        best = self.longest(layers)
        if best and wanted:
            smaller = Planner(
                self.shape, replace(self.params, kv_type="q8_0"), self.devices, self.memory, self.correction
            )
            helps = self.params.kv_type == "f16" and smaller.fits(wanted, layers)
            quantized = "; with --kv-type q8_0 it fits" if helps else ""
            return DoesNotFitError(
                f"a context of {wanted:,} tokens needs {need:.1f} GB with the model, {room:.1f} GB are free",
                hint=f"--ctx {best} fits{quantized}",
            )
        if layers:
            auto = Planner(
                self.shape, replace(self.params, gpu_layers=None), self.devices, self.memory, self.correction
            )
            return DoesNotFitError(
                f"{layers} layers and a context of {n_ctx:,} tokens do not fit: {need:.1f} GB are needed",
                hint=f"--gpu-layers {auto._layers(n_ctx) or 0} fits",
            )
        return DoesNotFitError(
            f"the model needs {need:.1f} GB with a context of {n_ctx:,} tokens, {room:.1f} GB are free",
            hint="take a smaller quantization or a smaller model; `localrun plan` shows what fits",
        )

    def _result(self, n_ctx: int, layers: int) -> LoadPlan:
        flash = self._flash(n_ctx, layers)
        chosen: bool | None = self.params.flash_attention
        if chosen is None and not layers:
            chosen = flash
        return LoadPlan(
            n_ctx=n_ctx,
            n_parallel=self.params.n_parallel,
            kv_type=self.params.kv_type,
            flash_attention=chosen,
            placement=self.placement(n_ctx, layers, flash=flash),
            pages_from_disk=self._paged,
            notices=tuple(self._notices(n_ctx, layers)),
        )

    def _longer(self, n_ctx: int, layers: int) -> str:
        """A longer context than the automatic one, with its price; "" if there is none."""
        if (longest := self.longest(layers)) > n_ctx:
            return f"--ctx {longest} fits with slower attention"
        if not layers:
            return ""
        chosen = self._experts_in_ram
        self._experts_in_ram = len(self.shape.layers) if chosen and self._asked_in_ram is None else chosen
        longest = max(self.longest(layers), self.longest(0))
        self._experts_in_ram = chosen
        return f"--ctx {longest} fits with less of the model on the GPU" if longest > n_ctx else ""

    def _notices(self, n_ctx: int, layers: int) -> list[Notice]:
        notices = []
        if self._paged:
            size, room = self.shape.weight_bytes / 1e9, self.memory.budget / 1e9
            message = f"the weights take {size:.1f} GB and {room:.1f} GB are free: they are read from disk all the time"
            notices.append(Notice("weights_exceed_memory", message))
        if self.params.n_ctx is None and n_ctx < self.trained:
            message = f"the context is {n_ctx:,} tokens instead of the trained {self.trained:,}: "
            message += self._longer(n_ctx, layers) or "more does not fit in memory"
            notices.append(Notice("context_reduced", message))
        if self.params.n_ctx is not None and n_ctx > self.trained:
            message = f"the context of {n_ctx:,} tokens is longer than the {self.trained:,} the model was trained with"
            notices.append(Notice("context_beyond_training", message))
        if self._asked_in_ram and not any(layer.expert_bytes for layer in self.shape.layers):
            message = "--cpu-moe keeps experts in RAM, and this model has none: it changes nothing"
            notices.append(Notice("no_experts", message))
        elif self._experts_in_ram and layers and self._asked_in_ram is None:
            count = f"{self._experts_in_ram} of {len(self.shape.layers)}"
            message = f"the experts of {count} layers lie in RAM, and everything else on the GPU"
            notices.append(Notice("experts_in_ram", message))
        if self.devices and self.params.gpu_layers is None and layers < all_layers(self.shape):
            message = f"{layers} of {all_layers(self.shape)} layers fit on the GPU; the others run on the CPU"
            notices.append(Notice("fewer_gpu_layers", message))
        return notices
