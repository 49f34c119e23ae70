"""Images: segmentation by MeanShift of pixels, and non-local means of patches.

For segmentation a pixel is the point (colour/c, place/s), and its mode under MeanShift is its segment (Comaniciu and
Meer 2002). For denoising its point is the patch around it and its value is its colour: the local mean of colours over
pixels with similar patches, in a window around it, is the image without noise (Buades, Coll and Morel 2005),

    u(p) = Σ_q K(P(p), P(q)) u(q) / Σ_q K(P(p), P(q)),    K = exp(−|P(p) − P(q)|²_a / h²),   q within d of p.

A picture is an array (rows, columns) or (rows, columns, channels).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels import AbstractKernel, Gaussian, Window
from particleflow.measure import Measure, Sites
from particleflow.models.base import bandwidth_of, check_count
from particleflow.models.clustering import MeanShiftClustering
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.local_mean import attention_weights, local_mean


class Segments(NamedTuple):
    """The segment of every pixel (rows, columns), and the mean colour of every segment (segments, channels)."""

    labels: np.ndarray
    colours: np.ndarray

    @property
    def picture(self) -> np.ndarray:
        """Every pixel in the mean colour of its segment."""
        return self.colours[self.labels]


def segmented(
    image: Any, colour: float, place: float, *, stride: int = 4, max_iter: int = 100, tolerance: float = 1e-2
) -> Segments:
    """The segments of a picture: modes of its pixels in colour and place, under a Gaussian kernel.

    Parameters: `image`; the bandwidths in `colour`, in units of the picture, and in `place`, in pixels; `stride`, the
    distance of seeds in rows and columns (all pixels are samples, and belong to the mode nearest to them);
    `max_iter` and `tolerance` as for `MeanShiftClustering`.
    """
    pixels = _as_picture(image)
    check_count(stride, "stride")
    rows, columns, channels = pixels.shape
    places = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1)
    widths = bandwidth_of(colour, pixels[0]), bandwidth_of(place, pixels[0])
    features = np.concatenate([pixels / widths[0], places / widths[1]], axis=-1)
    seeds = features[stride // 2 :: stride, stride // 2 :: stride].reshape(-1, channels + 2)
    model = MeanShiftClustering(1.0, "gaussian", max_iter=max_iter, tolerance=tolerance, seeds=seeds)
    labels = model.fit(features.reshape(-1, channels + 2)).labels_
    present, labels = np.unique(labels, return_inverse=True)
    sums = np.stack([np.bincount(labels, each, len(present)) for each in pixels.reshape(-1, channels).T], axis=1)
    return Segments(labels.reshape(rows, columns), sums / np.bincount(labels)[:, None])


def non_local_means(
    image: Any,
    patch_size: int = 7,
    patch_distance: int = 10,
    h: float = 0.1,
    *,
    summation: AbstractSummation | None = None,
) -> np.ndarray:
    """A picture without its noise: the local mean of pixels by the similarity of the patches around them.

    Pixels of a patch have Gaussian weights, of a width of a quarter of its size, that sum to one; patches at the edge
    are completed by reflection. This is scikit-image's `denoise_nl_means` with `fast_mode=False`, except that it rounds
    exponentials and leaves out patches that weigh less than e⁻⁵ or whose centres alone weigh less than e⁻¹, while this
    mean is exact. The sources of a column's pixels are the columns within `patch_distance`, limited to a band of rows:
    (2d + 1)² pairs a pixel matter, and little more is summed.

    Parameters: `image`; `patch_size`, an odd number of pixels; `patch_distance` d, how far patches are looked for; `h`,
    the bandwidth of differences of colour, about the size of the noise; `summation`.
    """
    pixels = _as_picture(image)
    check_count(patch_distance, "patch_distance")
    patches = _patches(pixels, patch_size)
    kernel = Gaussian(bandwidth_of(h, patches[0]) / np.sqrt(2)) * Window(patch_distance + 0.5)
    found = _column_means(jnp.asarray(patches), jnp.asarray(pixels), kernel, int(patch_distance), summation or Auto())
    return np.array(found).reshape(np.shape(image))


def non_local_weights(
    image: Any, places: Any, patch_size: int = 7, patch_distance: int = 10, h: float = 0.1
) -> np.ndarray:
    """The weights of all pixels in the non-local means of a few, (k, rows, columns); each map has the sum one.

    w(p, q) = K(P(p), P(q)) / Σ_q' K(P(p), P(q')) for q within d of p in rows and columns, else 0; the mean of the
    colours under the map of p is what `non_local_means` has there.

    Parameters: `places` (k, 2), row and column of the pixels p; the others as for `non_local_means`.
    """
    pixels = _as_picture(image)
    check_count(patch_distance, "patch_distance")
    patches = _patches(pixels, patch_size)
    chosen = np.atleast_2d(np.asarray(places))
    if chosen.shape[1:] != (2,) or not np.issubdtype(chosen.dtype, np.integer):
        raise ShapeError(f"Argument `places` must be rows and columns, whole numbers (k, 2), but is {places!r}.")
    if (chosen < 0).any() or (chosen >= pixels.shape[:2]).any():
        raise ArgumentError(f"Argument `places` must lie in the picture of {pixels.shape[:2]} pixels: {places!r}.")
    kernel, maps = Gaussian(bandwidth_of(h, patches[0]) / np.sqrt(2)), np.zeros((len(chosen), *pixels.shape[:2]))
    for number, place in enumerate(chosen):
        near = tuple(slice(max(at - patch_distance, 0), at + patch_distance + 1) for at in place)
        around = patches[near]
        measure = Measure.uniform(around.reshape(-1, patches.shape[2]))
        weights = attention_weights(kernel, measure, patches[tuple(place)])
        maps[(number, *near)] = np.asarray(weights).reshape(around.shape[:2])
    return maps


def _as_picture(image: Any) -> np.ndarray:
    """The image as finite numbers (rows, columns, channels)."""
    pixels = np.asarray(image, np.float64)
    if pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise ShapeError(
            f"Argument `image` must have shape (rows, columns) or (rows, columns, channels), but has {pixels.shape}."
        )
    if not np.isfinite(pixels).all():
        raise ArgumentError("Argument `image` must be finite, but holds NaN or infinity.")
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _patches(pixels: np.ndarray, size: int) -> np.ndarray:
    """The patch around every pixel, (rows, columns, size² channels).

    Entries are multiplied by the square roots of their weights, so that |P(p) − P(q)|² is the weighted distance.
    """
    check_count(size, "patch_size")
    if size % 2 == 0 or size // 2 >= min(pixels.shape[:2]):
        raise ArgumentError(
            f"Argument `patch_size` must be odd and at most twice the sides of the picture, but is {size}."
        )
    reach = size // 2
    padded = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(0, 1))  # (r, c, channels, s, s)
    steps = np.arange(size) - float(reach)
    places = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    centre, nearby = np.zeros((1, 2)), Gaussian(max(reach, 1) / 2)
    weights = np.asarray(attention_weights(nearby, Measure.uniform(places), centre)).reshape(size, size)
    return (windows * np.sqrt(weights / pixels.shape[2])).reshape(*pixels.shape[:2], -1)


@eqx.filter_jit
def _column_means(
    patches: Float[Array, "r c k"],
    pixels: Float[Array, "r c n"],
    kernel: AbstractKernel,
    distance: int,
    how: AbstractSummation,
) -> Float[Array, "r c n"]:
    """The local means of all pixels, column by column: sources are the columns around, in the order of their rows."""
    rows, columns = patches.shape[:2]
    around = jnp.arange(-distance, distance + 1)
    heights = jnp.arange(rows, dtype=patches.dtype)

    def of_column(column: Array) -> Array:
        beside = column + around
        inside = (beside >= 0) & (beside < columns)
        taken = jnp.clip(beside, 0, columns - 1)
        log_weights = jnp.where(inside, 0.0, -jnp.inf).astype(patches.dtype)
        measure = Measure(
            patches[:, taken].reshape(-1, patches.shape[2]),
            jnp.tile(log_weights, rows),
            pixels[:, taken].reshape(-1, pixels.shape[2]),
            jnp.repeat(heights, len(around)),
        )
        return local_mean(kernel, measure, Sites(patches[:, column], heights), summation=how)

    return jnp.swapaxes(jax.lax.map(of_column, jnp.arange(columns)), 0, 1)
