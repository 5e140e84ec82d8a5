"""What is asked of an engine: a mix of request kinds, how it arrives, and what its readers need."""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, ValidationError, model_validator

from workloads.arrival_processes import ArrivalProcess
from workloads.conversations import Conversation, SharedPrefix
from workloads.errors import UsageError
from workloads.length_file import MAX_TOKENS
from workloads.lengths import Fixed, Lengths, Tokens, Uniform
from workloads.reuse import PromptReuse
from workloads.tenants import Tenant
from workloads.traces.source import TraceSource

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_LATER = ("arrivals", "draws", "reuse", "traces", "tenants")


class Component(BaseModel, frozen=True, extra="forbid"):
    """One kind of request within a workload."""

    name: Text
    weight: Annotated[float, Field(gt=0, le=1e9)]
    """Relative to the other components' weights; they need not add up to anything."""
    input: Lengths
    """Prompt lengths, in tokens as the engine sees them (no template and no BOS is added)."""
    output: Lengths
    """Answer lengths in tokens; the engine generates exactly as many."""
    prefix: SharedPrefix | None = None
    """A beginning that its prompts share; it comes before `input`."""
    conversation: Conversation | None = None
    """Whether its requests are turns of conversations; `input` is then what each turn adds."""
    tenant: Text | None = None
    """Whose requests these are; one of the workload's `tenants`."""

    def longest(self) -> int:
        """Prompt plus answer of the largest request it can ask for, in tokens."""
        return self.input.bounds()[1] + self.output.bounds()[1]


class Workload(BaseModel, frozen=True, extra="forbid"):
    """A mix of requests with its objectives. Refused when a request could exceed `max_model_len`."""

    name: Text
    description: str
    components: Annotated[tuple[Component, ...], Field(min_length=1)]
    burstiness: Annotated[float, Field(gt=0)] = 1.0
    """Shape of the gamma distribution of the gaps between arrivals, as in vLLM: 1 is Poisson,
    less is burstier, infinity is a constant gap."""
    max_model_len: Tokens
    slo: tuple[Text, ...]
    """Objectives such as `tbt:p99<=100ms`; all must hold."""
    decode_deadline_ms: Positive
    """A reader takes one token every so many milliseconds (fluidity-index)."""
    prefill_slack_ms: NotNegative = 300.0
    """Time granted for the first token beyond the lone prefill of the prompt (fluidity-index)."""
    run_seconds: Positive
    """Length of the measured part of one run."""
    warmup_seconds: NotNegative
    """Length of the part before it, whose requests are left out of every statistic."""
    arrivals: ArrivalProcess | None = None
    """How requests come; left out, as `burstiness` says."""
    draws: Literal["independent", "stratified"] = "independent"
    """Stratified lengths and arrivals follow their distributions in every thousand requests, not only in
    the long run."""
    reuse: PromptReuse | None = None
    """What prompts share with earlier ones, where that was fitted to a trace."""
    traces: tuple[TraceSource, ...] = ()
    """Traces to replay, merged where there are several; instead of `components`."""
    tenants: dict[Text, Tenant] = Field(default_factory=dict)
    """Classes of users with promises of their own, by name."""

    @model_validator(mode="after")
    def _check_components(self) -> Self:
        names = [c.name for c in self.components]
        if len(set(names)) < len(names):
            raise ValueError(f"component names must differ; got {', '.join(names)}")
        for component in self.components:
            if component.longest() > self.max_model_len:
                raise ValueError(
                    f"component {component.name!r} may ask for {component.longest()} tokens, prompt and "
                    f"answer, more than max_model_len {self.max_model_len}: lower its lengths or raise that"
                )
        return self

    @property
    def shares(self) -> tuple[float, ...]:
        """The fraction of requests that each component makes, in order; adds up to 1."""
        total = math.fsum(c.weight for c in self.components)
        return tuple(c.weight / total for c in self.components)

    @property
    def mean_input_len(self) -> float:
        """Mean prompt length in tokens over the mix."""
        return math.fsum(s * c.input.mean() for s, c in zip(self.shares, self.components, strict=True))

    @property
    def mean_output_len(self) -> float:
        """Mean answer length in tokens over the mix."""
        return math.fsum(s * c.output.mean() for s, c in zip(self.shares, self.components, strict=True))

    @property
    def longest_prompt(self) -> int:
        """The longest prompt that can be drawn, in tokens."""
        return max(c.input.bounds()[1] for c in self.components)

    @property
    def longest_request(self) -> int:
        """Prompt plus answer of the largest request that can be drawn, in tokens."""
        return max(c.longest() for c in self.components)

    def digest(self) -> str:
        """SHA-256 (64 hex digits) of everything but name and description.

        A length file counts by the lengths in it, not by where it lies. What a workload does not use
        leaves its digest as it was before there was such a thing.
        """
        content = self.model_dump(mode="json", exclude={"name", "description", "components", *_LATER})
        content |= {name: self.model_dump(mode="json", include={name})[name] for name in _LATER
                    if getattr(self, name) not in (None, "independent", (), {})}
        content["components"] = [
            {"name": c.name, "weight": c.weight, "input": c.input.content(), "output": c.output.content(),
             **c.model_dump(mode="json", include={"prefix", "conversation", "tenant"}, exclude_none=True)}
            for c in self.components
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_lengths(
        cls,
        input_len: int,
        output_len: int,
        range_ratio: float = 0.0,
        *,
        burstiness: float = 1.0,
        slo: Sequence[str] = (),
        decode_deadline_ms: float = 50.0,
        run_seconds: float = 60.0,
        warmup_seconds: float = 10.0,
    ) -> Self:
        """vLLM's random dataset: lengths uniform in floor(n(1 - ratio)) .. ceil(n(1 + ratio)).

        Nothing is subtracted for special tokens, as the prompt is sent as token ids. The decode
        deadline defaults to Etalon's 50 ms. Lengths below 1, a ratio outside [0, 1) and
        whatever a workload refuses raise UsageError.
        """
        if not (1 <= input_len <= MAX_TOKENS // 4 and 1 <= output_len <= MAX_TOKENS // 4):
            raise UsageError(f"--input-len and --output-len must be at least 1 token (and at most "
                             f"{MAX_TOKENS // 4}); got {input_len} and {output_len}")
        if not 0 <= range_ratio < 1:
            raise UsageError(f"--random-range-ratio must be at least 0 and below 1; got {range_ratio:g}")
        random = Component(name="random", weight=1, input=_around(input_len, range_ratio),
                           output=_around(output_len, range_ratio))
        try:
            return cls(
                name="random",
                description=f"prompts of {random.input.describe()}; answers of {random.output.describe()}",
                components=(random,),
                burstiness=burstiness,
                max_model_len=random.longest(),
                slo=tuple(slo),
                decode_deadline_ms=decode_deadline_ms,
                run_seconds=run_seconds,
                warmup_seconds=warmup_seconds,
            )
        except ValidationError as error:
            raise UsageError(first_problem(error)) from error


def first_problem(error: ValidationError) -> str:
    """The first thing that a workload was refused for, on one line, with the place of it."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {message}{more}" if where else f"{message}{more}"


def _around(tokens: int, ratio: float) -> Fixed | Uniform:
    if ratio == 0:
        return Fixed(tokens=tokens)
    return Uniform(low=max(1, math.floor(tokens * (1 - ratio))), high=math.ceil(tokens * (1 + ratio)))
