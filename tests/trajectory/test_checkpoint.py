"""Checkpoints: bit for bit, whole or not there, and the one before when the newest is torn."""

import resource
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from particleflow.errors import ArgumentError, StoreError
from particleflow.trajectory.store import load_checkpoint, save_checkpoint


def state(number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    key = rng.integers(0, 2**32, 2, dtype=np.uint32)
    return {
        "points": rng.normal(size=(50, 3)),
        "half": rng.random(4, dtype=np.float32),
        "key": key,
        "dt": np.array(0.1),
    }


def test_values_come_back_bit_for_bit_and_two_files_are_kept(tmp_path):
    for number in range(5):
        save_checkpoint(tmp_path, state(number), {"frames": number, "time": 0.1 + number, "hash": "äé"})
    found = load_checkpoint(tmp_path)
    assert found.info == {"frames": 4, "time": 4.1, "hash": "äé"}
    assert found.skipped == ()
    for name, values in state(4).items():
        assert found.arrays[name].dtype == values.dtype
        assert found.arrays[name].tobytes() == values.tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-00000003.npz", "checkpoint-00000004.npz"]


def test_any_damage_to_the_newest_falls_back_to_the_one_before(tmp_path):
    for number in range(2):
        save_checkpoint(tmp_path, state(number), {"frames": number})
    newest = tmp_path / "checkpoint-00000001.npz"
    content = newest.read_bytes()
    rng = np.random.default_rng(0)
    cuts = [content[:size] for size in rng.integers(0, len(content), 30)]
    for _ in range(100):
        changed = bytearray(content)
        changed[rng.integers(len(content))] ^= 1 << rng.integers(8)
        cuts.append(bytes(changed))
    fallen = 0
    for damaged in cuts:
        newest.write_bytes(damaged)
        found = load_checkpoint(tmp_path)
        number = found.info["frames"]
        fallen += number == 0
        assert (number == 0) == bool(found.skipped)
        np.testing.assert_array_equal(found.arrays["points"], state(number)["points"])
    assert fallen > 100
    (tmp_path / "checkpoint-00000000.npz").write_bytes(b"")
    newest.write_bytes(content[:100])
    with pytest.raises(StoreError, match="no usable checkpoint"):
        load_checkpoint(tmp_path)


def test_pickled_objects_are_neither_written_nor_read(tmp_path):
    with pytest.raises(ArgumentError, match="expected numbers"):
        save_checkpoint(tmp_path, {"x": np.array([print], dtype=object)}, {})
    np.savez(tmp_path / "checkpoint-00000000.npz", x=np.array([{}], dtype=object))
    with pytest.raises(StoreError, match="no usable checkpoint"):
        load_checkpoint(tmp_path)


def test_no_checkpoint_at_all(tmp_path):
    with pytest.raises(StoreError, match="it has none"):
        load_checkpoint(tmp_path)
    with pytest.raises(StoreError, match="no run folder"):
        load_checkpoint(tmp_path / "nowhere")


def test_a_full_disk_keeps_the_one_before(tmp_path):
    save_checkpoint(tmp_path, state(0), {"frames": 0})
    code = """
        import sys
        import numpy as np
        from particleflow.errors import StoreError
        from particleflow.trajectory.store import save_checkpoint
        try:
            save_checkpoint(sys.argv[1], {"points": np.zeros(10_000)}, {"frames": 1})
        except StoreError as error:
            print(error)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)),
        check=True,
    )
    assert "The one before is kept" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000000.npz"]
    assert load_checkpoint(tmp_path).info == {"frames": 0}
