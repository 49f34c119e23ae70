"""Memory networks: a question reads a memory by softmax, adds what it has read to itself, and reads again.

    u ← u + m(u),    m(u) = Σ_i p_i c_i,    p_i = softmax_i ⟨u, k_i⟩

Each hop is the local mean of values c_i on keys k_i at the query u, and u ← u + m(u) an explicit layer of size 1 of the
drift `Attend(Attention(), data=memory)`: cross attention of a question to a story. Sentence i is a bag of words,
k_i = Σ_w A_w and c_i = Σ_w C_w over its words, the question u = Σ_w B_w, and the answer softmax over words ⟨W_w, u⟩.
What no sentence says alone takes as many hops as sentences. Source: Sukhbaatar, Szlam, Weston and Fergus, End-to-end
memory networks (2015), with one memory for all hops (their layer-wise tying), without the order of sentences.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow.dynamics.drifts import Attend
from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.kernels import Attention
from particleflow.measure import Measure
from particleflow.summation import Dense
from particleflow.summation.local_mean import attention_weights, local_mean


class MemoryNetwork(eqx.Module):
    """u ← u + m(u), `hops` times, over the sentences of a story; then a softmax over all words.

    Bags of words are rows of counts: a story (sentences, words), a question (words,).

    Parameters: the tables `query` B, `key` A, `value` C and `answer` W, each (words, d); the number of `hops`.
    """

    query: Float[Array, "w d"]
    key: Float[Array, "w d"]
    value: Float[Array, "w d"]
    answer: Float[Array, "w d"]
    hops: int = eqx.field(static=True)

    def __init__(self, query: Any, key: Any, value: Any, answer: Any, hops: int = 2):
        self.query, self.key = as_float_array(query, "query"), as_float_array(key, "key")
        self.value, self.answer = as_float_array(value, "value"), as_float_array(answer, "answer")
        self.hops = whole_number(hops, "hops")

    def __check_init__(self):
        shapes = {each.shape for each in (self.query, self.key, self.value, self.answer)}
        if len(shapes) > 1 or self.query.ndim != 2:
            raise ShapeError(f"The four tables must be matrices (words, d) of one shape, but have {sorted(shapes)}.")

    @staticmethod
    def random(key: Array, words: int, width: int, hops: int = 2, scale: float = 0.3) -> "MemoryNetwork":
        """Independent normal tables of standard deviation `scale`: small, so that every sentence is read at first."""
        query, keys, values, answers = scale * jax.random.normal(key, (4, words, width))
        return MemoryNetwork(query, keys, values, answers, hops)

    def memory(self, story: Float[Array, "s w"]) -> Measure:
        """The sentences as a measure: keys k_i as points, c_i as values, weights 1."""
        return Measure(story @ self.key, jnp.zeros(story.shape[0], self.key.dtype), story @ self.value)

    def reading(self, story: Float[Array, "s w"]) -> Attend:
        """The drift of which an explicit layer of size 1 is one hop, u ← u + m(u)."""
        return Attend(Attention(), data=self.memory(story), summation=Dense())

    def states(self, story: Float[Array, "s w"], question: Float[Array, " w"]) -> Float[Array, "hops+1 d"]:
        """The query u before the first hop and after every hop."""
        memory, found = self.memory(story), [question @ self.query]
        for _ in range(self.hops):
            found.append(found[-1] + local_mean(Attention(), memory, found[-1], summation=Dense()))
        return jnp.stack(found)

    def attention(self, story: Float[Array, "s w"], question: Float[Array, " w"]) -> Float[Array, "hops s"]:
        """The share p_i of every sentence in every hop."""
        return attention_weights(Attention(), self.memory(story), self.states(story, question)[:-1])

    def log_answers(self, story: Float[Array, "s w"], question: Float[Array, " w"]) -> Float[Array, " w"]:
        """The logarithm of the probability of every word as the answer."""
        return jax.nn.log_softmax(self.answer @ self.states(story, question)[-1])


class Answers(eqx.Module):
    """−mean log p(answer): the cross-entropy of the answers to questions about stories, a loss for `learn`.

    Parameters: `stories` (n, sentences, words) and `questions` (n, words), bags of words; `answers` (n,), numbers of
    words.
    """

    stories: Float[Array, "n s w"]
    questions: Float[Array, "n w"]
    answers: Array

    def __init__(self, stories: Any, questions: Any, answers: Any):
        self.stories, self.questions = as_float_array(stories, "stories"), as_float_array(questions, "questions")
        self.answers = jnp.asarray(answers)
        shapes = self.stories.shape, self.questions.shape
        if len(shapes[0]) != 3 or shapes[1] != (shapes[0][0], shapes[0][2]) or self.answers.shape != shapes[0][:1]:
            raise ShapeError(
                "Arguments `stories`, `questions` and `answers` must have shapes (n, sentences, words), (n, words) and "
                f"(n,), but have {shapes[0]}, {shapes[1]} and {self.answers.shape}."
            )
        if not np.issubdtype(self.answers.dtype, np.integer):
            raise ArgumentError("Argument `answers` must hold whole numbers of words.")

    def log_answers(self, network: MemoryNetwork) -> Float[Array, "n w"]:
        """The logarithm of the probability of every word, for every question."""
        return jax.vmap(network.log_answers)(self.stories, self.questions)

    def accuracy(self, network: MemoryNetwork) -> Float[Array, ""]:
        """The share of questions whose most probable answer is right."""
        return jnp.mean((jnp.argmax(self.log_answers(network), axis=1) == self.answers).astype(self.stories.dtype))

    def __call__(self, network: MemoryNetwork) -> Float[Array, ""]:
        """The mean of −log p(answer)."""
        return -jnp.mean(jnp.take_along_axis(self.log_answers(network), self.answers[:, None], axis=1))
