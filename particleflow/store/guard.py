"""What a trajectory file must be before a number of it is read: made of its own bytes, and no larger than they are.

A file may come from anywhere. A link can lead to another file, or to a pipe that never ends; a few kilobytes can state
lengths of gigabytes. So links are looked at before they are followed, and lengths are compared with what is stored.
"""

from math import prod
from pathlib import Path

from particleflow._words import LONGEST
from particleflow.errors import StoreError
from particleflow.store import layout as lay

_LARGEST_STATUS = 1 << 20


def node(file: lay.Node, name: str, path: Path) -> lay.Node:
    """A group or dataset of this very file; links that lead elsewhere are refused without following them."""
    found = file
    for part in name.strip("/").split("/"):
        found = _entry(found, part)
        if found is None:
            raise _foreign(path, name)
    return found


def _entry(group: lay.Node, part: str) -> lay.Node:
    """An entry of a group, None where there is no group, no entry, or one that leads elsewhere."""
    import h5py

    link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
    return group[part] if isinstance(link, h5py.HardLink) else None


def has(group: lay.Node, name: str) -> bool:
    """Whether a group has an entry of this name, wherever it leads."""
    return group.get(name, getlink=True) is not None


def numbers(file: lay.Node, name: str, path: Path) -> lay.Node:
    """A dataset of plain numbers in blocks, as all of ours that can be long are."""
    return _plain(file, name, path, "iuf")


def words(file: lay.Node, name: str, path: Path) -> lay.Node:
    """A dataset of texts in blocks, all of one length that words can have; one of varying length is refused."""
    found = _plain(file, name, path, "S")
    if found.dtype.itemsize > LONGEST:
        raise _too_long(path, name)
    return found


def _plain(file: lay.Node, name: str, path: Path, kinds: str) -> lay.Node:
    """A dataset in blocks whose entries are of one of these kinds and lie in the blocks themselves."""
    import h5py

    found = node(file, name, path)
    if not isinstance(found, h5py.Dataset) or found.chunks is None or found.dtype.kind not in kinds:
        raise _foreign(path, name)
    plist = found.id.get_create_plist()
    codes = [plist.get_filter(index)[0] for index in range(plist.get_nfilters())]
    # Neither makes a block larger than its bytes in the file.
    known = {h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_SHUFFLE}
    if not set(codes) <= known:
        raise StoreError(
            f"{path}: {name} is compressed, which particleflow never does. Undo it (`h5repack -f NONE`), or take the "
            "original file."
        )
    return found


def check_records(file: lay.Node, path: Path) -> None:
    """The count of frames and the status are small datasets without blocks, whose bytes lie in this file."""
    import h5py

    for name, kind, axes in (("committed", "i", 1), ("status", "u", 2)):
        found = node(file, f"{lay.OURS}/{name}", path)
        if not isinstance(found, h5py.Dataset) or found.dtype.kind != kind or found.ndim != axes:
            raise _foreign(path, name)
        plist = found.id.get_create_plist()
        plain = plist.get_layout() == h5py.h5d.CONTIGUOUS and plist.get_external_count() == 0
        if not plain or found.shape[0] != 2 or found.nbytes > 2 * _LARGEST_STATUS:
            raise _foreign(path, name)


def read_whole(dataset: lay.Node, size: int, path: Path) -> lay.Node:
    """All numbers of a fixed dataset, if the file of `size` bytes holds as many as the dataset states."""
    if not dataset.nbytes <= dataset.id.get_storage_size() <= size:
        raise _too_long(path, dataset.name)
    return dataset[...]


def stored_frames(datasets: dict[str, lay.Node], size: int, path: Path) -> int:
    """The most frames that the stored blocks can hold; a dataset whose index is damaged is left to its checksums."""
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


def check_shapes(layout: lay.Layout, shapes: dict[str, tuple[int, ...]], size: int, path: Path) -> None:
    """Constants have an entry for every particle (of every run), and every particle has taken a byte of the file."""
    if max(layout.frame_shape) > size:
        raise _too_long(path, lay.POSITION)
    for name, shape in shapes.items():
        by_run = layout.runs is not None and shape[:2] == (layout.runs, layout.count)
        fits = shape[:1] == (layout.count,) or by_run
        if not fits or (name == lay.WORDS and len(shape) > 1 + by_run):
            raise StoreError(f"{path}: {name} has shape {shape}, which does not fit {layout.count} particles.")


def _foreign(path: Path, name: str) -> StoreError:
    return StoreError(f"{path}: {name} is not a plain dataset of ours in this file. Not written by us; not read.")


def _too_long(path: Path, name: str) -> StoreError:
    return StoreError(f"{path}: {name} states to be longer than what the file holds. Not written by us; not read.")
