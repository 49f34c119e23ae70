"""Checkpoints of training: all numbers that a step changes, and what the training is, so that nothing else goes on.

They are written as those of a run are: npz archives without pickled objects, complete or absent, with a SHA-256 inside,
of which the newest two are kept (`trajectory.store`).
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from particleflow._support.files import make_folder, refuse_link
from particleflow.errors import ArgumentError, ResumedElsewhere
from particleflow.simulation.recording.fingerprint import code_hashes_of, differences, hashes_of
from particleflow.simulation.recording.provenance import SURROUNDINGS, changed_surroundings, surroundings
from particleflow.trajectory.store import Checkpoint, load_checkpoint, save_checkpoint

# Raised whenever training that goes on from an older checkpoint would not repeat the undisturbed one.
TRAINING_FORMAT = 1
_FREE, _BEST, _STATE = "free.", "best.", "state."
_HISTORY = ("losses", "validated", "validation", "accuracy")


@dataclass
class Progress:
    """All numbers that training changes.

    Parameters: the `free` numbers and the `state` of the optimizer; the `best` free numbers so far, or those before the
    last step where nothing is held back; the `losses` of all steps; the steps `validated`, with `validation` losses and
    `accuracy`.
    """

    free: tuple[Array, ...]
    state: Any
    best: tuple[Array, ...]
    losses: list[float] = field(default_factory=list)
    validated: list[int] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    @property
    def step(self) -> int:
        """The number of steps that were taken."""
        return len(self.losses)

    @property
    def since(self) -> int:
        """The number of validations since the best one."""
        return len(self.validation) - 1 - int(np.argmin(self.validation)) if self.validation else 0


class Checkpoints:
    """The checkpoints of one training in a folder of their own.

    Parameters: the `folder`, made if it is missing; the `arguments` of the training by name, every one of which affects
    its numbers.
    """

    def __init__(self, folder: str | Path, arguments: Mapping[str, Any]):
        self.folder = Path(folder)
        refuse_link(self.folder)
        make_folder(self.folder)
        (device,) = next(iter(jax.tree_util.tree_leaves(arguments["model"]))).devices()
        self._identity: dict[str, Any] = {
            "training format": TRAINING_FORMAT,
            "fingerprint": hashes_of(arguments),
            "code": code_hashes_of(arguments),
            **surroundings(device, ("optax",)),
        }

    def save(self, now: Progress) -> None:
        """Write a checkpoint; when this returns it is on the disk."""
        arrays: dict[str, Any] = {name: np.asarray(getattr(now, name)) for name in _HISTORY}
        for prefix, tree in ((_FREE, now.free), (_BEST, now.best), (_STATE, now.state)):
            arrays |= {f"{prefix}{place}": leaf for place, leaf in enumerate(jax.tree_util.tree_leaves(tree))}
        save_checkpoint(self.folder, arrays, {"step": now.step, **self._identity})

    def latest(self, start: Progress) -> Progress:
        """The progress at the newest checkpoint that is whole, or the start where there is none."""
        if not any(self.folder.glob("checkpoint-*.npz")):
            return start
        found = load_checkpoint(self.folder)
        self._check_same(found)

        def tree(prefix: str, like: Any) -> Any:
            leaves, structure = jax.tree_util.tree_flatten(like)
            numbers = [jax.device_put(found.arrays[f"{prefix}{place}"]) for place in range(len(leaves))]
            return jax.tree_util.tree_unflatten(structure, numbers)

        history = {name: found.arrays[name].tolist() for name in _HISTORY}
        return Progress(tree(_FREE, start.free), tree(_STATE, start.state), tree(_BEST, start.best), **history)

    def _check_same(self, found: Checkpoint) -> None:
        """Raise unless a checkpoint belongs to this training; warn where software or machine have changed."""
        info, now = found.info, self._identity
        if info.get("training format") != TRAINING_FORMAT:
            raise ArgumentError(
                f"The checkpoints in {self.folder} are of no training, or of one by another version of particleflow, "
                "so it cannot go on. Use another folder."
            )
        others = differences(info["fingerprint"], now["fingerprint"])
        if info["code"]["python"] == now["code"]["python"]:
            others += [f"code of {name}" for name in differences(info["code"], now["code"])]
        if others:
            raise ArgumentError(
                f"The training in {self.folder} was begun with other settings, so it cannot go on with these: "
                f"{' and '.join(f'`{name}`' for name in others)} {'differs' if len(others) == 1 else 'differ'}. "
                "Use those it began with, or another folder."
            )
        changes = changed_surroundings({name: info.get(name) for name in SURROUNDINGS}, now)
        if changes:
            warnings.warn(
                f"The training began elsewhere ({', '.join(changes)}). It goes on, but its numbers may differ from "
                "those of undisturbed training in the last digits.",
                ResumedElsewhere,
                stacklevel=4,
            )
