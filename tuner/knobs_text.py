"""Scheduler settings written as text: `token_budget=512,max_seqs=64,policy=priority`."""

from dataclasses import dataclass
from typing import Any

from engine_adapter.knobs import Knobs
from engine_adapter.simulator.settings import RULES
from tuner.knobs_asked import KnobsAsked
from workloads.errors import UsageError

QUEUES = ("fcfs", "priority")
"""Orders of the queue, vLLM's --scheduling-policy; every other policy is a rule."""
_FLAGS = {
    "max_num_batched_tokens": "token_budget", "max_num_seqs": "max_seqs",
    "long_prefill_token_threshold_adaptive": "adaptive_long_prefill", "scheduling_policy": "policy",
}
"""vLLM's names, which are understood too."""
_EXAMPLE = "--knobs token_budget=512,max_seqs=64"
_WORDS = {"true": True, "yes": True, "on": True, "1": True,
          "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class SettingAsked:
    """One setting of a simulated scheduler: the knobs that were named, and the rule; None for the default."""

    knobs: KnobsAsked
    rule: str | None = None

    def over(self, base: "SettingAsked") -> "SettingAsked":
        """`base` with this on top; UsageError where both name the same thing."""
        own, below = self.knobs.given(), base.knobs.given()
        if twice := [*(name for name in own if name in below),
                     *(["policy"] if self.rule is not None and base.rule is not None else [])]:
            raise UsageError(f"--knobs names {twice[0]}, and a flag of its own does too: keep one of them")
        return SettingAsked(KnobsAsked(**(below | own)), base.rule if self.rule is None else self.rule)

    def on(self, default: Knobs) -> Knobs:
        """The knobs in full. As in vLLM a budget alone lowers a default of more sequences than it holds;
        UsageError for knobs that do not go together."""
        given = self.knobs.given()
        budget = given.get("token_budget", default.token_budget)
        if "max_seqs" not in given and isinstance(budget, int) and 1 <= budget < default.max_seqs:
            given["max_seqs"] = budget
        return KnobsAsked(**given).on(default)


def parse_setting(text: str) -> SettingAsked:
    """A setting from `NAME=VALUE` pairs with commas between; UsageError for unknown names and values."""
    values: dict[str, Any] = {}
    rule = None
    for pair in filter(None, (part.strip() for part in text.split(","))):
        written, equals, value = (part.strip() for part in pair.partition("="))
        name = written.replace("-", "_")
        name = _FLAGS.get(name, name)
        if not equals or not value:
            raise UsageError(f"--knobs {pair!r} is not NAME=VALUE, as in {_EXAMPLE}")
        if name not in KnobsAsked.__dataclass_fields__:
            known = ", ".join(KnobsAsked.__dataclass_fields__)
            raise UsageError(f"--knobs has no {written!r}; known: {known}")
        if name in values or (name == "policy" and rule is not None):
            raise UsageError(f"--knobs names {name} twice: keep one")
        if name == "policy" and value not in QUEUES:
            rule = parse_rule(value)
        else:
            values[name] = value if name == "policy" else _value(name, value)
    if not values and rule is None:
        raise UsageError(f"--knobs is empty: write NAME=VALUE, as in {_EXAMPLE}")
    return SettingAsked(KnobsAsked(**values), rule)


def parse_policy(name: str | None, queue: str | None = None) -> SettingAsked:
    """What --policy and --scheduling-policy say together: a rule, the order of the queue, or nothing."""
    if name in QUEUES:
        if queue not in (None, name):
            raise UsageError(f"--policy {name} contradicts --scheduling-policy {queue}: keep one of them")
        name, queue = None, name
    if queue not in (None, *QUEUES):
        raise UsageError(f"unknown --scheduling-policy {queue!r}; known: {', '.join(QUEUES)}")
    return SettingAsked(KnobsAsked(policy=queue), None if name is None else parse_rule(name))


def parse_rule(name: str) -> str:
    """The name of a rule; UsageError for one that nobody knows."""
    if name not in RULES:
        raise UsageError(f"unknown policy {name!r}; rules: {', '.join(RULES)}; orders of the queue: "
                         f"{', '.join(QUEUES)}")
    return name


def _value(name: str, value: str) -> int | bool:
    if name == "adaptive_long_prefill":
        if value.lower() not in _WORDS:
            raise UsageError(f"--knobs {name} is true or false; got {value!r}")
        return _WORDS[value.lower()]
    if name == "long_prefill_token_threshold" and value.lower() == "off":
        return 0
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"--knobs {name} is a whole number; got {value!r}") from None
