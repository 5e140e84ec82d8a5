"""KV blocks, compiled: vLLM 0.32's BlockPool and FullAttentionManager for one group of layers.

Without prefix caching only the number of free blocks matters, so blocks are counted. With it, the
order of the free list decides which cached block is evicted, so it is kept exactly: a doubly linked
list; freed blocks with a content go to its end, last block of the request first, and those without go
to its front.
"""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

from engine_adapter.simulator.kernel_state import (
    BLOCK_SIZE,
    CACHE_NEXT,
    CACHING,
    COMPUTED,
    CONTENT,
    DROP_LAST_HIT,
    FREE_BLOCKS,
    HIT,
    HOLDERS,
    HOLDS,
    KNOWN,
    LOOKAHEAD,
    MAX_MODEL_LEN,
    NEVER,
    NEXT,
    NEXT_SAME,
    NUM_BLOCKS,
    NUM_RUNNING,
    PREVIOUS,
    PREVIOUS_SAME,
    RESERVE_FULL,
    ROOM,
    TABLE,
    WATERMARK,
    Int32,
    State,
    inner,
)


@inner
def reset_blocks(state: State) -> None:
    """All blocks but the null block free, in order of their numbers, and empty."""
    scalars, blocks = state.scalars, state.blocks
    scalars[FREE_BLOCKS] = scalars[NUM_BLOCKS] - 1
    if not scalars[CACHING]:
        return
    end = scalars[NUM_BLOCKS]
    for block in range(1, end + 1):
        blocks[block, NEXT] = block + 1
        blocks[block, PREVIOUS] = block - 1
        blocks[block, HOLDERS] = 0
        blocks[block, HOLDS] = -1
    blocks[1, PREVIOUS] = end
    blocks[end, NEXT] = 1


@inner
def cached_prefix(state: State, row: int) -> int:
    """Number of leading blocks of `row` that it finds cached. Its last token is always computed again,
    and for an EAGLE drafter the last block that is found."""
    scalars, fields = state.scalars, state.rows[row]
    if not scalars[CACHING]:
        return 0
    most = (fields[KNOWN] - 1) // scalars[BLOCK_SIZE]
    found = 0
    while found < most and state.cached[state.contents[fields[CONTENT] + found], 0] >= 0:
        found += 1
    return max(found - scalars[DROP_LAST_HIT], 0)


