"""How many tokens were asked for, how many came, and who counted them, in words."""

from bench import Run
from reports.quantities import change, share, show
from reports.tolerant import integer, mapping, text

COUNTED = "Tokens counted by"
COUNTED_BY = {
    "engine": "the engine: the token ids it handed over",
    "token_ids": "the token ids in the server's messages",
    "usage": "the server's own count; from a server that counts only at the end, the spread over the "
             "messages is a guess",
    "tokenizer": "this client's tokenizer on the text: each token in the message that ended it",
    "events": "one for each message: too few where a message holds several",
}
"""Sources of a token count, the most exact first."""


def token_facts(run: Run) -> dict[str, str]:
    """Names and values in reading order; lengths are sums over the successful requests."""
    ok, counted = run.ok, run.ok & (run.prompt_tokens >= 0)
    facts = {}
    if counted.any():
        facts["Prompt tokens"] = _asked_and_got(
            int(run.input_len[counted].sum()), int(run.prompt_tokens[counted].sum()), "counted by the server")
    elif ok.any():
        facts["Prompt tokens"] = f"{show(float(run.input_len[ok].sum()))} planned"
    if ok.any():
        facts["Answer tokens"] = _asked_and_got(
            int(run.output_len[ok].sum()), int(run.num_tokens[ok].sum()), "came")
    if hits := integer((cache := mapping(run.meta.get("prefix_cache"))).get("hits")):
        facts["Found in the prefix cache"] = found_words(hits, integer(cache.get("queries")))
    if form := text(mapping(mapping(run.meta.get("engine")).get("fingerprint")).get("prompts")):
        facts["Prompts sent as"] = form
    source = text(run.meta.get("token_count_source"))
    if source and run.num_tokens.any():
        facts[COUNTED] = COUNTED_BY.get(source, source) + _mixture(run)
    return facts


def found_words(hits: int, queries: int | None) -> str:
    """Prompt tokens found in a prefix cache, of those that were looked up."""
    return show(float(hits)) + (
        f" of {show(float(queries))} prompt tokens ({share(hits / queries)})" if queries else "")


def _asked_and_got(asked: int, got: int, verb: str) -> str:
    difference = f" ({change(asked, got)})" if asked and got != asked else ""
    return f"{show(float(asked))} planned, {show(float(got))} {verb}{difference}"


def _mixture(run: Run) -> str:
    sources = mapping(run.meta.get("token_count_sources"))
    counts = [f"{count} by {text(name)}" for name, value in sources.items() if (count := integer(value))]
    return f" (answers: {', '.join(counts)})" if len(counts) > 1 else ""
