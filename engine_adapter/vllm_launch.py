"""How to start a vLLM engine: from arguments, or from a `vllm serve --config` file."""

import json
import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine_adapter.knobs import Knobs


@dataclass(frozen=True, slots=True)
class VllmLaunch:
    """Everything the engine is started with. What is None is left to vLLM's own default."""

    model: str
    """A directory or a hub id."""
    engine_args: dict[str, Any] = field(default_factory=dict)
    """vLLM EngineArgs by field name, scheduler settings excepted (for example max_model_len)."""
    knobs: Knobs | None = None
    """Scheduler settings to start with; None leaves vLLM's defaults."""
    ceiling_budget: int = 0
    """Without `knobs`: start with a max_num_batched_tokens of at least this."""
    config_file: Path | None = None
    """Start from this file alone, read by vLLM's own parser; the fields above are not used then."""

    def serve_config(self, knobs: Knobs | None) -> dict[str, Any]:
        """The content of a `vllm serve --config` file for this engine with `knobs`, or vLLM's own."""
        config: dict[str, Any] = {"model": self.model}
        for name, value in self.engine_args.items():
            if value is False:
                config["no-" + name.replace("_", "-")] = True
            elif value is not None:
                config[name.replace("_", "-")] = value
        return config | (knobs.serve_config() if knobs is not None else {})

    def serve_words(self, knobs: Knobs | None) -> list[str]:
        """The same as arguments of `vllm serve`, one word an item, the model first."""
        words = [self.model]
        for key, value in self.serve_config(knobs).items():
            if key != "model":
                words.append(f"--{key}")
                if value is not True:
                    words.append(json.dumps(value) if isinstance(value, dict | list) else str(value))
        return words

    def serve_command(self, knobs: Knobs) -> str:
        """The same as one command line, quoted for a shell."""
        return shlex.join(["vllm", "serve", *self.serve_words(knobs)])

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = asdict(self)
        values["config_file"] = str(self.config_file) if self.config_file else None
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "VllmLaunch":
        """The inverse of `as_dict`."""
        return cls(**{
            **values,
            "knobs": Knobs.from_dict(values["knobs"]) if values["knobs"] else None,
            "config_file": Path(values["config_file"]) if values["config_file"] else None,
        })
