"""How far runs move: chords of a rotation, the mass of a density, and frames even in motion."""

import numpy as np

from density_oracles import make
from particleflow.analysis.motion import arc_length, even_in_motion
from particleflow.trajectory.trajectory import Trajectory


def test_arc_length_of_a_rotation_is_the_sum_of_chords():
    angle = np.array([0.0, 0.1, 0.4, 0.4, 1.0])
    turning = np.stack([np.cos(angle), np.sin(angle)], axis=-1)[:, None]
    still = np.broadcast_to([[[1.0, 0.0]]], (5, 1, 2))
    length = arc_length(Trajectory.from_arrays(np.arange(5.0), np.concatenate([turning, still], axis=1)))
    # half of the particles move, so the root mean square is the chord over √2
    np.testing.assert_allclose(length, np.concatenate([[0], np.cumsum(2 * np.sin(np.diff(angle) / 2))]) / np.sqrt(2))


def test_the_mass_that_moves_is_the_length_of_a_path():
    run = make("line", frames=3)
    steps = 0.5 * np.abs(np.diff(np.asarray(run.masses), axis=0)).sum(axis=1)
    np.testing.assert_allclose(arc_length(run), np.concatenate([[0], np.cumsum(steps)]))


def test_frames_are_even_in_motion_and_one_where_nothing_moves():
    walk = np.repeat([0.0, 0.0, 1.0, 1.0, 4.0], 3).cumsum()[:, None, None]
    length = arc_length(Trajectory.from_arrays(np.arange(15.0), walk))
    chosen = even_in_motion(Trajectory.from_arrays(np.arange(15.0), walk), 4)
    assert (chosen[0], chosen[-1]) == (0, 14)
    assert (length[chosen] >= np.linspace(0, length[-1], 4)).all()
    assert (length[chosen[1:] - 1] < np.linspace(0, length[-1], 4)[1:]).all()
    still = Trajectory.from_arrays(np.arange(3.0), np.zeros((3, 2, 1)))
    assert even_in_motion(still, 4).tolist() == [2]
