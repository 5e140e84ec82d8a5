"""How requests come: the processes that a workload may name, told apart by `kind`."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Poisson(BaseModel, frozen=True, extra="forbid"):
    """Independent arrivals: gaps are exponential."""

    kind: Literal["poisson"] = "poisson"


ArrivalProcess = Annotated[Poisson, Field()]
"""A field of this type takes any of the processes."""
