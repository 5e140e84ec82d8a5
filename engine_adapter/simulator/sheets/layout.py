"""How a model is laid out on devices."""

from dataclasses import dataclass

from engine_adapter.simulator.sheets.hardware import WEIGHT_BYTES
from engine_adapter.simulator.sheets.models import Model
from workloads.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Number formats and parallelism. UsageError for what no engine could start with."""

    dtype: str
    """Of weights and products; a key of WEIGHT_BYTES."""
    kv_dtype: str | None = None
    """Of the cache: None is 16 bits, or 32 where the weights have 32; else fp8, bf16, fp16 or fp32."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1
    """Replicas of everything else that divide the experts among them (vLLM's data parallelism with
    --enable-expert-parallel); all are taken to carry as many tokens as the one that is looked at."""

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "pipeline_parallel", "expert_parallel"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.dtype not in WEIGHT_BYTES:
            raise UsageError(f"unknown number format {self.dtype!r}; known: {', '.join(WEIGHT_BYTES)}")
        if self.kv_dtype not in (None, "fp8", "bf16", "fp16", "fp32"):
            raise UsageError(f"unknown number format of the KV cache {self.kv_dtype!r}; "
                             f"known: fp8, bf16, fp16, fp32")

    def check(self, model: Model) -> None:
        """UsageError where the model cannot be divided so."""
        if model.heads % self.tensor_parallel:
            raise UsageError(f"{model.name} has {model.heads} attention heads, which "
                             f"tensor_parallel={self.tensor_parallel} does not divide")
        if self.pipeline_parallel > model.layers:
            raise UsageError(f"{model.name} has {model.layers} layers, too few for "
                             f"pipeline_parallel={self.pipeline_parallel}")
        experts = model.experts.count if model.experts else 1
        if self.expert_parallel > 1 and experts % self.expert_parallel:
            raise UsageError(f"expert_parallel={self.expert_parallel} does not divide the {experts} experts "
                             f"of {model.name}")

    @property
    def weight_bytes(self) -> float:
        """Of one number of the weights."""
        return WEIGHT_BYTES[self.dtype]

    @property
    def kv_bytes(self) -> float:
        """Of one number of the cache."""
        if self.kv_dtype is None:
            return max(self.weight_bytes, 2.0)
        return WEIGHT_BYTES[self.kv_dtype]

    def kv_token_bytes(self, model: Model) -> float:
        """Of one token's keys and values on one device, all layers. A latent is not divided by tensor
        parallelism, and no device holds less than one head."""
        whole = model.kv_bytes_per_token(self.kv_bytes)
        return whole if model.latent else whole * max(1 / self.tensor_parallel, 1 / model.kv_heads)

    def device_weight_bytes(self, model: Model) -> float:
        """Of the weights on one device."""
        whole = model.weight_bytes(self.weight_bytes)
        experts = sum(linear.parameters for linear in model.linears() if linear.experts > 1)
        whole -= experts * self.weight_bytes * (1 - 1 / self.expert_parallel)
        return whole / (self.tensor_parallel * self.pipeline_parallel)
