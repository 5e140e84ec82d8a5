"""What a server says about itself before anything is asked of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine_adapter.errors import StartFailed
from engine_adapter.http.server_metrics import ServerMetrics, fetch_metrics
from engine_adapter.http.target import HttpTarget
from workloads.errors import UsageError

_TIMEOUT_S = 10.0
_LARGEST_PAGE = 1 << 22
_KNOWN_OWNERS = ("vllm", "sglang", "llamacpp")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """None for what it does not say."""

    model: str
    owner: str | None
    """`owned_by` of /v1/models: which server this is."""
    max_model_len: int | None
    version: str | None
    listed: bool = True
    """Whether the server lists the model, as far as it lists any."""

    @property
    def kind(self) -> str:
        """`vllm`, `sglang`, `llamacpp`, or `openai` for any other server of this API."""
        owner = (self.owner or "").lower().replace(".", "").replace("-", "")
        return owner if owner in _KNOWN_OWNERS else "openai"


class ControlPlane:
    """Small requests beside the measured ones, on connections of their own."""

    def __init__(self, target: HttpTarget) -> None:
        import aiohttp

        self._target = target
        tls: Any = True
        if target.secure:
            from engine_adapter.http.pool import tls_context

            tls = tls_context(target)
        self._session = aiohttp.ClientSession(
            headers=target.all_headers(), connector=aiohttp.TCPConnector(ssl=tls),
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S, connect=target.connect_timeout_s))

    async def call(self, method: str, path: str) -> tuple[int, bytes]:
        """Status and body. OSError or TimeoutError when there is no answer."""
        import aiohttp

        try:
            async with self._session.request(method, self._target.root + path,
                                             allow_redirects=False) as answer:
                body = b""
                async for piece in answer.content.iter_chunked(1 << 16):
                    body += piece
                    if len(body) > _LARGEST_PAGE:
                        raise ConnectionError(f"{path} is larger than {_LARGEST_PAGE >> 20} MiB")
                return answer.status, body
        except UnicodeError as error:
            raise ConnectionRefusedError(f"{self._target.host} is no host name") from error
        except aiohttp.ClientConnectorError as error:
            raise ConnectionRefusedError(error.strerror or str(error.os_error)) from error
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error

    async def json(self, path: str) -> tuple[int, Any]:
        """The status of a GET and its answer, parsed; None where it is no 200 or no JSON."""
        import msgspec

        status, body = await self.call("GET", path)
        try:
            return status, msgspec.json.decode(body) if status == 200 else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return status, None

    async def metrics(self) -> ServerMetrics | None:
        """See server_metrics.fetch_metrics."""
        return await fetch_metrics(self._target.root, session=self._session)

    async def close(self) -> None:
        await self._session.close()


async def ask_facts(plane: ControlPlane, target: HttpTarget, cleaned: Callable[[str], str]) -> ServerFacts:
    """From /v1/models and /version, without secrets that they repeat.

    StartFailed when nobody answers, UsageError when the model is unclear.
    """
    status, models, version = 0, None, None
    try:
        status, models = await plane.json("/v1/models")
        _, version = await plane.json("/version")
    except OSError as error:
        # A server that answers nothing but prompts can be measured all the same.
        if isinstance(error, ConnectionRefusedError) or target.model is None:
            why = cleaned(str(error)) or "no answer in time"
            raise StartFailed(f"no server answers at {target.base_url} ({why}): start it, or correct "
                              f"--base-url") from error
    if status in (401, 403):
        raise UsageError(f"the server at {target.base_url} refuses the key (HTTP {status}): give another "
                         f"with --api-key-env or --api-key-file")
    listed = _listed(models)
    chosen = next((entry for entry in listed if target.model in (None, entry.get("id"))), {})
    if target.model is None and len(listed) != 1:
        names = ", ".join(cleaned(str(entry.get("id"))) for entry in listed[:8])
        said = f"serves {names}" if names else "does not list its models"
        raise UsageError(f"the server at {target.base_url} {said}: say which one with --model")
    length = chosen.get("max_model_len")
    return ServerFacts(
        model=target.model or cleaned(str(chosen["id"])),
        owner=chosen["owned_by"] if isinstance(chosen.get("owned_by"), str) else None,
        max_model_len=length if isinstance(length, int) and length > 0 else None,
        version=_version(version, cleaned),
        listed=bool(chosen) or not listed,
    )


def _version(told: Any, cleaned: Callable[[str], str]) -> str | None:
    version = told.get("version") if isinstance(told, dict) else None
    return cleaned(version)[:80] if isinstance(version, str) else None


def _listed(models: Any) -> list[dict[str, Any]]:
    data = models.get("data") if isinstance(models, dict) else None
    found = data if isinstance(data, list) else []
    return [entry for entry in found if isinstance(entry, dict) and entry.get("id")]
