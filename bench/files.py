"""Write result files whole or not at all, and say in one line why it was not possible."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.errors import OutputError


def write_text(path: Path, text: str) -> Path:
    """`text` in `path`, whole or not at all; missing folders are made. OutputError names the path."""
    return write_pieces(path, [text.encode()])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> Path:
    """The same for what is too large to be one piece. What a device or a pipe is given cannot be taken back
    where it ends early."""
    if not path.name or path.is_dir():
        raise OutputError(f"cannot write {path}: it is a directory; give the name of a file")
    # A link stays one, and so does a device or a pipe: neither is replaced by a file.
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    beside = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.exists(path) and not os.path.isfile(path):
            with path.open("wb") as stream:
                stream.writelines(pieces)
            return path
        with beside.open("wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise OutputError(f"cannot write {path}: {error.strerror or error}; free space there or choose "
                          f"another directory") from error
    return path


def write_json(path: Path, content: Mapping[str, Any]) -> Path:
    """`content` as JSON in `path`, see `write_text` and `jsonable`."""
    return write_text(path, json.dumps(jsonable(content), indent=1, allow_nan=False) + "\n")


def jsonable(value: Any) -> Any:
    """Plain JSON values: tuples become lists, infinity the text "inf" (as vLLM writes an endless rate)."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return "inf" if isinstance(value, float) and value == math.inf else value
