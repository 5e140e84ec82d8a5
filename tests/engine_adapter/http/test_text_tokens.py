import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.http.openai_stream import decode_stream
from engine_adapter.http.text_tokens import TextTokenizer, tokenizer_from
from tests.engine_adapter.http.stream_bytes import DONE, delta, text
from workloads.errors import UsageError

tokenizers = pytest.importorskip("tokenizers")

_WORDS = "the reader waits while a long prompt is filled and the stream of words stalls for all who read on"


def _byte_level() -> "tokenizers.Tokenizer":
    """Like that of Llama 3: every byte is a token, a blank belongs to the word after it; adds <s>."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([_WORDS + " " + _WORDS] * 3, trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def _metaspace() -> "tokenizers.Tokenizer":
    """Like that of Llama 2: a mark stands for the blank, also before the first word."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator([_WORDS + " " + _WORDS] * 3, trainer)
    return tokenizer


def _word_level() -> "tokenizers.Tokenizer":
    """One token a word, whatever stands between; a blank is none."""
    vocab = {word: i for i, word in enumerate(["[UNK]", *sorted(set(_WORDS.split()))])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return tokenizer


def _characters() -> "tokenizers.Tokenizer":
    """One token a character, the blank included."""
    vocab = {character: i for i, character in enumerate("abcdefgh ")}
    return tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))


_ALL = {
    name: TextTokenizer(make())
    for name, make in (
        ("byte level", _byte_level), ("metaspace", _metaspace), ("word level", _word_level),
        ("characters", _characters),
    )
}
_BYTES = _ALL["byte level"]


def test_special_tokens_are_neither_counted_nor_added() -> None:
    """A tokenizer that starts every text with <s> counts the text alone (rows 26, 102)."""
    assert _BYTES.count("the") == len(_BYTES.encode("the")) == 1
    assert _BYTES.counts("the reader", [3, 10]) == [1, 1]


def test_a_whole_answer_is_tokenised_once() -> None:
    """Twenty one-word messages are twenty tokens, not forty (row 26)."""
    reads = [text("the" if i == 0 else " the") for i in range(20)]
    content = decode_stream([*reads, DONE], tokens_of_text=_BYTES)
    assert (content.message_tokens, content.token_count_source) == ([1] * 20, "tokenizer")


def test_tool_calls_and_reasoning_are_tokenised_too() -> None:
    """Everything that bears tokens is in the text that is counted."""
    tool = {"tool_calls": [{"function": {"name": "the", "arguments": " reader"}}]}
    content = decode_stream([delta({"reasoning": "the reader"}), delta(tool), DONE], tokens_of_text=_BYTES)
    assert content.message_tokens == [2, 2]


def test_a_token_belongs_to_the_piece_with_its_last_character() -> None:
    """A word cut over pieces counts where it ends; the bytes of one character count where it stands."""
    assert _BYTES.counts("the reader", [1, 5, 9, 10]) == [0, 1, 0, 1]
    assert _BYTES.counts("the😀", [3, 3, 4, 4]) == [1, 0, _BYTES.count("😀"), 0]


_PIECES = st.lists(st.text(st.characters(codec="utf-8"), max_size=4), min_size=1, max_size=6)


@given(st.sampled_from(sorted(_ALL)), _PIECES)
def test_the_pieces_add_up_to_the_text(name: str, pieces: list[str]) -> None:
    """Whatever the pieces, all tokens of the text are counted once."""
    tokenizer = _ALL[name]
    whole = "".join(pieces)
    ends = [len("".join(pieces[: i + 1])) for i in range(len(pieces))]
    assert sum(tokenizer.counts(whole, ends)) == tokenizer.count(whole)


def test_limits_of_the_file_cut_nothing(tmp_path: Path) -> None:
    """A file may hold a truncation and a padding; a long text keeps all its tokens (row 105)."""
    raw = _byte_level()
    raw.enable_truncation(4)
    raw.enable_padding(length=8)
    raw.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from(tmp_path)
    assert tokenizer.count("the") == 1
    assert tokenizer.count("the" + " the" * 99) == 100
    assert tokenizer.vocab_size == raw.get_vocab_size()


def test_a_file_or_its_directory_is_read(tmp_path: Path) -> None:
    """Both name the same tokenizer."""
    _byte_level().save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path, str(tmp_path / "tokenizer.json")):
        assert tokenizer_from(path).count("the reader") == 2


@pytest.mark.parametrize(("content", "said"), [(None, "no tokenizer at"), ("{}", "no readable tokenizer")])
def test_what_is_no_tokenizer_is_refused_in_one_line(tmp_path: Path, content: str | None, said: str) -> None:
    """A missing and a broken file are the user's to mend; the message names the file."""
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=said) as caught:
        tokenizer_from(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the `tokenizers` library the message says what to install."""
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"pip install 'stallfree\[tokenizer\]'"):
        tokenizer_from(tmp_path)
