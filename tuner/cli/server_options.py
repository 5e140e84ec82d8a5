"""Flags about a server that is measured over HTTP; names are those of `vllm bench serve`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from engine_adapter.http.target import HttpTarget, api_key_from
from workloads import UsageError

BaseUrl = Annotated[str | None, typer.Option(
    help="Measure the server that runs here, as in http://127.0.0.1:8000.")]
Host = Annotated[str | None, typer.Option(help="The same in two parts, with --port. Default 127.0.0.1.")]
Port = Annotated[int | None, typer.Option(help="Port of the server that runs already.", min=1, max=65535)]
Backend = Annotated[str | None, typer.Option(
    help="Its API: openai (completions) or openai-chat; vllm and sglang are the former. Default openai.")]
Endpoint = Annotated[str | None, typer.Option(
    help="Path of the requests. Default /v1/completions or /v1/chat/completions.")]
ApiKeyEnv = Annotated[str | None, typer.Option(
    metavar="NAME", help="Variable of the environment that holds the key. Default OPENAI_API_KEY, if set.")]
ApiKeyFile = Annotated[str | None, typer.Option(help="File that holds the key. It is never shown or saved.")]
Header = Annotated[list[str] | None, typer.Option(
    metavar="KEY=VALUE", help="Another header for every request; repeatable.")]
ExtraBody = Annotated[str | None, typer.Option(
    metavar="JSON", help="Fields for every request's body, as in '{\"top_p\": 0.9}'.")]
IgnoreEos = Annotated[bool | None, typer.Option(
    "--ignore-eos/--no-ignore-eos",
    help="Have every answer exactly as long as planned, where the server can. Default: yes.")]
Tokenizer = Annotated[str | None, typer.Option(
    help="tokenizer.json or a model's directory: counts tokens where the server does not.")]
TextPrompts = Annotated[bool, typer.Option(
    "--text-prompts", help="Send words, although the server would take token ids.")]
CaFile = Annotated[str | None, typer.Option(help="Certificate to trust, for https.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Check no certificate, for https.")]

Server = Annotated[str | None, typer.Option(
    help="Start vLLM's own server for each setting and measure it over HTTP: vllm. Default: the embedded "
         "engine.")]
ServerCommand = Annotated[str | None, typer.Option(
    metavar="COMMAND", help="Start any other server with this command; {port}, {model}, {token_budget}, "
    "{max_seqs}, {long_prefill_token_threshold} and {scheduling_policy} are filled in.")]
ControlBlock = Annotated[str | None, typer.Option(
    metavar="FILE", help="Live knobs of the server at --base-url, if it was started with "
    "python -m engine_adapter.vllm_server.")]

TARGET_FLAGS = ("base_url", "host", "port", "backend", "endpoint", "api_key_env", "api_key_file", "header",
                "extra_body", "ignore_eos", "tokenizer", "text_prompts", "ca_file", "insecure")
"""Parameters that say which server runs already, and how it is spoken to."""
_APIS = {"openai": "completions", "vllm": "completions", "sglang": "completions", "openai-chat": "chat"}


def target_from_options(
    *, base_url: str | None, host: str | None, port: int | None, model: str | None, backend: str | None,
    endpoint: str | None, api_key_env: str | None, api_key_file: str | None, header: list[str] | None,
    extra_body: str | None, ignore_eos: bool | None, tokenizer: str | None, text_prompts: bool,
    ca_file: str | None, insecure: bool, started_here: bool = False,
) -> HttpTarget | None:
    """The server that these flags name, None when they name none; UsageError where they contradict.

    A server that is `started_here` needs no address.
    """
    if base_url is not None and (host is not None or port is not None):
        raise UsageError("give the server as either --base-url or --host and --port")
    if base_url is None and host is None and port is None and started_here:
        base_url = "http://127.0.0.1"
    if base_url is None and host is None and port is None:
        needless = {"--backend": backend, "--endpoint": endpoint, "--api-key-env": api_key_env,
                    "--api-key-file": api_key_file, "--header": header, "--extra-body": extra_body,
                    "--tokenizer": tokenizer, "--text-prompts": text_prompts or None, "--ca-file": ca_file,
                    "--insecure": insecure or None, "--ignore-eos": ignore_eos}
        if given := [flag for flag, value in needless.items() if value is not None]:
            raise UsageError(f"{', '.join(given)}: only for a server that runs already; name it with "
                             f"--base-url")
        return None
    if host is not None and port is None:
        raise UsageError("--host needs --port")
    if backend is not None and backend not in _APIS:
        raise UsageError(f"unknown --backend {backend!r}; known: {', '.join(_APIS)}")
    return HttpTarget(
        base_url=base_url or f"http://{_bracketed(host or '127.0.0.1')}:{port}", model=model,
        api=_APIS[backend or "openai"],  # type: ignore[arg-type]
        endpoint=None if endpoint is None else "/" + endpoint.lstrip("/"),
        **secrets_from_options(api_key_env, api_key_file, header), extra_body=_body(extra_body),
        ignore_eos=True if ignore_eos is None else ignore_eos,
        tokenizer=None if tokenizer is None else Path(tokenizer), text_prompts=text_prompts,
        ca_file=_existing(ca_file), verify_tls=not insecure)


def secrets_from_options(api_key_env: str | None, api_key_file: str | None,
                         header: list[str] | None) -> dict[str, Any]:
    """The fields of a target that are never shown and never saved."""
    return {"api_key": api_key_from(api_key_env, None if api_key_file is None else Path(api_key_file)),
            "headers": _headers(header or [])}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _existing(file: str | None) -> Path | None:
    if file is not None and not Path(file).is_file():
        raise UsageError(f"--ca-file {file} does not exist")
    return None if file is None else Path(file)


def _headers(pairs: list[str]) -> dict[str, str]:
    headers = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            # The text may hold a secret, so it is not repeated.
            raise UsageError("--header is KEY=VALUE, as in --header x-tenant=blue")
        headers[name.strip()] = value.strip()
    return headers


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _body(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        body = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:  # a lone surrogate is a ValueError too
        raise UsageError(f"--extra-body is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(body, dict):
        raise UsageError("--extra-body must be a JSON object, as in '{\"top_p\": 0.9}'")
    return body
