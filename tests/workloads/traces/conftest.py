"""What the tests of several trace formats need."""

import pytest


@pytest.fixture(scope="session")
def word_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a tokenizer that makes a token of each word; it adds a special token and would cut texts
    at 3 tokens, neither of which may count."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "<s>": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.enable_truncation(3)
    file = tmp_path_factory.mktemp("model") / "tokenizer.json"
    tokenizer.save(str(file))
    return str(file.parent)
