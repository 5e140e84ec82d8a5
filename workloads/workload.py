"""What is asked of an engine: a mix of request kinds, how it arrives, and what its readers need."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, PrivateAttr, ValidationError, model_validator

from workloads.arrival_processes import ArrivalProcess
from workloads.component import Component, Text, recorded_components
from workloads.conversations import LONGEST_S
from workloads.errors import UsageError
from workloads.length_file import MAX_TOKENS
from workloads.lengths import Fixed, Tokens, Uniform
from workloads.reuse import PromptReuse
from workloads.tenants import Tenant, TenantName
from workloads.traces.source import TraceSource, load_sources, trace_digest
from workloads.traces.trace import Trace

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]
Length = Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]
_OF_TENANT = re.compile(r"\s*([^\s/:<>=]+)\s*/")
_LATER = ("arrivals", "draws", "reuse", "traces", "tenants")


class Workload(BaseModel, frozen=True, extra="forbid"):
    """A mix of requests with its objectives. Refused when a request could exceed `max_model_len`."""

    name: Text
    description: str
    components: tuple[Component, ...] = ()
    """At least one; of `traces` they are made: one for each tenant."""
    burstiness: Annotated[float, Field(gt=0)] = 1.0
    """Shape of the gamma distribution of the gaps between arrivals, as in vLLM: 1 is Poisson,
    less is burstier, infinity is a constant gap."""
    max_model_len: Tokens = None   # type: ignore[assignment]  # of traces; see model_post_init
    """Most tokens of a prompt and its answer; left out beside `traces`, those of their longest request."""
    slo: tuple[Text, ...]
    """Objectives such as `tbt:p99<=100ms`; all must hold."""
    decode_deadline_ms: Length
    """A reader takes one token every so many milliseconds (fluidity-index)."""
    prefill_slack_ms: NotNegative = 300.0
    """Time granted for the first token beyond the lone prefill of the prompt (fluidity-index)."""
    run_seconds: Length
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
    """Traces to replay, merged where there are several; in place of `components`."""
    tenants: dict[TenantName, Tenant] = Field(default_factory=dict)
    """Classes of users with promises of their own, by name."""
    recorded_rate_rps: Positive | None = None
    """Requests per second of the trace that this was fitted to: the rate where none is given."""
    recorded_span_s: Positive | None = None
    """How long that trace is."""

    _trace: list[Trace] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        if not self.traces:
            return
        if self.components:
            raise ValueError("a workload has either components or traces: leave one out")
        folder = context.get("folder", Path()) if isinstance(context, dict) else Path()
        self.__dict__["traces"] = tuple(source.at(folder) for source in self.traces)
        trace = load_sources(self.traces, self.max_model_len)
        self._trace.append(trace)
        of_trace = recorded_components(trace, with_tenants=bool(self.tenants))
        self.__dict__["components"] = of_trace   # frozen for everybody else
        self.__dict__["max_model_len"] = self.max_model_len or max(c.longest() for c in of_trace)

    @property
    def trace(self) -> Trace | None:
        """What is replayed; None for a workload that is drawn."""
        return self._trace[0] if self._trace else None

    @model_validator(mode="after")
    def _check_components(self) -> Self:
        if not self.components:
            raise ValueError("it has no components: say with `components` or `traces` what is sent")
        if self.max_model_len is None:
            raise ValueError("max_model_len is missing: the most tokens of a prompt and its answer")
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

    @model_validator(mode="after")
    def _check_arrivals_and_reuse(self) -> Self:
        if self.arrivals is not None and self.burstiness != 1:
            raise ValueError("burstiness describes arrivals too: give either burstiness or arrivals")
        shared = bool(self.traces) or any(c.prefix or c.conversation for c in self.components)
        if self.reuse is not None and shared:
            raise ValueError("reuse says what all prompts share: leave out either it or the prefixes, "
                             "conversations and traces")
        return self

    @model_validator(mode="after")
    def _check_arrivals_of_traces(self) -> Self:
        if self.trace is not None and self.trace.timed:
            for name in sorted({"arrivals", "burstiness", "draws"} & self.model_fields_set):
                if getattr(self, name) not in (None, 1.0, "independent"):
                    raise ValueError(f"a trace with times has arrivals of its own: leave out {name}")
        return self

    @model_validator(mode="after")
    def _check_tenants(self) -> Self:
        of_components = {c.tenant for c in self.components if c.tenant is not None}
        known = ", ".join(self.tenants) or "there are none"
        for name in sorted(of_components - set(self.tenants)):
            raise ValueError(f"unknown tenant {name!r} of a component; tenants: {known}")
        for name in self.tenants:
            if name not in of_components and self.traces:
                raise ValueError(f"no request of the traces is of tenant {name!r}: leave the tenant out, or "
                                 f"give it a trace")
            if name not in of_components:
                raise ValueError(f"tenant {name!r} has no component: give one `tenant: {name}`, or leave "
                                 f"the tenant out")
        for text in self.slo:
            if (found := _OF_TENANT.match(text)) and found[1] not in self.tenants:
                raise ValueError(f"unknown tenant {found[1]!r} in the objective {text!r}; tenants: {known}")
        return self

    @property
    def objectives(self) -> tuple[str, ...]:
        """All that is promised: `slo`, then each tenant's objectives as `chat/tbt:p99<=100ms`."""
        of_tenants = (f"{name}/{text}" for name, tenant in self.tenants.items() for text in tenant.slo)
        return (*self.slo, *of_tenants)

    @property
    def component_tenants(self) -> tuple[str, ...]:
        """The tenant of each component, "" for none; empty where there are no tenants."""
        return tuple(c.tenant or "" for c in self.components) if self.tenants else ()

    @property
    def shares(self) -> tuple[float, ...]:
        """The fraction of requests that each component makes, in order; adds up to 1."""
        total = math.fsum(c.weight for c in self.components)
        return tuple(c.weight / total for c in self.components)

    @property
    def mean_input_len(self) -> float:
        """Mean prompt length in tokens over the mix; of conversations, that of first turns."""
        return math.fsum(s * c.mean_prompt() for s, c in zip(self.shares, self.components, strict=True))

    @property
    def mean_output_len(self) -> float:
        """Mean answer length in tokens over the mix."""
        return math.fsum(s * c.output.mean() for s, c in zip(self.shares, self.components, strict=True))

    @property
    def longest_prompt(self) -> int:
        """The longest prompt that can be drawn, in tokens."""
        if any(c.conversation for c in self.components):
            return self.max_model_len - 1   # of a late turn; conversations end before one that would not fit
        return max(c.longest_prompt() for c in self.components)

    @property
    def longest_request(self) -> int:
        """Prompt plus answer of the largest request that can be drawn, in tokens."""
        if any(c.conversation for c in self.components):
            return self.max_model_len
        return max(c.longest() for c in self.components)

    def digest(self) -> str:
        """SHA-256 (64 hex digits) of everything but name and description.

        A length file counts by the lengths in it, not by where it lies. What a workload does not use
        leaves its digest as it was before there was such a thing.
        """
        content = self.model_dump(mode="json", exclude={
            "name", "description", "components", "recorded_rate_rps", "recorded_span_s", *_LATER})
        content |= {name: self.model_dump(mode="json", include={name})[name] for name in _LATER
                    if name != "traces" and self._says(name)}
        if self._trace:
            content["trace"] = trace_digest(self._trace[0])
        content["components"] = [
            {"name": c.name, "weight": c.weight, "input": c.input.content(), "output": c.output.content(),
             **c.model_dump(mode="json", include={"prefix", "conversation", "tenant"}, exclude_none=True)}
            for c in self.components
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def saved(self) -> dict[str, Any]:
        """Plain values that make an equal workload again: of traces the files, not their rows."""
        left_out = {name for name in _LATER if not self._says(name)}
        if self._trace:
            left_out.add("components")
        return self.model_dump(mode="json", exclude=left_out, exclude_none=True)

    def _says(self, field: str) -> bool:
        return getattr(self, field) not in (None, "independent", (), {})

    @classmethod
    def of_trace(cls, source: TraceSource, *, max_model_len: int | None = None) -> Self:
        """A workload that replays one trace, without objectives. UsageError where it cannot be read."""
        name = source.path.name
        longest = {} if max_model_len is None else {"max_model_len": max_model_len}
        try:
            return cls.model_validate({
                "name": name, "description": f"the requests of {name}", "traces": (source,), "slo": (),
                "decode_deadline_ms": 50.0, "run_seconds": 60.0, "warmup_seconds": 10.0, **longest})
        except ValidationError as error:
            raise UsageError(f"{name}: {first_problem(error)}") from error

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
