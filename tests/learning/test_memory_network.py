"""Memory networks in NumPy, as explicit layers of cross attention, and on questions that take two sentences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import particleflow as pf
from particleflow.errors import ShapeError
from particleflow.learning import Answers, MemoryNetwork, learn
from stories import WORDS, tell

TABLES = ["query", "key", "value", "answer"]


@pytest.mark.slow
def test_hops_by_hand_and_as_layers():
    network = MemoryNetwork.random(jax.random.key(0), len(WORDS), 4, hops=3)
    query, key, value, answer = (np.asarray(getattr(network, name)) for name in TABLES)
    _, stories, questions, answers = tell(0, 3)
    loss = Answers(stories, questions, answers)
    logs, u, shares = [], np.zeros(4), []
    for story, question in zip(stories, questions, strict=True):
        u, shares = question @ query, []
        for _ in range(3):
            shares.append(softmax(story @ key @ u))
            u = u + shares[-1] @ (story @ value)
        logs.append(log_softmax(answer @ u))
    np.testing.assert_allclose(eqx.filter_jit(loss.log_answers)(network), logs, atol=1e-13)
    found = network.attention(jnp.asarray(stories[2]), jnp.asarray(questions[2]))
    np.testing.assert_allclose(found, shares, atol=1e-13)
    assert abs(float(loss(network)) + np.mean([log[a] for log, a in zip(logs, answers, strict=True)])) < 1e-13
    flow = pf.Flow(network.reading(jnp.asarray(stories[2])))
    run = pf.simulate(flow, (questions[2] @ query)[None], [0.0, 1.0, 2.0, 3.0], solver="map", step=1.0)
    np.testing.assert_allclose(run.points[-1, 0], u, atol=1e-12)
    np.testing.assert_allclose(run.points[:, 0], network.states(stories[2], questions[2]), atol=1e-12)
    with pytest.raises(ShapeError, match="questions"):
        Answers(stories, questions[:2], answers)


def contents(story: np.ndarray, question: np.ndarray) -> bytes:
    """A story and its question, whatever the order of the sentences."""
    return np.concatenate([story[np.lexsort(story.T)].ravel(), question]).tobytes()


@pytest.mark.slow
def test_two_hops_answer_what_one_cannot():
    """Where a thing is: who has it is one sentence, where they are another. Tested on stories that were never told.

    Measured: all answers are right with two hops, 6 in 10 with one, which knows the places but not which of them.
    """
    _, stories, questions, answers = tell(1, 1000)
    first = {contents(*each) for each in zip(stories[:300], questions[:300], strict=True)}
    new = [i for i in range(300, 1000) if contents(stories[i], questions[i]) not in first]
    assert len(new) > 200
    told = Answers(stories[:300], questions[:300], answers[:300])
    held = Answers(stories[new], questions[new], answers[new])
    right = {}
    for hops in (1, 2):
        start = MemoryNetwork.random(jax.random.key(0), len(WORDS), 16, hops)
        learned = learn(start, told, TABLES, steps=150, patience=30)
        right[hops] = float(held.accuracy(learned.model))
    assert right[2] > 0.99
    assert right[1] < 0.8
