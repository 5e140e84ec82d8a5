"""What a server says about itself at /metrics, in one form for every engine.

Figures that a server does not show are None. The names are those of vLLM 0.32 (and the older ones of
its first v1 releases), SGLang, TensorRT-LLM and llama.cpp.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

    import aiohttp
    from prometheus_client.samples import Sample

TIMEOUT_S = 5.0
MAX_BYTES = 16 << 20
"""Larger pages are not read: a vLLM with many ranks shows some hundred kilobytes."""
_SAME_ENGINE = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
"""Labels of processes that work on the same requests: what they show must not be added up."""


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """One look at a server. Data-parallel engines are summed; of their KV use it is the highest."""

    engine: str = ""
    """`vllm`, `sglang`, `tensorrt-llm`, `llama.cpp`; empty when the page is of none of them."""
    running: int | None = None
    """Requests in the batch now."""
    waiting: int | None = None
    """Requests in its queue now."""
    kv_cache_usage: float | None = None
    """Share of the KV cache in use, 0 to 1."""
    preemptions: int | None = None
    """Counters from here on: since the server started."""
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_queries: int | None = None
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: int | None = None
    """Prompt tokens found there, or in a cache that the server shares with others."""
    finished: Mapping[str, int] | None = None
    """Finished requests by reason; `all` where the server does not tell reasons apart."""
    counting_since: float | None = None
    """When the counters began, in seconds of the server's calendar."""
    cache_config: Mapping[str, str] = field(default_factory=dict)
    """The KV cache as the server was started with it, in its own words."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, every field."""
        return asdict(self)


_COUNTERS = ("preemptions", "prompt_tokens", "generation_tokens", "prefix_queries", "prefix_hits")


@dataclass(frozen=True, slots=True)
class ServerDelta:
    """What happened between two looks at a server; None where either look does not show it."""

    restarted: bool = False
    """A counter fell or began anew, or another engine answers: the two looks are not of one server, and
    every figure here is None."""
    preemptions: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    finished: Mapping[str, int] | None = None

    @property
    def finished_requests(self) -> int | None:
        """Requests that ended, whatever the reason."""
        return None if self.finished is None else sum(self.finished.values())

    @property
    def prefix_hit_rate(self) -> float | None:
        """Prompt tokens found in the prefix cache, as a share of those looked up."""
        if self.prefix_hits is None or not self.prefix_queries:
            return None
        return self.prefix_hits / self.prefix_queries

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: every field, and the two figures made of them."""
        return {**asdict(self), "finished_requests": self.finished_requests,
                "prefix_hit_rate": self.prefix_hit_rate}


@dataclass(frozen=True, slots=True)
class _Names:
    """Where an engine shows each figure: the first name that has samples counts."""

    engine: str
    prefix: str
    figures: Mapping[str, tuple[str, ...]]
    finished: tuple[str, ...] = ()
    cache_info: str = ""
    """A gauge whose labels are the settings."""
    cache_gauges: tuple[str, ...] = ()
    hits_appear_late: bool = False
    """The counter of hits is shown from the first hit on: until then there were none."""
    shared_hits: str = ""
    """Hits in a cache that several servers share; a token is counted here or among `prefix_hits`."""


_VLLM = _Names("vllm", "vllm:", {
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "kv_cache_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "preemptions": ("num_preemptions_total",),
    "prompt_tokens": ("prompt_tokens_total",),
    "generation_tokens": ("generation_tokens_total",),
    "prefix_queries": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    "prefix_hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
}, finished=("request_success_total",), cache_info="cache_config_info",
    shared_hits="external_prefix_cache_hits_total")
_SGLANG = _Names("sglang", "sglang:", {
    "running": ("num_running_reqs",),
    "waiting": ("num_queue_reqs",),
    "kv_cache_usage": ("token_usage",),
    "preemptions": ("num_retracted_requests_total",),
    "prompt_tokens": ("prompt_tokens_total",),
    "generation_tokens": ("generation_tokens_total",),
    "prefix_queries": ("prompt_tokens_total",),
    "prefix_hits": ("cached_tokens_total",),
}, finished=("num_requests_total",), cache_gauges=("page_size", "num_pages", "max_total_num_tokens"),
    hits_appear_late=True)
_TENSORRT_LLM = _Names("tensorrt-llm", "trtllm_", {
    "running": ("num_requests_running", "num_active_requests"),
    "waiting": ("num_requests_waiting", "num_queued_requests"),
    "kv_cache_usage": ("kv_cache_utilization",),
    "prompt_tokens": ("prompt_tokens_total",),
    "generation_tokens": ("generation_tokens_total",),
    "prefix_queries": ("prompt_tokens_total",),
    "prefix_hits": ("prompt_cached_tokens_total",),
}, finished=("request_success_total",), cache_info="cache_config_info", hits_appear_late=True)
_LLAMA_CPP = _Names("llama.cpp", "llamacpp:", {
    "running": ("requests_processing",),
    "waiting": ("requests_deferred",),
    "kv_cache_usage": ("kv_cache_usage_ratio",),
    "prompt_tokens": ("prompt_tokens_total",),
    "generation_tokens": ("tokens_predicted_total",),
})
_DIALECTS = (_VLLM, _SGLANG, _TENSORRT_LLM, _LLAMA_CPP)


def scrape(text: str) -> ServerMetrics:
    """The figures of a page in Prometheus' text format; all None for a page of another kind."""
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append(sample)
    except (ValueError, IndexError, KeyError):  # the parser's answers to what is not its format
        return ServerMetrics()
    for names in _DIALECTS:
        if any(name.startswith(names.prefix) for name in samples):
            return _read(names, samples)
    return ServerMetrics()


