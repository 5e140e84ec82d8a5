"""`--server-command`: fields are filled word by word, slips are told in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.knobs import Knobs
from engine_adapter.servers.command_template import CommandTemplate
from workloads.errors import UsageError

KNOBS = Knobs(512, 32, 128, policy="priority")


def test_every_field_is_filled() -> None:
    """Knobs by their own names; a value with a blank stays one word; quotes are a shell's."""
    template = CommandTemplate("serve {model} --port={port} -b {token_budget} -s {max_seqs} "
                               "-l {long_prefill_token_threshold} -p {scheduling_policy} 'two words'")
    assert template.words(port=81, model="my model", knobs=KNOBS) == [
        "serve", "my model", "--port=81", "-b", "512", "-s", "32", "-l", "128", "-p", "priority", "two words"]
    assert template.knobs == {"token_budget", "max_seqs", "long_prefill_token_threshold", "policy"}


def test_only_the_knobs_that_it_mentions_can_be_searched() -> None:
    """What the command does not set stays as the server has it."""
    assert CommandTemplate("serve --port {port} -b {token_budget}").knobs == {"token_budget"}
    assert CommandTemplate("serve --port {port}").knobs == frozenset()


def test_braces_of_a_json_value_stay() -> None:
    """Flags of vLLM take JSON; only a bare name in braces is a field."""
    template = CommandTemplate("""serve --override '{"a": {"b": 1}}' --empty {} {port}""")
    assert template.words(port=1, model=None, knobs=None) == [
        "serve", "--override", '{"a": {"b": 1}}', "--empty", "{}", "1"]


@pytest.mark.parametrize(
    ("text", "part"),
    [("", "is empty"), ("   ", "is empty"), ("serve 'x", "close its quotes"),
     ("serve {ports}", r"no field \{ports\}; it knows \{port\}, \{model\}, \{token_budget\}"),
     ("serve {model}", "give --model"),
     ("serve {token_budget}", "--max-num-batched-tokens")],
)
def test_what_cannot_be_filled_is_refused_in_one_line(text: str, part: str) -> None:
    """The message names the field and what to give."""
    with pytest.raises(UsageError, match=part) as caught:
        CommandTemplate(text).words(port=1, model=None, knobs=None)
    assert "\n" not in str(caught.value)


@given(st.text(st.characters(exclude_characters="{}'\"\\\0")))
def test_a_model_of_any_spelling_is_one_word(model: str) -> None:
    """A value is never split or read as a shell would."""
    assert CommandTemplate("serve {model}").words(port=1, model=model, knobs=None) == ["serve", model]
