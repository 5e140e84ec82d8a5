"""Which server is measured, and how it is spoken to."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from workloads.errors import UsageError

Api = Literal["completions", "chat"]

_NOT_OURS = ("n", "best_of", "use_beam_search")
"""Several answers to one prompt have no token times of their own."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110, section 5.6.2."""
_FRAMING = ("host", "content-length", "transfer-encoding", "connection", "expect", "upgrade")
_PATH = re.compile(r"/(?!/)[!-~]*")
_PRINTABLE = re.compile(r"[!-~]+")
_SET_BY_US = ("model", "prompt", "messages", "stream", "max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """One OpenAI-compatible server. UsageError for what cannot be an address or a body.

    The key is left out of `repr` and of `as_dict`: nothing that prints or saves a target has it.
    """

    base_url: str
    """Scheme, host, port and an optional path before the endpoint: `http://127.0.0.1:8000`; a last
    `/v1` is the same as none, as both forms are in use."""
    model: str | None = None
    """As the server calls it; None asks /v1/models, which must then list exactly one."""
    api: Api = "completions"
    endpoint: str | None = None
    """Path of the requests; None is `/v1/completions` or `/v1/chat/completions`."""
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Merged over every request's body, as vLLM's --extra-body."""
    ignore_eos: bool = True
    tokenizer: Path | None = None
    """A tokenizer.json or a model's directory: counts tokens where the server does not."""
    text_prompts: bool = False
    """Send text although the server would take token ids."""
    ca_file: Path | None = None
    """Certificates to trust besides the system's."""
    verify_tls: bool = True
    connect_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            port_fits = parts.port != 0
        except ValueError:  # a port that is none, an IPv6 address without its end
            parts, port_fits = urlsplit(""), False
        if parts.scheme not in ("http", "https") or not parts.hostname or not port_fits:
            raise UsageError(f"--base-url {self.base_url!r} is no address of a server: give it as in "
                             f"http://127.0.0.1:8000")
        if self.endpoint is not None and not _PATH.fullmatch(self.endpoint):
            raise UsageError("--endpoint must be a path, as in /v1/completions")
        if self.api_key is not None and not _PRINTABLE.fullmatch(self.api_key):
            raise UsageError("the key has characters that no header can hold: blanks, line ends or others "
                             "than ASCII")
        if parts.username or parts.password:
            raise UsageError("--base-url must not hold a password: give the key with --api-key-env or "
                             "--api-key-file")
        if parts.query or parts.fragment:
            raise UsageError(f"--base-url {self.base_url!r} must end with its path: leave out ? and #")
        for name, value in self.extra_body.items():
            if name in _SET_BY_US:
                raise UsageError(f"--extra-body must not set {name}: stallfree sets it itself")
            if name in _NOT_OURS and value not in (1, False, None):
                raise UsageError(f"--extra-body must not set {name}: one answer for each prompt is measured")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not (value.isprintable() and value.isascii()):
                raise UsageError(f"--header {name!r} is no valid header")
            if name.lower() in _FRAMING:
                raise UsageError(f"--header {name} would change how the request is sent: leave it out")

    @property
    def root(self) -> str:
        """Scheme, host, port and path, without a last `/v1`."""
        return self.base_url.rstrip("/").removesuffix("/v1").rstrip("/")

    @property
    def secure(self) -> bool:
        return urlsplit(self.base_url).scheme == "https"

    @property
    def host(self) -> str:
        """Without the port, an IPv6 address without brackets."""
        host = urlsplit(self.base_url).hostname
        assert host is not None
        return host

    @property
    def port(self) -> int:
        return urlsplit(self.base_url).port or (443 if self.secure else 80)

    @property
    def path(self) -> str:
        """Of the requests, with the path of the base URL before it."""
        default = "/v1/chat/completions" if self.api == "chat" else "/v1/completions"
        return urlsplit(self.root).path + (self.endpoint or default)

    def all_headers(self) -> dict[str, str]:
        """The user's, and the key as a bearer token unless he set the header himself."""
        headers = dict(self.headers)
        if self.api_key and "authorization" not in {name.lower() for name in headers}:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    def secrets(self) -> list[str]:
        """What must never be printed or saved: the key and the values of all headers."""
        return [text for text in (self.api_key, *self.headers.values()) if text and len(text) > 3]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, without the key and without the headers' values."""
        return {
            "base_url": self.base_url, "model": self.model, "api": self.api, "endpoint": self.endpoint,
            "header_names": sorted(self.headers), "extra_body": dict(self.extra_body),
            "ignore_eos": self.ignore_eos, "text_prompts": self.text_prompts, "verify_tls": self.verify_tls,
            "tokenizer": None if self.tokenizer is None else str(self.tokenizer),
            "ca_file": None if self.ca_file is None else str(self.ca_file),
            "connect_timeout_s": self.connect_timeout_s,
        }

    def as_secret_dict(self) -> dict[str, Any]:
        """The whole of it, for a pipe to a process of our own; the inverse is `from_secret_dict`."""
        fields = self.as_dict() | {"api_key": self.api_key, "headers": dict(self.headers)}
        del fields["header_names"]
        return fields

    @classmethod
    def from_secret_dict(cls, fields: Mapping[str, Any]) -> Self:
        paths = {name: None if fields[name] is None else Path(fields[name])
                 for name in ("tokenizer", "ca_file")}
        return cls(**{**fields, **paths})


def api_key_from(environment_name: str | None, file: Path | None) -> str | None:
    """The key that a variable of the environment, or a file, holds; neither: OPENAI_API_KEY if it is set.

    UsageError for a variable that is not set, and for a file that is missing or empty.
    """
    if environment_name is not None and file is not None:
        raise UsageError("give the key with either --api-key-env or --api-key-file")
    if file is not None:
        try:
            key = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise UsageError(f"cannot read the key in {file}: {why}") from None
        if not key or "\n" in key:
            raise UsageError(f"{file} must hold one key and nothing else")
        return key
    key = os.environ.get(environment_name or "OPENAI_API_KEY", "").strip()
    if environment_name is not None and not key:
        raise UsageError(f"--api-key-env {environment_name}: that variable is not set")
    return key or None