def delta(before: ServerMetrics, after: ServerMetrics) -> ServerDelta:
    """What the counters of one server gained between two looks.

    A counter that only the second look shows began at 0: servers show some of them from the first event on.
    """
    gained = {name: _gain(getattr(before, name), getattr(after, name)) for name in _COUNTERS}
    finished = None
    if after.finished is not None:
        earlier = before.finished or {}
        finished = {reason: n - earlier.get(reason, 0) for reason, n in after.finished.items()}
    fell = any(gain is not None and gain < 0 for gain in (*gained.values(), *(finished or {}).values()))
    since = (before.counting_since, after.counting_since)
    anew = None not in since and since[0] != since[1]
    if fell or anew or before.engine != after.engine:
        return ServerDelta(restarted=True)
    return ServerDelta(False, **gained, finished=finished)


async def fetch_metrics(
    base_url: str, headers: Mapping[str, str] | None = None, *,
    session: "aiohttp.ClientSession | None" = None, tls: "ssl.SSLContext | None" = None,
    timeout_s: float = TIMEOUT_S,
) -> ServerMetrics | None:
    """One look at the server behind `base_url`; None where it shows no metrics that are known here.

    The page lies beside `/v1`, for TensorRT-LLM below `/prometheus`. Redirects are not followed, so that
    `headers` reach nobody else. `timeout_s` holds for each of the two.
    """
    import aiohttp

    root = base_url.rstrip("/").removesuffix("/v1")
    limit = aiohttp.ClientTimeout(total=timeout_s)
    own = aiohttp.ClientSession() if session is None else None
    try:
        for path in ("/metrics", "/prometheus/metrics"):
            text = await _get(session or own, root + path, headers, tls, limit)
            found = scrape(text)
            if found.engine:
                return found
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, OverflowError):
        return None
    finally:
        if own is not None:
            await own.close()
    return None


async def _get(session: Any, url: str, headers: Mapping[str, str] | None, tls: "ssl.SSLContext | None",
               limit: "aiohttp.ClientTimeout") -> str:
    """The page, empty unless it is there and of a sane size."""
    async with session.get(url, headers=headers, ssl=True if tls is None else tls, timeout=limit,
                           allow_redirects=False) as answer:
        if answer.status != 200:
            return ""
        page = bytearray()
        async for piece in answer.content.iter_chunked(1 << 16):
            page += piece
            if len(page) > MAX_BYTES:
                return ""
        return page.decode("utf-8", errors="replace")


def _read(names: _Names, samples: Mapping[str, list["Sample"]]) -> ServerMetrics:
    found: dict[str, Any] = {}
    for figure, choices in names.figures.items():
        combine = max if figure == "kv_cache_usage" else sum
        value = _value(_first(names.prefix, choices, samples), combine)
        found[figure] = value if value is None or figure == "kv_cache_usage" else round(value)
    if names.hits_appear_late and found["prefix_queries"] is not None:
        found["prefix_hits"] = found["prefix_hits"] or 0
    shared = _value(samples.get(names.prefix + names.shared_hits, []), sum)
    if shared is not None and found.get("prefix_hits") is not None:
        found["prefix_hits"] += round(shared)
    return ServerMetrics(
        names.engine, **found, finished=_finished(_first(names.prefix, names.finished, samples)),
        counting_since=_value(samples.get(names.prefix + "prompt_tokens_created", []), min),
        cache_config=_cache_config(names, samples),
    )


def _finished(samples: Iterable["Sample"]) -> dict[str, int] | None:
    by_reason: dict[str, list[Sample]] = {}
    for sample in samples:
        by_reason.setdefault(sample.labels.get("finished_reason", "all"), []).append(sample)
    counts = {reason: _value(group, sum) for reason, group in by_reason.items()}
    return {reason: round(n) for reason, n in counts.items() if n is not None} or None


def _first(prefix: str, choices: Iterable[str], samples: Mapping[str, list["Sample"]]) -> list["Sample"]:
    return next((samples[prefix + name] for name in choices if prefix + name in samples), [])


def _value(samples: Iterable["Sample"], combine: Callable[[Iterable[float]], float]) -> float | None:
    """Engines combined; the processes of one engine repeat its figure. None without a finite sample."""
    engines: dict[frozenset[tuple[str, str]], float] = {}
    for sample in samples:
        # SGLang shows the requests of each priority, and under an empty one their total.
        if math.isfinite(sample.value) and not sample.labels.get("priority"):
            labels = frozenset(pair for pair in sample.labels.items() if pair[0] not in _SAME_ENGINE)
            engines[labels] = max(sample.value, engines.get(labels, -math.inf))
    return combine(engines.values()) if engines else None


def _cache_config(names: _Names, samples: Mapping[str, list["Sample"]]) -> dict[str, str]:
    """Of the first engine: data-parallel engines are started alike."""
    if names.cache_info:
        info = samples.get(names.prefix + names.cache_info, [])
        return {name: text for name, text in info[0].labels.items() if name != "engine"} if info else {}
    found = {name: _value(samples.get(names.prefix + name, []), max) for name in names.cache_gauges}
    return {name: str(round(value)) for name, value in found.items() if value is not None}


def _gain(before: int | None, after: int | None) -> int | None:
    return None if after is None else after - (before or 0)
