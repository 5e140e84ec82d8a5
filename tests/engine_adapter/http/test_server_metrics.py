"""What is read from the metrics pages of servers, and what happened between two looks."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.http.server_metrics import ServerMetrics, delta, fetch_metrics, scrape

VLLM = (Path(__file__).parents[2] / "data" / "metrics" / "vllm-0.32.txt").read_text()
SGLANG = """
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="0"} 3.0
sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="1"} 3.0
sglang:num_running_reqs{dp_rank="1",model_name="m",tp_rank="0"} 4.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m",priority=""} 2.0
sglang:num_queue_reqs{model_name="m",priority="5"} 2.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m"} 0.25
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{model_name="m"} 1.0
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 100.0
sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 20.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{is_streaming="true",model_name="m"} 7.0
# TYPE sglang:page_size gauge
sglang:page_size{model_name="m"} 16.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{model_name="m"} 1234567.0
"""
LLAMA_CPP = """
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 512
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 80
# TYPE llamacpp:predicted_tokens_seconds gauge
llamacpp:predicted_tokens_seconds nan
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 4
"""
TENSORRT_LLM = """
# TYPE trtllm_request_success_total counter
trtllm_request_success_total{finished_reason="length",model_name="m"} 5.0
# TYPE trtllm_prompt_tokens_total counter
trtllm_prompt_tokens_total{model_name="m"} 50.0
# TYPE trtllm_prompt_cached_tokens_total counter
trtllm_prompt_cached_tokens_total{model_name="m"} 10.0
# TYPE trtllm_kv_cache_utilization gauge
trtllm_kv_cache_utilization{model_name="m"} 0.5
"""


def test_two_engines_of_vllm_are_added_up():
    """Counts are summed over data-parallel engines; of their KV use the highest stands."""
    found = scrape(VLLM)
    assert (found.engine, found.running, found.waiting, found.kv_cache_usage) == ("vllm", 5, 1, 0.5)
    assert (found.preemptions, found.prompt_tokens, found.generation_tokens) == (1, 200, 100)
    assert (found.prefix_queries, found.prefix_hits) == (200, 60)
    assert found.finished == {"stop": 0, "length": 0, "abort": 0, "error": 0, "repetition": 0}
    assert (found.cache_config["block_size"], found.cache_config["enable_prefix_caching"]) == ("128", "True")


def test_hits_in_a_cache_shared_by_servers_count_too():
    """vLLM counts what a KV connector supplied apart from its own cache."""
    page = VLLM.replace('vllm:external_prefix_cache_hits_total{engine="0",model_name="tiny"} 0.0',
                        'vllm:external_prefix_cache_hits_total{engine="0",model_name="tiny"} 40.0')
    assert scrape(page).prefix_hits == 100


def test_sglang_repeats_figures_that_are_not_added_up():
    """Tensor-parallel ranks and priorities show the same requests again; hits appear with the first hit."""
    found = scrape(SGLANG)
    assert (found.engine, found.running, found.waiting, found.kv_cache_usage) == ("sglang", 7, 2, 0.25)
    assert (found.preemptions, found.prompt_tokens) == (1, 120)
    assert (found.prefix_queries, found.prefix_hits) == (120, 0)
    assert found.finished == {"all": 7}
    assert found.cache_config == {"page_size": "16", "max_total_num_tokens": "1234567"}


def test_what_a_server_does_not_show_is_none():
    """llama.cpp and TensorRT-LLM show less; nothing is 0 because it is missing."""
    llama = scrape(LLAMA_CPP)
    assert llama == ServerMetrics(
        "llama.cpp", running=1, waiting=4, prompt_tokens=512, generation_tokens=80)
    tensorrt = scrape(TENSORRT_LLM)
    assert (tensorrt.prefix_queries, tensorrt.prefix_hits, tensorrt.finished) == (50, 10, {"length": 5})
    assert (tensorrt.running, tensorrt.preemptions) == (None, None)


@pytest.mark.parametrize("page", [
    "", "[]", '[{"iter": 1}]', "<html></html>", "process_cpu_seconds_total 1\n", 'vllm:x{a="b} 1', "vllm:x",
    "vllm:num_requests_running NaN\n",
])
def test_other_pages_hold_no_figures(page):
    """JSON, HTML, cut lines and NaN are no figures, and no error."""
    assert replace(scrape(page), engine="") == ServerMetrics()


@given(st.text(max_size=200) | st.text(alphabet='vllm:{}="# 1.eE\n', max_size=60).map("vllm:x 1\n".__add__))
def test_any_text_can_be_read(page):
    """A page of whatever kind never raises."""
    scrape(page)


def test_a_look_is_json():
    """Looks and what lies between them go into run.json."""
    look = scrape(VLLM)
    assert json.loads(json.dumps(look.as_dict()))["prefix_hits"] == 60
    assert json.loads(json.dumps(delta(look, look).as_dict()))["finished_requests"] == 0


def test_counters_are_subtracted():
    """A counter that only the second look shows began at 0."""
    before = ServerMetrics(
        "vllm", prompt_tokens=100, prefix_queries=100, prefix_hits=40, finished={"stop": 3})
    after = ServerMetrics("vllm", prompt_tokens=150, preemptions=2, prefix_queries=150, prefix_hits=50,
                          finished={"stop": 3, "length": 4})
    gained = delta(before, after)
    assert (gained.prompt_tokens, gained.preemptions, gained.generation_tokens) == (50, 2, None)
    assert (gained.finished_requests, gained.prefix_hit_rate, gained.restarted) == (4, 0.2, False)


@pytest.mark.parametrize(("before", "after"), [
    (ServerMetrics("vllm", prompt_tokens=100), ServerMetrics("vllm", prompt_tokens=99)),
    (ServerMetrics("vllm", finished={"stop": 3}), ServerMetrics("vllm", finished={"stop": 1, "length": 9})),
    (ServerMetrics("vllm", prompt_tokens=1), ServerMetrics("sglang", prompt_tokens=5)),
    (ServerMetrics("vllm", prompt_tokens=1, counting_since=10.5),
     ServerMetrics("vllm", prompt_tokens=5, counting_since=20.5)),
])
def test_a_restarted_server_is_noticed(before, after):
    """Counters that fell or began anew say nothing about what happened in between."""
    gained = delta(before, after)
    assert gained.restarted
    assert (gained.prompt_tokens, gained.finished) == (None, None)


def _fetch(pages, base="/v1", **options):
    """What fetch_metrics finds on a server with these pages, and the headers that reached it."""
    async def look():
        seen = []

        async def answer(request):
            seen.append((request.path, request.headers.get("Authorization")))
            status, text = pages.get(request.path, (404, "not here"))
            return web.Response(status=status, text=text, headers={"Location": "/metrics2"})

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            return await fetch_metrics(f"http://127.0.0.1:{port}{base}", **options), seen
        finally:
            await runner.cleanup()

    return asyncio.run(look())


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
def test_metrics_lie_beside_v1(base):
    """The page is asked for at the root, with the headers of the target."""
    found, seen = _fetch({"/metrics": (200, VLLM)}, base, headers={"Authorization": "Bearer k"})
    assert found == scrape(VLLM)
    assert seen == [("/metrics", "Bearer k")]


def test_behind_a_path_metrics_lie_there_too():
    """A proxy's path stays in front."""
    assert _fetch({"/my/model/metrics": (200, VLLM)}, "/my/model/v1")[0] == scrape(VLLM)


def test_tensorrt_shows_json_at_metrics():
    """Its Prometheus page lies below /prometheus."""
    found, _ = _fetch({"/metrics": (200, "[]"), "/prometheus/metrics": (200, TENSORRT_LLM)})
    assert found == scrape(TENSORRT_LLM)


@pytest.mark.parametrize("pages", [
    {}, {"/metrics": (500, VLLM)}, {"/metrics": (401, "")}, {"/metrics": (200, "<html>")},
    {"/metrics": (302, ""), "/metrics2": (200, VLLM)}, {"/metrics": (200, "#" * (17 << 20))},
])
def test_without_a_known_page_there_is_none(pages):
    """Missing, refused, moved, foreign and endless pages are no look at the server."""
    assert _fetch(pages)[0] is None


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://[", "nonsense"])
def test_an_unreachable_server_has_no_metrics(url):
    """Nobody listens, or it is no address: None, no error."""
    assert asyncio.run(fetch_metrics(url, timeout_s=0.5)) is None
