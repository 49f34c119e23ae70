"""Learned kernels and flows: a loss, the parameters that may change, and optax.

    parameters        which numbers of a kernel or flow are learned, each by a dotted path
    losses            leave-one-out, reconstruction, likelihood, evidence, contrast: functions of a kernel
    contrastive_divergence   restricted Boltzmann machines, by likelihood or by Gibbs sampling
    word_vectors      skip-grams and negative sampling: kernels of words, learned from counts
    memory_network    questions that read a story in several hops
    neighbour_shares  the share of every sample's own class among its neighbours
    descent           `learn`: minimise a loss, with progress and early stopping
    trajectory_fit    `fit`: a flow whose trajectory matches an observed one

and networks, by random batches of a task:

    task                       what a task is: samples, and the scores of a model on them
    sequence_classification    the class of the first marked token, or the parity of marked tokens
    text_tasks                 the next token of a text (GPT), masked tokens (BERT)
    token_counts               unigrams and bigrams of the same text, to compare with
    training                   `train`: minibatches, validation, early stopping
    training_checkpoints       training that was killed goes on to the same bits

Every loss of a kernel but the evidence reads the local mean or the log-mass of a kernel and nothing else. The result is
an ordinary kernel, flow or network; `save_scenario` writes a flow as a scenario file.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

if find_spec("optax") is None:
    raise ImportError("particleflow.learning needs optax: pip install 'particleflow[learn]'.")

from particleflow.learning.contrastive_divergence import PatternLikelihood, contrast_patterns
from particleflow.learning.descent import Learned, learn
from particleflow.learning.losses import (
    Contrast,
    Evidence,
    LeaveOneOut,
    LeaveOneOutLikelihood,
    Observed,
    Reconstruction,
)
from particleflow.learning.memory_network import Answers, MemoryNetwork
from particleflow.learning.neighbour_shares import NeighbourShares
from particleflow.learning.parameters import learnable
from particleflow.learning.sequence_classification import SequenceClassification
from particleflow.learning.task import AbstractTask, Scores, evaluate
from particleflow.learning.text_tasks import MaskedToken, NextToken
from particleflow.learning.training import Trained, train
from particleflow.learning.trajectory_fit import TrajectoryError, fit
from particleflow.learning.word_vectors import NegativeSampling, SkipGram, cooccurrences

__all__ = [
    "AbstractTask",
    "Answers",
    "Contrast",
    "Evidence",
    "Learned",
    "LeaveOneOut",
    "LeaveOneOutLikelihood",
    "MaskedToken",
    "MemoryNetwork",
    "NegativeSampling",
    "NeighbourShares",
    "NextToken",
    "Observed",
    "PatternLikelihood",
    "Reconstruction",
    "Scores",
    "SequenceClassification",
    "SkipGram",
    "Trained",
    "TrajectoryError",
    "contrast_patterns",
    "cooccurrences",
    "evaluate",
    "fit",
    "learn",
    "learnable",
    "save_scenario",
    "train",
]


def save_scenario(flow: Any, path: str | Path, **options: Any) -> Path:
    """Write a learned flow as a scenario for `particleflow run`, and return its path.

    The same as `particleflow.scenario.save_scenario`, with its parameters: `flow`, `path`, `start`, `end`, ….
    """
    import particleflow

    return particleflow.scenario.save_scenario(flow, path, **options)


def __dir__() -> list[str]:
    return __all__
