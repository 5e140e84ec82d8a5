"""One kind of request within a workload: how long its prompts and answers are, and what they share."""

from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field, StringConstraints

from workloads.conversations import Conversation, SharedPrefix
from workloads.lengths import Lengths
from workloads.traces.recorded import Recorded
from workloads.traces.trace import Trace, component_names

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


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
        """Prompt plus answer of the largest request it can ask for, in tokens; of a conversation, of the
        largest first turn."""
        return self.longest_prompt() + self.output.bounds()[1]

    def mean_prompt(self) -> float:
        """The mean prompt, its prefix included, in tokens; of conversations, of a first turn."""
        return (self.prefix.tokens.mean() if self.prefix else 0.0) + self.input.mean()

    def longest_prompt(self) -> int:
        """The longest prompt, its prefix included; of a conversation, of a first turn."""
        return (self.prefix.tokens.bounds()[1] if self.prefix else 0) + self.input.bounds()[1]


class RecordedComponent(Component, frozen=True):
    """The requests of one tenant of a trace."""

    longest_request: int

    def longest(self) -> int:
        return self.longest_request


def recorded_components(trace: Trace, *, with_tenants: bool) -> tuple[RecordedComponent, ...]:
    """One for each tenant of `trace`, each of which has requests, in their order."""
    total = trace.input_len.astype(np.int64) + trace.output_len
    components = []
    for number, name in enumerate(component_names(trace)):
        rows = trace.tenant == number
        components.append(RecordedComponent.model_construct(
            name=name, weight=float(rows.sum()), input=Recorded.of(trace.input_len[rows]),
            output=Recorded.of(trace.output_len[rows]), prefix=None, conversation=None,
            tenant=(trace.tenant_names[number] or None) if with_tenants else None,
            longest_request=int(total[rows].max())))
    return tuple(components)
