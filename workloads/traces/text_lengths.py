"""Lengths of texts in tokens, for traces that hold texts."""

from pathlib import Path
from typing import TYPE_CHECKING

from workloads.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def load_tokenizer(path: str | Path) -> "Tokenizer":
    """The tokenizer of a `tokenizer.json`, or of the model directory that holds one.

    UsageError where the file or the `tokenizers` library is missing, or the file is no tokenizer.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file /= "tokenizer.json"
    if not file.is_file():
        raise UsageError(f"no tokenizer at {file}: give a tokenizer.json or a model directory that holds one")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        hint = "counting tokens in text needs a library: pip install 'stallfree[tokenizer]'"
        raise UsageError(hint) from error
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise UsageError(f"{file} is no readable tokenizer: {' '.join(str(error).split())}") from error


class TextLengths:
    """Counts tokens, special ones left out; no chat template is applied.

    UsageError where the tokenizer is missing or `path` is None.
    """

    def __init__(self, path: str | None, trace: Path) -> None:
        if path is None:
            raise UsageError(f"{trace} holds texts: give --tokenizer, a tokenizer.json or a model directory "
                             "that holds one")
        self._tokenizer = load_tokenizer(path)
        # A tokenizer.json may carry the limits of the model's training, which would cut long prompts.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count(self, text: str) -> int:
        """Tokens of `text`."""
        return len(self._tokenizer.encode(text, add_special_tokens=False)) if text else 0
