"""Hardware sheets: what one device of a kind can do, with the source of each number."""

from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from engine_adapter.simulator.sheets.files import SheetFiles
from workloads.errors import UsageError
from workloads.workload import first_problem

Share = Annotated[float, Field(gt=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]

WEIGHT_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
"""Kinds of numbers that weights may be held in, and the bytes of one."""


class _Sheet(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Compute(_Sheet):
    """Matrix products in one kind of number."""

    peak_tflops: PositiveFloat
    """Dense, without sparsity, accumulating in 32 bits."""
    gemm_share: Share
    """Of the peak, in large products."""
    expert_share: Share
    """The same in grouped products of a mixture of experts."""
    memory_share: Share | None = None
    """Of the bandwidth, where these kernels read it worse than the sheet's `memory_share` says."""
    tile_tokens: tuple[PositiveInt, ...] = (64,)
    """A product of up to so many tokens costs as much as this many; beyond the last, multiples of it."""
    wave_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """How much of the idle rest of the last wave of tiles is paid: kernels that choose among tile
    shapes pay little of it."""
    ragged_share: Share | None = None
    """Beyond the last of `tile_tokens`, a part-filled tile reads the weights once more, at this share of
    the bandwidth, for the part that is empty: what makes one token over a multiple dear in fp8."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if not self.tile_tokens or list(self.tile_tokens) != sorted(set(self.tile_tokens)):
            raise ValueError("tile_tokens must be rising numbers")
        return self


class Link(_Sheet):
    """Between devices, for tensor and pipeline parallelism."""

    gb_per_s: PositiveFloat
    """In one direction, in 10^9 bytes."""
    gpus: PositiveInt = 8
    """How many devices it joins; larger groups go over `host_gb_per_s`."""
    host_gb_per_s: PositiveFloat = 32.0
    share: Share = 0.7
    latency_us: NotNegative = 5.0
    """Of one collective operation, inside a CUDA graph."""


class Host(_Sheet):
    """What the engine's own process takes; the same on every GPU sheet, to be calibrated."""

    step_us: NotNegative
    request_us: NotNegative
    arrival_us: NotNegative
    arrival_token_us: NotNegative
    delivery_us: NotNegative


class Hardware(_Sheet):
    """One device. UsageError comes from `hardware_sheet`, not from here."""

    name: str
    source: str
    """Whose data sheet or measurement each fact is from."""
    assumed: str
    """Which numbers nobody has measured here."""
    compute: dict[str, Compute]
    """By kind of number; what is missing computes in 16 bits after it was read."""
    memory_gb_per_s: PositiveFloat
    memory_share: Share
    cache_share: Share
    """Of the bandwidth, where decodes read the KV cache."""
    memory_gib: PositiveFloat
    """As the driver reports it, which is less than the data sheet's."""
    multiprocessors: PositiveInt
    attention_share: Share
    """Of the 16-bit peak, in attention over long chunks."""
    query_tile: PositiveInt = 128
    attention_sequence_us: NotNegative = 1.0
    """Of each prefill chunk in one layer's attention, beside its work."""
    kernel_us: NotNegative
    """Start and drain of a kernel inside a CUDA graph."""
    launch_us: NotNegative
    """Of a kernel outside of one, on the host; it matters where the device is faster."""
    step_us: NotNegative
    """On the device, once a step: copies, sampling."""
    graphs: bool = True
    """Whether the engine captures CUDA graphs here."""
    link: Link
    host: Host

    @model_validator(mode="after")
    def _known(self) -> Self:
        if "bf16" not in self.compute and "fp32" not in self.compute:
            raise ValueError("compute needs bf16 or fp32")
        if unknown := set(self.compute) - set(WEIGHT_BYTES):
            raise ValueError(f"compute has unknown kinds {', '.join(sorted(unknown))}; "
                             f"known: {', '.join(WEIGHT_BYTES)}")
        return self

    def computing(self, dtype: str) -> Compute:
        """How products with weights of this kind are computed here. UsageError for an unknown kind."""
        if dtype not in WEIGHT_BYTES:
            raise UsageError(f"unknown number format {dtype!r}; known: {', '.join(WEIGHT_BYTES)}")
        for kind in (dtype, "bf16", "fp32"):
            if kind in self.compute:
                return self.compute[kind]
        raise AssertionError("a sheet has bf16 or fp32")

    @property
    def bytes_per_ns(self) -> float:
        """What memory sustains."""
        return self.memory_gb_per_s * self.memory_share

    def product_bytes_per_ns(self, dtype: str) -> float:
        """What matrix products with weights of this kind get of it."""
        return self.memory_gb_per_s * (self.computing(dtype).memory_share or self.memory_share)

    @property
    def cache_bytes_per_ns(self) -> float:
        """What reading the KV cache sustains in decodes."""
        return self.memory_gb_per_s * self.cache_share

    def flops_per_ns(self, dtype: str) -> float:
        """What large matrix products sustain."""
        compute = self.computing(dtype)
        return compute.peak_tflops * 1e3 * compute.gemm_share

    def ridge(self, dtype: str = "bf16") -> float:
        """Operations per byte at which computing takes as long as reading, from the peaks."""
        return self.computing(dtype).peak_tflops * 1e3 / self.memory_gb_per_s


_FILES = SheetFiles("hardware")


def hardware_names() -> tuple[str, ...]:
    """Names of the sheets that come with Stallfree."""
    return _FILES.names()


def hardware_sheet(name_or_path: str) -> Hardware:
    """The sheet of that name, or of that YAML file. UsageError, one line, for anything else."""
    content, source = _FILES.read(name_or_path)
    try:
        return Hardware.model_validate({"name": source} | content)
    except ValidationError as error:
        raise UsageError(f"hardware sheet {source}: {first_problem(error)}") from error


def adjusted(hardware: Hardware, *, fixed_ns: float | None = None, launch_us: float | None = None,
             mfu: float | None = None, bandwidth: float | None = None,
             cache_bandwidth: float | None = None) -> Hardware:
    """The sheet with constants replaced by what somebody observed.

    `fixed_ns` is all that a step takes whatever it carries, in place of `step_us`, `kernel_us` and
    `launch_us`. `launch_us` is what the host takes to launch a kernel outside of graphs: less than it
    needs for all of them no step can take. `mfu` is the share of the peak that large 16-bit products
    reach; every other share of a peak keeps its proportion to it, up to 1. `bandwidth` is what memory
    sustains, in bytes per second, and `cache_bandwidth` what decodes get when they read the KV cache.
    """
    values = {"fixed_ns": fixed_ns, "launch_us": launch_us, "mfu": mfu, "bandwidth": bandwidth,
              "cache_bandwidth": cache_bandwidth}
    replaced = ", ".join(f"{name} {value:.4g}" for name, value in values.items() if value is not None)
    changes: dict[str, object] = {"source": f"{hardware.source} Replaced: {replaced}."} if replaced else {}
    compute = hardware.compute
    if fixed_ns is not None:
        changes |= {"step_us": fixed_ns / 1e3, "kernel_us": 0.0, "launch_us": 0.0}
    if launch_us is not None:
        changes["launch_us"] = launch_us
    if mfu is not None:
        factor = mfu / hardware.computing("bf16").gemm_share
        changes["attention_share"] = min(hardware.attention_share * factor, 1.0)
        compute = {kind: each.model_copy(update={"gemm_share": min(each.gemm_share * factor, 1.0),
                                                 "expert_share": min(each.expert_share * factor, 1.0)})
                   for kind, each in compute.items()}
    if bandwidth is not None:
        changes |= {"memory_gb_per_s": bandwidth / 1e9, "memory_share": 1.0,
                    "cache_share": min(hardware.cache_share / hardware.memory_share, 1.0)}
        compute = {kind: each.model_copy(update={"memory_share": each.memory_share / hardware.memory_share
                                                 if each.memory_share else None})
                   for kind, each in compute.items()}
    if cache_bandwidth is not None:
        speed = bandwidth / 1e9 if bandwidth is not None else hardware.memory_gb_per_s
        changes["cache_share"] = min(cache_bandwidth / 1e9 / speed, 1.0)
    changes["compute"] = compute
    return Hardware.model_validate(hardware.model_copy(update=changes).model_dump())
