"""Models: the shapes of their matrices, from which parameters, operations and bytes follow."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight matrix of `inputs` x `outputs` that the tokens of a step go through in some layers."""

    inputs: int
    outputs: int
    layers: int
    split: Literal["outputs", "inputs", "nothing"]
    """Which side tensor parallelism divides."""
    experts: int = 1
    """Copies with their own weights, of which each token visits `visits`."""
    visits: int = 1

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs * self.layers * self.experts

    def part(self, tensor_parallel: int) -> tuple[float, float]:
        """(inputs, outputs) on one of `tensor_parallel` devices."""
        inputs = self.inputs / tensor_parallel if self.split == "inputs" else float(self.inputs)
        outputs = self.outputs / tensor_parallel if self.split == "outputs" else float(self.outputs)
        return inputs, outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the cache holds one vector of
    `kv_rank + rope_dim` numbers per token and layer, whatever the number of heads."""

    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_rank: int
    """0: queries are not compressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts in place of the feed-forward part of some layers."""

    layers: int
    count: int
    per_token: int
    width: int
    shared_width: int
    """Of what every token visits besides; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder-only transformer. Biases and norms are left out: under 0.1 % of it."""

    name: str
    source: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    """Of the feed-forward part of the layers without experts."""
    gated: bool
    """Whether the feed-forward part has a gate matrix beside the other two."""
    parallel: bool = False
    """Whether attention and feed-forward part of a layer read the same input and share an all-reduce."""
    vocabulary: int
    tied: bool
    """Whether input and output share their embeddings."""
    positions: int = 0
    """Learned position embeddings."""
    max_model_len: int
    latent: Latent | None = None
    experts: Experts | None = None
    sliding_window: int | None = None
    """Layers see only so many tokens back; the step cost does not know of it and overrates contexts
    that are longer."""
    native_dtype: str = "bf16"

    def linears(self) -> Iterator[Linear]:
        """The weight matrices of the layers, one for each product of a step."""
        yield from self._latent_attention(self.latent) if self.latent else self._attention()
        moe = self.experts
        if dense := self.layers - (moe.layers if moe else 0):
            yield from self._feed_forward(self.width, dense)
        if moe:
            yield Linear(self.hidden, moe.count, moe.layers, "nothing")
            yield from self._feed_forward(moe.width, moe.layers, moe.count, moe.per_token)
            if moe.shared_width:
                yield from self._feed_forward(moe.shared_width, moe.layers)

    def _attention(self) -> Iterator[Linear]:
        yield Linear(self.hidden, (self.heads + 2 * self.kv_heads) * self.head_dim, self.layers, "outputs")
        yield Linear(self.heads * self.head_dim, self.hidden, self.layers, "inputs")

    def _latent_attention(self, latent: Latent) -> Iterator[Linear]:
        queries = self.heads * (latent.nope_dim + latent.rope_dim)
        if latent.query_rank:
            yield Linear(self.hidden, latent.query_rank, self.layers, "nothing")
        yield Linear(latent.query_rank or self.hidden, queries, self.layers, "outputs")
        yield Linear(self.hidden, latent.kv_rank + latent.rope_dim, self.layers, "nothing")
        expanded = self.heads * (latent.nope_dim + latent.value_dim)
        yield Linear(latent.kv_rank, expanded, self.layers, "outputs")
        yield Linear(self.heads * latent.value_dim, self.hidden, self.layers, "inputs")

    def _feed_forward(self, width: int, layers: int, experts: int = 1, visits: int = 1) -> Iterator[Linear]:
        up = 2 * width if self.gated else width
        yield Linear(self.hidden, up, layers, "outputs", experts, visits)
        yield Linear(width, self.hidden, layers, "inputs", experts, visits)

    @property
    def embedding_parameters(self) -> int:
        """Numbers of one embedding matrix over the vocabulary; the output's is read in every step."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        embeddings = self.embedding_parameters * (1 if self.tied else 2) + self.positions * self.hidden
        return sum(linear.parameters for linear in self.linears()) + embeddings

    @property
    def active_parameters(self) -> int:
        """That one token meets, embeddings included."""
        idle = sum(linear.parameters * (linear.experts - linear.visits) // linear.experts
                   for linear in self.linears())
        return self.parameters - idle

    def prefill_flops(self, tokens: int) -> float:
        """Operations of the weights on a prompt: two for each parameter and token."""
        return 2.0 * self.active_parameters * tokens

    def weight_bytes(self, bytes_each: float = 2.0) -> float:
        """Of all weights, with embeddings and output in 16 bits at least."""
        matrices = sum(linear.parameters for linear in self.linears())
        return matrices * bytes_each + (self.parameters - matrices) * max(bytes_each, 2.0)

    def kv_bytes_per_token(self, bytes_each: float = 2.0) -> float:
        """Of the cache, all layers, all heads."""
        if self.latent:
            return self.layers * (self.latent.kv_rank + self.latent.rope_dim) * bytes_each
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_each

    def pair_flops(self) -> float:
        """Operations of a query with a key that it sees, all layers, all heads: a product for the
        score and one for the value."""
        if self.latent:
            return 2.0 * self.layers * self.heads * (self.latent.nope_dim + self.latent.rope_dim
                                                     + self.latent.value_dim)
        return 4.0 * self.layers * self.heads * self.head_dim
