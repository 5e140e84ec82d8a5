"""Classes of users who share an engine and are promised different things."""

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
TenantName = Annotated[str, StringConstraints(pattern=r"^[^\s/:<>=]+$", max_length=60)]
"""As it stands in objectives, `chat/tbt:p99<=100ms`."""


class Tenant(BaseModel, frozen=True, extra="forbid"):
    """What one class of users is promised; what is left out is the workload's."""

    slo: tuple[Text, ...] = ()
    """Objectives on this tenant's requests alone, such as `ttft:p99<=2s`."""
    goodput: tuple[Text, ...] = ()
    """What each of its good requests keeps, as `ttft:200` (milliseconds)."""
    decode_deadline_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    prefill_slack_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
