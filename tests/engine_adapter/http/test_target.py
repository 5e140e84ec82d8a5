"""Which server is meant, and what of it may be shown."""

import json
from pathlib import Path

import pytest

from engine_adapter.http.target import HttpTarget, api_key_from
from workloads.errors import UsageError

SECRET = "sk-very-secret-key"


@pytest.mark.parametrize(("url", "root", "path"), [
    ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "/v1/completions"),
    ("http://127.0.0.1:8000/", "http://127.0.0.1:8000", "/v1/completions"),
    ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000", "/v1/completions"),
    ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000", "/v1/completions"),
    ("https://gateway.example/team/v1", "https://gateway.example/team", "/team/v1/completions"),
])
def test_a_base_url_may_end_in_v1_or_not(url: str, root: str, path: str) -> None:
    """Both forms are in use; they mean the same server, and a path before them is kept."""
    target = HttpTarget(base_url=url)
    assert (target.root, target.path) == (root, path)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://h:port",
                                 "http://h:0", "http://user:pw@h", "http://h/?a=b", "http://h/#x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    """In one line, before anything is sent; a password in it is not repeated."""
    with pytest.raises(UsageError) as refused:
        HttpTarget(base_url=url)
    assert "--base-url" in str(refused.value)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize("body", [{"n": 2}, {"best_of": 3}, {"model": "x"}, {"stream": False},
                                  {"max_tokens": 3}, {"prompt": "hi"}])
def test_a_body_must_not_change_what_is_measured(body: dict[str, object]) -> None:
    """One answer for each prompt, as long as planned, streamed; anything else is refused."""
    with pytest.raises(UsageError, match="--extra-body"):
        HttpTarget(base_url="http://h", extra_body=body)


def test_the_key_is_in_no_text_and_no_file() -> None:
    """repr and as_dict leave out the key and the headers' values; the pipe to a worker has them."""
    target = HttpTarget(base_url="http://h", api_key=SECRET, headers={"x-tenant": "blue-team"})
    shown = repr(target) + json.dumps(target.as_dict())
    assert SECRET not in shown
    assert "blue-team" not in shown
    assert HttpTarget.from_secret_dict(json.loads(json.dumps(target.as_secret_dict()))) == target


def test_a_header_of_the_users_replaces_the_key() -> None:
    """An Authorization header of his own is not doubled."""
    own = HttpTarget(base_url="http://h", api_key=SECRET, headers={"authorization": "Basic x"})
    assert own.all_headers() == {"authorization": "Basic x"}
    assert HttpTarget(base_url="http://h", api_key=SECRET).all_headers() == {
        "Authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize("headers", [
    {"a b": "x", "bad\r\nname": "y"}, {"x": "a\r\nb"}, {"": "x"}, {"a:b": "x"}, {"a b": "x"}])
def test_a_header_cannot_add_lines_to_a_request(headers: dict[str, str]) -> None:
    """Line ends and colons in names are refused."""
    with pytest.raises(UsageError, match="--header"):
        HttpTarget(base_url="http://h", headers=headers)


def test_the_key_comes_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file wins over nothing, a named variable must be set, OPENAI_API_KEY is the usual one."""
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert api_key_from(None, None) is None
    assert api_key_from(None, file) == SECRET
    monkeypatch.setenv("OPENAI_API_KEY", "usual")
    assert api_key_from(None, None) == "usual"
    with pytest.raises(UsageError, match="NOT_THERE"):
        api_key_from("NOT_THERE", None)
    with pytest.raises(UsageError, match="either"):
        api_key_from("OPENAI_API_KEY", file)
    file.write_text("two\nkeys")
    with pytest.raises(UsageError, match="one key") as refused:
        api_key_from(None, file)
    assert "two" not in str(refused.value)
    with pytest.raises(UsageError, match="cannot read"):
        api_key_from(None, tmp_path)
