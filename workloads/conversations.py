"""What prompts have in common by design: shared prefixes such as system prompts, and conversations."""

from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field

from workloads.lengths import Float64, Lengths

_SMALLEST = 2.0**-60   # the normal quantile is infinite at 0
LONGEST_S = 1e7
"""Nobody thinks for longer than this; some hundred days."""
_Seconds = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]


class FixedSeconds(BaseModel, frozen=True, extra="forbid"):
    """Always so long."""

    kind: Literal["fixed"] = "fixed"
    seconds: _Seconds


class LogNormalSeconds(BaseModel, frozen=True, extra="forbid"):
    """Log-normal: half of them are below `median`; `sigma` is the standard deviation of the logarithm."""

    kind: Literal["lognormal"] = "lognormal"
    median: Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]
    sigma: Annotated[float, Field(gt=0, le=10)]


class ExponentialSeconds(BaseModel, frozen=True, extra="forbid"):
    """Exponential with this mean."""

    kind: Literal["exponential"] = "exponential"
    mean: Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]


Seconds = Annotated[FixedSeconds | LogNormalSeconds | ExponentialSeconds, Field(discriminator="kind")]


class SharedPrefix(BaseModel, frozen=True, extra="forbid"):
    """A beginning that prompts share: each request belongs to one of `groups` (each as likely, or by
    Zipf's law), and all of a group begin with the same tokens."""

    groups: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1
    tokens: Lengths
    """Length of each group's prefix; it comes before the component's `input`."""
    zipf: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Group number k (from 1) is chosen with a weight of 1 / k ** zipf; 0 is evenly."""


class Conversation(BaseModel, frozen=True, extra="forbid"):
    """Requests come as conversations: each later turn repeats the prompt and the answer before it, adds
    `input` new tokens, and is sent when the answer is there and its reader has thought."""

    turns: Lengths
    """Number of turns; a conversation ends before a turn that would not fit max_model_len."""
    think: Seconds
    """From the end of an answer to the next turn."""


def seconds_at(duration: Seconds, probabilities: Float64) -> Float64:
    """The seconds at each probability in [0, 1), at most LONGEST_S; same shape."""
    if isinstance(duration, FixedSeconds):
        return np.full(probabilities.shape, duration.seconds)
    if isinstance(duration, ExponentialSeconds):
        return np.minimum(-duration.mean * np.log1p(-probabilities), LONGEST_S)
    inside = np.clip(probabilities, _SMALLEST, 1 - 2.0**-53).ravel().tolist()
    deviations = np.fromiter(map(NormalDist().inv_cdf, inside), np.float64, len(inside))
    seconds = duration.median * np.exp(duration.sigma * deviations.reshape(probabilities.shape))
    return np.minimum(seconds, LONGEST_S)
