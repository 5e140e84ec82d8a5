"""The one-way rule between the rooms, read from the imports of every module."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ["workloads", "engine_adapter", "bench", "tuner", "reports"]
"""Left may not import right."""
ENGINES = {"torch", "vllm", "transformers"}
CONVERTER = "tuner.setup.bundled_model"
"""Turns the bundled file into a checkpoint, in a process of its own, with transformers alone."""


def _modules():
    for path in sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imports(name, path):
    """Absolute names of the modules that a module imports, anywhere in its text."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


EDGES = [(name, imported) for name, path in _modules() for imported in _imports(name, path)]


def _is_roof(name):
    return name == "tuner.cli" or name.startswith("tuner.cli.")


def _room(name):
    return name.partition(".")[0]


def test_imports_only_point_left():
    """A room imports itself and the rooms to its left; only the command line may import every room."""
    wrong = [
        f"{importer} -> {imported}" for importer, imported in EDGES
        if _room(imported) in LAYERS and not _is_roof(importer)
        and LAYERS.index(_room(imported)) > LAYERS.index(_room(importer))
    ]
    assert not wrong


def test_no_room_imports_the_command_line():
    """The command line is the roof: nothing below depends on it."""
    assert not [f"{importer} -> {imported}" for importer, imported in EDGES
                if _is_roof(imported) and not _is_roof(importer)]


def test_only_the_engine_adapter_knows_the_engine():
    """torch, vllm and transformers are imported in engine_adapter, and by the model's converter."""
    assert not [f"{importer} -> {imported}" for importer, imported in EDGES
                if _room(imported) in ENGINES and _room(importer) != "engine_adapter"
                and (importer, _room(imported)) != (CONVERTER, "transformers")]


@pytest.mark.parametrize("module", [*LAYERS, "tuner.cli.main", "tuner.setup.diagnosis"])
def test_reading_and_help_load_no_engine(module):
    """Everything that plans, measures, reads finished runs or prints help starts without an engine."""
    code = f"import sys, {module}; print(*sorted({ENGINES!r} & set(sys.modules)))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)
    assert loaded.split() == []
