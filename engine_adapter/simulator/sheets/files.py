"""Sheets on disk: those that come with Stallfree, by name, and those of the user, by path."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from workloads.errors import UsageError


@dataclass(frozen=True, slots=True)
class SheetFiles:
    """The sheets of one kind: `hardware` or `models`."""

    kind: str

    def names(self) -> tuple[str, ...]:
        """Names of those that come with Stallfree, sorted."""
        return tuple(sorted(entry.name.removesuffix(".yaml") for entry in self._folder().iterdir()
                            if entry.name.endswith(".yaml")))

    def read(self, name_or_path: str) -> tuple[dict[str, Any], str]:
        """What the sheet says, and what to call it. UsageError, one line, where there is none."""
        if name_or_path.lower() in self.names():
            name = name_or_path.lower()
            return _parsed((self._folder() / f"{name}.yaml").read_text(encoding="utf-8"), name), name
        path = Path(name_or_path)
        if path.suffix not in (".yaml", ".yml", ".json"):
            raise UsageError(f"unknown {self.kind.removesuffix('s')} sheet {name_or_path!r}; known: "
                             f"{', '.join(self.names())}; or give the path of a .yaml file")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read sheet {path}: {error}") from error
        return _parsed(text, str(path)), str(path)

    def _folder(self) -> Any:
        return files("engine_adapter.simulator.sheets").joinpath("data", self.kind)


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(text)   # JSON is YAML
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{source} holds no sheet: its top level must be keys")
    return content