@inner
def admit(state: State, row: int, hits: int, new: int) -> bool:
    """Give a waiting `row` its first `hits` cached blocks, and blocks for `new` tokens after them; False,
    and nothing done, where these, or its whole prompt, would not leave the watermark free."""
    scalars, fields = state.scalars, state.rows[row]
    size, limit = scalars[BLOCK_SIZE], scalars[MAX_MODEL_LEN]
    taken = 0
    for place in range(hits):
        if state.blocks[state.cached[state.contents[fields[CONTENT] + place], 0], HOLDERS] == 0:
            taken += 1
    free = scalars[FREE_BLOCKS] - taken
    if scalars[NUM_RUNNING] > 0:
        free -= scalars[WATERMARK]
    if scalars[RESERVE_FULL] and max(-(-min(fields[KNOWN], limit) // size) - hits, 0) > free:
        return False
    needed = max(-(-min(hits * size + new + scalars[LOOKAHEAD], limit) // size) - hits, 0)
    if needed > free:
        return False
    fields[ROOM] = 0
    fields[CACHE_NEXT] = (hits + 1) * size if scalars[CACHING] else NEVER
    for place in range(hits):
        _hold(state, row, state.cached[state.contents[fields[CONTENT] + place], 0])
    fields[COMPUTED] = hits * size
    scalars[HIT] += hits * size
    _take(state, row, needed)
    cache_full_blocks(state, row, min(hits * size + new, fields[KNOWN]))
    return True


@inner
def grow(state: State, row: int, new: int) -> bool:
    """Give a running `row` blocks for `new` more tokens; False, and nothing done, where there are none."""
    scalars, fields = state.scalars, state.rows[row]
    tokens = min(fields[COMPUTED] + new + scalars[LOOKAHEAD], scalars[MAX_MODEL_LEN])
    if tokens > fields[ROOM]:
        needed = -(-(tokens - fields[ROOM]) // scalars[BLOCK_SIZE])
        if needed > scalars[FREE_BLOCKS]:
            return False
        _take(state, row, needed)
    cache_full_blocks(state, row, min(fields[COMPUTED] + new, fields[KNOWN]))
    return True


@inner
def reserve(state: State, row: int, tokens: int) -> bool:
    """Give a waiting `row` blocks for `tokens` tokens, as the rules other than vllm-v1 do; False, and
    nothing done, where these would not leave the watermark free."""
    scalars = state.scalars
    needed = -(-tokens // scalars[BLOCK_SIZE])
    kept = scalars[WATERMARK] if scalars[NUM_RUNNING] > 0 else 0
    if needed + kept > scalars[FREE_BLOCKS]:
        return False
    state.rows[row, ROOM] = 0
    state.rows[row, COMPUTED] = 0
    state.rows[row, CACHE_NEXT] = NEVER
    _take(state, row, needed)
    return True


@inner
def cache_full_blocks(state: State, row: int, tokens: int) -> None:
    """Cache those blocks of `row` that its first `tokens` tokens fill."""
    fields = state.rows[row]
    size = state.scalars[BLOCK_SIZE]
    while fields[CACHE_NEXT] <= tokens:
        place = fields[CACHE_NEXT] // size - 1
        block = state.tables[fields[TABLE] + place]
        content = state.contents[fields[CONTENT] + place]
        last = state.cached[content, 1]
        state.blocks[block, HOLDS] = content
        state.blocks[block, NEXT_SAME] = -1
        state.blocks[block, PREVIOUS_SAME] = last
        if last < 0:
            state.cached[content, 0] = block
        else:
            state.blocks[last, NEXT_SAME] = block
        state.cached[content, 1] = block
        fields[CACHE_NEXT] += size


@inner
def release(state: State, row: int) -> None:
    """Take all blocks from `row`."""
    scalars, fields, blocks = state.scalars, state.rows[row], state.blocks
    held = fields[ROOM] // scalars[BLOCK_SIZE]
    fields[ROOM] = 0
    if not scalars[CACHING]:
        scalars[FREE_BLOCKS] += held
        return
    end = scalars[NUM_BLOCKS]
    front = end
    for place in range(held - 1, -1, -1):
        block = state.tables[fields[TABLE] + place]
        blocks[block, HOLDERS] -= 1
        if blocks[block, HOLDERS] > 0:
            continue
        scalars[FREE_BLOCKS] += 1
        if blocks[block, HOLDS] >= 0:
            _link(blocks, block, blocks[end, PREVIOUS])
        else:
            _link(blocks, block, front)
            front = block


@inner
def _take(state: State, row: int, count: int) -> None:
    """Hand the first `count` blocks of the free list to `row`; what they held is forgotten."""
    scalars, fields = state.scalars, state.rows[row]
    if not scalars[CACHING]:
        scalars[FREE_BLOCKS] -= count
        fields[ROOM] += count * scalars[BLOCK_SIZE]
        return
    for _ in range(count):
        block = state.blocks[scalars[NUM_BLOCKS], NEXT]
        if state.blocks[block, HOLDS] >= 0:
            _forget(state, block)
        _hold(state, row, block)


@inner
def _hold(state: State, row: int, block: int) -> None:
    """Append `block` to the blocks of `row`."""
    scalars, fields, blocks = state.scalars, state.rows[row], state.blocks
    if blocks[block, HOLDERS] == 0:
        blocks[blocks[block, PREVIOUS], NEXT] = blocks[block, NEXT]
        blocks[blocks[block, NEXT], PREVIOUS] = blocks[block, PREVIOUS]
        scalars[FREE_BLOCKS] -= 1
    blocks[block, HOLDERS] += 1
    state.tables[fields[TABLE] + fields[ROOM] // scalars[BLOCK_SIZE]] = block
    fields[ROOM] += scalars[BLOCK_SIZE]


@inner
def _forget(state: State, block: int) -> None:
    """Take `block` off the list of the blocks that hold its content."""
    blocks, content = state.blocks, state.blocks[block, HOLDS]
    before, after = blocks[block, PREVIOUS_SAME], blocks[block, NEXT_SAME]
    if before < 0:
        state.cached[content, 0] = after
    else:
        blocks[before, NEXT_SAME] = after
    if after < 0:
        state.cached[content, 1] = before
    else:
        blocks[after, PREVIOUS_SAME] = before
    blocks[block, HOLDS] = -1


@inner
def _link(blocks: Int32, block: int, before: int) -> None:
    """Put `block` into the free list behind `before`."""
    after = blocks[before, NEXT]
    blocks[block, PREVIOUS] = before
    blocks[block, NEXT] = after
    blocks[before, NEXT] = block
    blocks[after, PREVIOUS] = block
