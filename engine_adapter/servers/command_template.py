"""The command line of `--server-command`, with fields for what changes from one start to the next."""

import re
import shlex
from dataclasses import dataclass

from engine_adapter.knobs import Knobs
from workloads.errors import UsageError

KNOB_FIELDS = {
    "token_budget": "token_budget", "max_seqs": "max_seqs",
    "long_prefill_token_threshold": "long_prefill_token_threshold", "scheduling_policy": "policy",
}
"""Fields that stand for a knob, and its name in Knobs."""
_FIELDS = ("port", "model", *KNOB_FIELDS)
_FIELD = re.compile(r"\{(\w+)\}")
"""Other braces, such as those of a JSON value, stay as they are."""


@dataclass(frozen=True, slots=True)
class CommandTemplate:
    """For example `vllm serve {model} --port {port} --max-num-batched-tokens {token_budget}`.

    UsageError for an empty command, for quotes that do not end, and for an unknown field.
    """

    text: str

    def __post_init__(self) -> None:
        try:
            words = shlex.split(self.text)
        except ValueError as error:
            raise UsageError(f"--server-command cannot be split into words ({error}): "
                             "close its quotes") from None
        if not words:
            raise UsageError("--server-command is empty: give the command that starts the server")
        unknown = sorted(set(_FIELD.findall(self.text)) - set(_FIELDS))
        if unknown:
            raise UsageError(f"--server-command has no field {{{unknown[0]}}}; it knows "
                             + ", ".join(f"{{{name}}}" for name in _FIELDS))

    def mentions(self, field: str) -> bool:
        return f"{{{field}}}" in self.text

    @property
    def knobs(self) -> frozenset[str]:
        """Names in Knobs of what the command sets; the others cannot be searched with it."""
        return frozenset(knob for field, knob in KNOB_FIELDS.items() if self.mentions(field))

    def shown(self, knobs: Knobs, *, model: str | None) -> str:
        """The command with these knobs for a reader: fields that are not known yet stay as they are."""
        values = {field: str(getattr(knobs, knob)) for field, knob in KNOB_FIELDS.items()}
        if model is not None:
            values["model"] = model
        return _FIELD.sub(lambda hit: shlex.quote(values[hit[1]]) if hit[1] in values else hit[0], self.text)

    def words(self, *, port: int, model: str | None, knobs: Knobs | None) -> list[str]:
        """The command for one start. UsageError where it mentions what is not known."""
        values = {"port": str(port)}
        if model is not None:
            values["model"] = model
        if knobs is not None:
            values |= {field: str(getattr(knobs, knob)) for field, knob in KNOB_FIELDS.items()}
        missing = next((name for name in _FIELDS if self.mentions(name) and name not in values), None)
        if missing is not None:
            flags = "--model" if missing == "model" else "the knob's own flag, as --max-num-batched-tokens"
            raise UsageError(f"--server-command mentions {{{missing}}}, which is not known: give {flags}")
        # Split first: a value with a blank in it stays one word.
        return [_FIELD.sub(lambda hit: values[hit[1]], word) for word in shlex.split(self.text)]
