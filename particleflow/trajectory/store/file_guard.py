"""Checks before a dataset of an untrusted file is read: it lies in this file, and is no larger than its stored bytes.

A file may come from anywhere. A link can lead to another file, or to a pipe that never ends; a few kilobytes can state
lengths of gigabytes. So links are checked before they are followed, and lengths are compared with what is stored.
"""

from math import prod
from pathlib import Path

from particleflow.errors import StoreError
from particleflow.trajectory.frame import fits_particles
from particleflow.trajectory.store import file_layout
from particleflow.trajectory.store.file_layout import OURS, FileLayout, Node
from particleflow.trajectory.words import LONGEST

_LARGEST_STATUS = 1 << 20


def node(file: Node, name: str, path: Path) -> Node:
    """A group or dataset of this very file; links that lead elsewhere are refused without following them."""
    found = file
    for part in name.strip("/").split("/"):
        found = _entry(found, part)
        if found is None:
            raise _foreign(path, name)
    return found


def _entry(group: Node, part: str) -> Node:
    """An entry of a group, None where there is no group, no entry, or one that leads elsewhere."""
    import h5py

    link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
    return group[part] if isinstance(link, h5py.HardLink) else None


def has(group: Node, name: str) -> bool:
    """Whether a group has an entry of this name, wherever it leads."""
    return group.get(name, getlink=True) is not None


def numbers(file: Node, name: str, path: Path) -> Node:
    """A dataset of plain numbers in blocks (chunks), as every long dataset of ours is."""
    return _plain(file, name, path, "iuf")


def words(file: Node, name: str, path: Path) -> Node:
    """A dataset of fixed-length texts in blocks, at most `LONGEST` bytes each; variable-length text is refused."""
    found = _plain(file, name, path, "S")
    if found.dtype.itemsize > LONGEST:
        raise _too_long(path, name)
    return found


def _plain(file: Node, name: str, path: Path, kinds: str) -> Node:
    """A dataset in blocks whose entries are of one of these kinds and lie in the blocks themselves."""
    import h5py

    found = node(file, name, path)
    if not isinstance(found, h5py.Dataset) or found.chunks is None or found.dtype.kind not in kinds:
        raise _foreign(path, name)
    plist = found.id.get_create_plist()
    codes = [plist.get_filter(index)[0] for index in range(plist.get_nfilters())]
    # Neither filter makes a block larger than its bytes in the file.
    known = {h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_SHUFFLE}
    if not set(codes) <= known:
        raise StoreError(
            f"{path}: {name} is compressed, which particleflow never does. Undo it (`h5repack -f NONE`), or take the "
            "original file."
        )
    return found


def check_records(file: Node, path: Path) -> None:
    """Check that the count of frames and the status are small datasets whose bytes lie in this file.

    Both are without blocks (contiguous), so that they are rewritten in place, without an index that could be torn.
    """
    import h5py

    for name, kind, axes in (("committed", "i", 1), ("status", "u", 2)):
        found = node(file, f"{OURS}/{name}", path)
        if not isinstance(found, h5py.Dataset) or found.dtype.kind != kind or found.ndim != axes:
            raise _foreign(path, name)
        plist = found.id.get_create_plist()
        plain = plist.get_layout() == h5py.h5d.CONTIGUOUS and plist.get_external_count() == 0
        if not plain or found.shape[0] != 2 or found.nbytes > 2 * _LARGEST_STATUS:
            raise _foreign(path, name)


def read_whole(dataset: Node, size: int, path: Path) -> Node:
    """Read a fixed dataset, if the file of `size` bytes can hold as many numbers as the dataset states."""
    if not dataset.nbytes <= dataset.id.get_storage_size() <= size:
        raise _too_long(path, dataset.name)
    return dataset[...]


def stored_frames(datasets: dict[str, Node], size: int, path: Path) -> int:
    """Return the most frames that the stored blocks can hold.

    A dataset whose index is damaged is skipped; its frames are checked later by their checksums. A block shorter than
    stated, or blocks that take more bytes than the file of `size` bytes, are refused.
    """
    most, total = [], 0
    for dataset in datasets.values():
        try:
            held = dataset.id.get_storage_size()
        except (OSError, RuntimeError):
            continue
        total += held
        if total > size or 0 < held < prod(dataset.chunks) * dataset.dtype.itemsize:
            raise _too_long(path, dataset.name)
        frame = prod(dataset.shape[1:]) * dataset.dtype.itemsize
        most.append(held // frame if frame else len(dataset))
    return min(most, default=0)


def check_shapes(layout: FileLayout, shapes: dict[str, tuple[int, ...]], size: int, path: Path) -> None:
    """Refuse constants without one entry per particle (of every run), and more particles than the file has bytes."""
    if max(layout.frame_shape) > size:
        raise _too_long(path, file_layout.POSITION)
    for name, shape in shapes.items():
        if not fits_particles(name, shape, layout.count, layout.runs):
            raise StoreError(f"{path}: {name} has shape {shape}, which does not fit {layout.count} particles.")


def _foreign(path: Path, name: str) -> StoreError:
    """The error for an entry that is not a plain dataset inside this file."""
    return StoreError(f"{path}: {name} is not a plain dataset in this file. particleflow did not write it; not read.")


def _too_long(path: Path, name: str) -> StoreError:
    """The error for a dataset that states more than the file holds."""
    return StoreError(f"{path}: {name} claims to be longer than the file. particleflow did not write it; not read.")
