"""Model names: the bundled model, directories with a checkpoint, and names on a hub."""

import json
import os
import re
from pathlib import Path
from typing import Any

from workloads.errors import UsageError

BUNDLED_MODEL = "smollm2-135m"
"""SmolLM2-135M-Instruct (Apache-2.0), prepared by `make setup`."""

PREPARE_HINT = "run `make setup`, or without a checkout `python -m tuner.setup.bundled_model`"

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def cache_dir() -> Path:
    """Stallfree's folder in the user's cache; it need not exist yet."""
    # The XDG specification: a relative path in the variable is to be ignored.
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "stallfree"


def bundled_model_path() -> Path:
    """The directory of the bundled model's checkpoint; it exists only when it is complete."""
    return cache_dir() / BUNDLED_MODEL


def resolve_model(name_or_path: str) -> str:
    """What to give to vLLM as its model: the path of a local checkpoint, or a hub name as it is.

    Refuses the bundled model when it is not prepared, a path that does not exist, a directory
    that holds no whole checkpoint, and what cannot be a hub name.
    """
    if name_or_path == BUNDLED_MODEL:
        path = bundled_model_path()
        if problem := checkpoint_problem(path):
            raise UsageError(f"the bundled model {BUNDLED_MODEL} is not ready ({problem}): {PREPARE_HINT}")
        return str(path)
    path = Path(name_or_path).expanduser()
    if name_or_path and path.exists():
        if problem := checkpoint_problem(path):
            raise UsageError(f"model {name_or_path} cannot be loaded: {problem}")
        return str(path)
    if not _HUB_NAME.fullmatch(name_or_path):
        raise UsageError(
            f"no such model directory: {name_or_path!r}. Give {BUNDLED_MODEL}, a directory with config.json, "
            "or a hub name such as org/name"
        )
    return name_or_path


def checkpoint_problem(directory: Path) -> str | None:
    """Why `directory` is no whole Hugging Face checkpoint, in a few words, or None.

    A directory with a configuration and no weights passes: vLLM loads it with random weights
    (`load_format="dummy"`).
    """
    if not directory.is_dir():
        return f"{directory} is not a directory" if directory.exists() else f"{directory} does not exist"
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"{directory} has no config.json"
    except (OSError, ValueError) as error:
        return f"{directory / 'config.json'} cannot be read: {error}"
    if not isinstance(config, dict):
        return f"{directory / 'config.json'} is not a JSON object"
    for weights in sorted(directory.glob("*.safetensors")):
        try:
            whole = weights.stat().st_size == _safetensors_size(weights)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            whole = False
        if not whole:
            return f"{weights} is cut short or damaged"
    return None


def _safetensors_size(path: Path) -> int:
    """Bytes that a safetensors file must have by its own header: 8 bytes with the header's
    length, the JSON header with each tensor's offsets, the tensors."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if header_bytes > path.stat().st_size:
            raise ValueError("the header is longer than the file")
        header: dict[str, Any] = json.loads(file.read(header_bytes))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + header_bytes + int(max(ends, default=0))
