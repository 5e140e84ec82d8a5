"""Workloads by name or from a YAML file."""

from collections.abc import Hashable
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from workloads.errors import UsageError
from workloads.workload import Workload, first_problem

PRESETS = ("chat", "long-doc-qa", "summarisation", "code-completion", "mixed", "cpu")
"""Names of the workloads that come with Stallfree; each is `presets/<name>.yaml`."""


def load_workload(name_or_path: str | Path) -> Workload:
    """A preset of that name, or the workload of that YAML file (its name ends in .yaml or .yml).

    Relative paths inside the file start at its folder. An unknown name, an unreadable file and
    content that is no workload raise UsageError with one line.
    """
    name = str(name_or_path)
    if name in PRESETS:
        preset = files("workloads").joinpath("presets", f"{name}.yaml")
        return _parse(preset.read_text(encoding="utf-8"), f"preset {name}", Path())
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise UsageError(f"unknown workload {name!r}; presets: {', '.join(PRESETS)}; "
                         f"or give the path of a .yaml file")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read workload file {path}: {error}") from error
    return _parse(text, str(path), path.parent)


class _Loader(yaml.SafeLoader):   # type: ignore[misc]  # PyYAML has no types
    """Plain YAML in which no key stands twice: the first would be forgotten without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            problem = f"the key {twice!r} stands twice"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _parse(text: str, source: str, folder: Path) -> Workload:
    try:
        content = yaml.load(text, Loader=_Loader)
    except RecursionError as error:
        raise UsageError(f"{source} is nested too deeply for a workload") from error
    except (yaml.YAMLError, ValueError) as error:   # ValueError: a date that is none, for example
        raise UsageError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{source} holds no workload: its top level must be keys such as "
                         f"name, components and slo")
    try:
        return Workload.model_validate(content, context={"folder": folder})
    except ValidationError as error:
        raise UsageError(f"{source}: {first_problem(error)}") from error
