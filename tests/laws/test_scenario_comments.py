"""What the first comment of a shipped scenario states is computed again from its run, with NumPy and SciPy alone.

Numbers are read from the comment's own sentences, so that a changed sentence fails its test. A number stands for all
that would be written like it: it may be off by half of a unit of its last digit; counts and values of the file are
exact. Times of events are checked by two frames, at the ends of that interval: before the first it has not happened, at
the second it has. Slopes are fitted by least squares, with the tolerance beside each: where an equation holds only at
late times, what its next term leaves. Clusters are connected components at the distance that the analysis takes, `LINK`
on the unit sphere (cosine .999), unless another one is given.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.optimize import brentq
from scipy.spatial import ConvexHull, KDTree
from scipy.spatial.distance import pdist
from scipy.special import iv, ive
from scipy.stats import norm, rankdata

from comment_oracles import (
    Shipped,
    Stated,
    clusters,
    comment,
    cosines,
    drawn,
    effective_rank,
    excess_kurtosis,
    frame_at,
    linked,
    mean_cosine,
    numbers,
    peaks,
    points,
    reconstruction_weights,
    sizes,
    slope,
    units,
)
from particleflow.analysis import choose_threshold
from particleflow.app.scenario.scenario import shipped
from particleflow.summation import ewald
from shares import by_default, skip_without_extra

LINK = np.sqrt(0.002)


def alibi(of: Shipped) -> None:
    """Two strings at single linkage of 0.2 to 0.4; along each the positions in the sequence are in order."""
    of.says("gather in two strings, in the order of the sequence")
    last = points(of.run())[-1]
    assert clusters(last, 0.2) == clusters(last, 0.4) == 2
    for string in range(2):
        members = np.flatnonzero(linked(last, 0.4) == string)
        along = np.linalg.svd(last[members] - last[members].mean(0))[0][:, 0]
        assert abs(np.corrcoef(members, rankdata(along))[0, 1]) > 0.9


def annealed_sampling(of: Shipped) -> None:
    widest, narrowest = of.says("while its width falls from {} to {}")
    schedule = of.table["drift"][0]["schedule"]
    assert (schedule["first"], schedule["last"]) == (widest.value, narrowest.value)
    assert of.table["drift"][0]["drift"]["data"]["kind"] == "moons"
    of.says("new samples of {} moons")


def annealing(of: Shipped) -> None:
    schedule = of.table["drift"][0]["schedule"]
    assert [schedule["first"], schedule["last"]] == [each.value for each in of.says("Beta rises from {} to {}")]
    of.says("what would be one cluster freezes into several")
    assert clusters(points(of.run())[-1], LINK) > 2
    assert clusters(points(of.run(drift=[of.table["drift"][0]["drift"]]))[-1], LINK) == 1


def blurring_mean_shift(of: Shipped) -> None:
    """Each principal width s of a blob becomes s³/(s² + h²), but for the sample: 10 %, 2 %, and .01 % once s << h."""
    (blobs,) = of.says("{} blobs collapse to points, each step cubing the width that is left")
    run = points(of.run())
    blob, h = linked(run[-1], 1e-3), of.table["drift"][0]["kernel"]["width"]
    assert blob.max() + 1 == blobs.value
    for each in range(blob.max() + 1):
        parts = run[:, blob == each]
        centred = parts - parts.mean(axis=1, keepdims=True)
        width = np.linalg.svd(centred, compute_uv=False) / np.sqrt(centred.shape[1])
        for step, allowed in enumerate((0.1, 0.02, 1e-4)):
            np.testing.assert_allclose(width[step + 1], width[step] ** 3 / (width[step] ** 2 + h**2), rtol=allowed)
        assert width[5:].max() < 1e-13


def bounded_confidence(of: Shipped) -> None:
    (radius,) = of.says("opinions within {} of their own")
    assert radius.value == of.table["drift"][0]["kernel"]["radius"]
    least, most = of.says("parties {} to {} radii apart")
    last = points(of.run())[-1]
    party = linked(last, 1e-3)
    centres = np.sort([float(last[party == each].mean()) for each in range(party.max() + 1)])
    gaps = np.diff(np.asarray(centres, dtype=float)) / radius.value
    assert gaps.min() == least.rounded
    assert gaps.max() == most.rounded


def causal(of: Shipped) -> None:
    before, time = of.says("of {} clusters two merge at t = {}")
    frames = of.moment(time, lambda x: clusters(x, LINK) < before.value)
    assert [clusters(frame, LINK) for frame in frames] == [before.value, before.value - 1]
    assert clusters(points(of.run())[-1], LINK) == before.value - 1


def circle_instability(of: Shipped) -> None:
    """The rate of the equation is k² I_k(β)/β; the fit is of amplitudes from 1e-6 to 1e-3."""
    mode, rate, left = of.says("in mode {} grows like e^({} t) until {} clusters stand")
    of.says("one part in a million")
    initial, beta = of.table["initial"], of.table["drift"][0]["kernel"]["beta"]
    assert (initial["amplitude"], initial["mode"]) == (1e-6, mode.value)
    run = of.run()
    grid = 2 * np.pi * np.arange(run.count) / run.count
    angles = np.unwrap(np.arctan2(points(run)[..., 1], points(run)[..., 0]), axis=1)
    height = 2 * np.mean((angles - grid) * np.sin(mode.value * grid), axis=1)
    chosen = (height > 1e-6) & (height < 1e-3)
    assert np.polyfit(run.times[chosen], np.log(height[chosen]), 1)[0] == rate.rounded
    assert mode.value**2 * iv(mode.value, beta) / beta == rate.rounded
    assert clusters(points(run)[-1], 0.3) == left.value


def condensing_density(of: Shipped) -> None:
    critical, rate = of.says(
        "below the temperature I_1(1) = {} its first mode grows, here at the rate {}, and comes to"
    )
    beta, temperature = of.table["drift"][0]["kernel"]["beta"], of.table["temperature"]
    assert beta == 1
    assert iv(1, 1.0) == critical.rounded
    assert temperature < iv(1, 1.0)
    run = of.run()
    order = np.linalg.norm(np.einsum("tn,tnd->td", np.asarray(run.masses), points(run)), axis=1)
    early = order < 0.03  # where the third power is below a thousandth of the first
    assert np.polyfit(run.times[early], np.log(order[early]), 1)[0] == rate.rounded
    assert iv(1, 1.0) - temperature == rate.rounded
    assert abs(order[-1] - order[-10]) < 1e-4


def contrastive(of: Shipped) -> None:
    """Uniformity is log mean e^(−2 |x − y|²) over pairs; for independent uniform points on S² it is log(1/8)."""
    samples, views, near, time, begun, ended = of.says(
        "Contrastive learning of {} samples: {} views of each, at random places, meet within {} by t = {}, and samples "
        "spread more evenly than at random; uniformity begins at {}, rises while views meet, and ends at {}"
    )
    assert of.table["initial"]["count"] == samples.value * views.value
    run, soon = of.run(), of.at(time.value)[0]
    assert np.linalg.norm(soon[::2] - soon[1::2], axis=1).max() < near.value
    found = [np.log(np.mean(np.exp(-2 * pdist(frame, "sqeuclidean")))) for frame in points(run)]
    assert [found[0], found[-1]] == [begun.rounded, ended.rounded]
    assert max(found) > found[0] + 0.02
    nearest = [KDTree(places).query(places, 2)[0][:, 1] for places in (points(run)[0][::2], points(run)[-1][::2])]
    assert nearest[1].std() / nearest[1].mean() < 0.5 * nearest[0].std() / nearest[0].mean()


def cross_attention(of: Shipped) -> None:
    """Nearly every token ends beside one of the other measure, and every cluster holds tokens of both."""
    measures, tokens = of.says("{} measures of {} tokens attend to each other and never to themselves")
    run = of.run()
    measure = np.asarray(run.positions)
    assert np.unique(measure, return_counts=True)[1].tolist() == [tokens.value] * int(measures.value)
    table = np.asarray(of.table["drift"][0]["positional"]["log_table"])
    assert (np.isneginf(np.diag(table))).all()
    last = points(run)[-1]
    for own, other in ((0, 1), (1, 0)):
        nearest = KDTree(last[measure == other]).query(last[measure == own])[0]
        assert np.mean(nearest < 0.1) > 0.9


def density_circle(of: Shipped) -> None:
    arcs, rate, left = of.says("a density in {} arcs. A ripple grows like e^({} t) into {} peaks")
    assert of.table["discretization"]["cells"] == arcs.value
    run = of.run()
    masses = np.asarray(run.masses)
    angles = np.arctan2(points(run)[..., 1], points(run)[..., 0])
    mode, beta = of.table["initial"]["mode"], of.table["drift"][0]["kernel"]["beta"]
    height = np.abs(np.sum(masses * np.exp(1j * mode * angles), axis=1))
    chosen = (height > 0.001) & (height < 0.02)
    assert np.polyfit(run.times[chosen], np.log(height[chosen]), 1)[0] == rate.rounded
    assert mode**2 * iv(mode, beta) / beta == rate.rounded
    assert len(peaks(masses[-1], above=2 / masses.shape[1], ring=True)) == left.value


def density_line(of: Shipped) -> None:
    """A ripple of wave number k on a flat density grows at h² k² e^(-h² k²/2), most of all where h k = √2."""
    left, apart, widths, fastest = of.says("{} are left, {} apart: {} widths, where {} widths is what grows fastest")
    run, h = of.run(), of.table["drift"][0]["kernel"]["width"]
    masses, places = np.asarray(run.masses), points(run)[0, :, 0]
    flat = masses[0].max()
    first = next(tops for mass in masses if len(tops := places[peaks(mass, above=1.2 * flat)]))
    assert np.abs(first).min() > 3
    found = places[peaks(masses[-1], above=1.2 * flat)]
    assert len(found) == left.value
    between = np.digitize(places, (found[1:] + found[:-1]) / 2)
    centres = [np.average(places[between == each], weights=masses[-1][between == each]) for each in range(len(found))]
    assert np.mean(np.diff(centres)) == apart.rounded
    assert np.mean(np.diff(centres)) / h == widths.rounded
    waves = np.linspace(0.1, 4, 4000) / h
    assert 2 * np.pi / waves[np.argmax((h * waves) ** 2 * np.exp(-((h * waves) ** 2) / 2))] / h == fastest.rounded


def density_sphere(of: Shipped) -> None:
    (cells,) = of.says("in {} Voronoi cells")
    assert of.table["discretization"]["cells"] == cells.value
    run = of.run()
    of.says("attention holds it together")
    first, last = (np.linalg.norm(mass @ points(run)[0]) for mass in np.asarray(run.masses)[[0, -1]])
    assert last > first


def depth_refinement(of: Shipped) -> None:
    layers, first, last = of.says("{} pre-norm layers in steps of {} to 1/{}: ")
    limit, network = of.says(
        "depth has a limit (mean cosine {}), and the network itself, steps of 1, is far from it ({})"
    )
    steps = of.table["sweep"]["time.step"]
    assert (steps[0], steps[-1]) == (first.value, 1 / last.value)
    assert of.table["drift"][0]["depth"] == of.table["time"]["end"] == layers.value
    found = [mean_cosine(points(of.run(**{"time.step": step}))[-1]) for step in steps]
    assert found[0] == network.rounded
    assert found[-1] == limit.rounded
    assert abs(found[-1] - found[-2]) < abs(found[-2] - found[-3])


def differential(of: Shipped) -> None:
    """The peak of the amplified spectrum is wide: its place, a mean over it, agrees within 10 %."""
    places, bound = of.says("2 pi h / sqrt 2 = {} places; the run stops when a value reaches {}")
    h = of.table["drift"][0]["kernel"]["width"]
    assert 2 * np.pi * h / np.sqrt(2) == places.rounded
    run = of.run()
    values = points(run)[..., 0]
    assert run.status == "stopped by event"
    assert np.abs(values[-1]).max() == pytest.approx(bound.value, abs=1e-8)
    power = np.abs(np.fft.rfft(values[-1])) ** 2
    wave = np.sum(power * np.arange(len(power))) / np.sum(power)
    assert values.shape[1] / wave == pytest.approx(places.value, rel=0.1)


def encoder_decoder(of: Shipped) -> None:
    layers, layer, cosine = of.says(
        "{} random layers deep: by layer {} all its words have one direction (mean cosine {})"
    )
    assert of.table["drift"][0]["depth"] == of.table["time"]["end"] == layers.value
    assert mean_cosine(points(of.run())[int(layer.value)]) == cosine.rounded


def first_merge(of: Shipped) -> None:
    """Single linkage at the event's distance: the merge of the last frame happens at it, up to the tolerance."""
    tokens, left = of.says("the moment when all {} tokens have come down to {} clusters")
    run, event = of.run(), of.table["event"]
    assert run.count == tokens.value == event["merges"] + left.value
    assert run.status == "stopped by event"
    assert clusters(points(run)[-1], event["distance"] * (1 + 1e-6)) == left.value
    assert clusters(points(run)[-1], event["distance"] * (1 - 1e-6)) == left.value + 1


def flow_of_measures(of: Shipped) -> None:
    """SciPy solves the five and the nine points, too."""
    added, start, end, alone = of.says("adds {} more, and the fifth goes from {} to {}, not to {}")
    few, many = of.run(), of.run(**of.overrides())
    assert many.count - few.count == added.value
    for run, said in ((few, alone), (many, end)):
        first, last = points(run)[[0, -1], :, 0]
        assert first[4] == start.value
        assert last[4] == said.rounded
        solved = solve_ivp(_repelled, (0, run.times[-1]), first, rtol=1e-9, atol=1e-11).y[:, -1]
        np.testing.assert_allclose(last, solved, atol=1e-6)


def _repelled(time: float, x: np.ndarray) -> np.ndarray:
    weights = np.exp(np.outer(x, x))
    return -weights @ x / weights.sum(axis=1)


def flow_of_points(of: Shipped) -> None:
    added, same = of.says("adds {} more, and the first {} go the same ways")
    few, many = of.run(), of.run(**of.overrides())
    assert few.count == same.value
    assert many.count == same.value + added.value
    np.testing.assert_allclose(points(many)[:, : few.count], points(few), atol=1e-6)


def from_file(of: Shipped) -> None:
    rows, radius = of.says("{} rows of a CSV file, drawn in by a kernel that vanishes beyond a radius of {}")
    assert len(np.genfromtxt(of.data / "strokes.csv", delimiter=",")) - 1 == rows.value == of.run().count
    assert of.table["drift"][0]["kernel"] == {"kind": "epanechnikov", "radius": radius.value}


def gaussian_blow_up(of: Shipped) -> None:
    """SciPy finds the event, too."""
    one, two, infinite = of.says("variance {} / (1 - {} t) is infinite at t = {}")
    assert one.value / two.value == infinite.value
    bound, time = of.says("the outermost token only passes {} soon after, at t = {}")
    run = of.run()
    assert of.table["event"]["radius"] == bound.value
    assert run.times[-1] == time.rounded

    def passes(_: float, x: np.ndarray) -> float:
        return float(np.abs(x).max() - bound.value)

    start = norm.ppf((np.arange(run.count) + 0.5) / run.count)
    solved = solve_ivp(lambda t, x: -_repelled(t, x), (0, 0.56), start, events=passes, rtol=1e-7, atol=1e-9)
    assert solved.t_events[0][0] == pytest.approx(run.times[-1], abs=1e-5)


def gaussian_law(of: Shipped) -> None:
    infinite, variance, time, one, two = of.says(
        "would be infinite at 1 / (2 beta s) = {}, and reaches the variance {} at t = {}, as {} / (1 - {} t) does"
    )
    wide = of.table["initial"]["scale"][0] ** 2
    assert 1 / (2 * of.table["drift"][0]["kernel"]["beta"] * wide) == infinite.value
    run = of.run()
    assert run.observables["largest_variance"][-1] == pytest.approx(variance.value, rel=1e-8)
    assert run.times[-1] == time.rounded
    assert one.value / (1 - two.value * run.times[-1]) == pytest.approx(variance.value, rel=1e-6)


def first_marked(of: Shipped) -> None:
    """The weights of a head are means over all queries."""
    count, *means = of.says("gather {} letters: mean cosine {}, {}, {}; before training {}, {}, {}.")
    (weight,) = of.says("One of the first heads has {} of its weight on that capital")
    run = of.run()
    before = of.run(**{"initial.trained": False, "drift.0.trained": False})
    assert run.count == count.value
    found = [mean_cosine(frame) for each in (run, before) for frame in points(each)]
    assert found == [each.rounded for each in means]
    assert run.words is not None
    capital = next(place for place, word in enumerate(run.words) if word.isupper())
    assert np.asarray(run.observables["head_attention"])[0, :, :, capital].mean(axis=1).max() == weight.rounded


def gpt_random(of: Shipped) -> None:
    some, some_cosine, all_layers, last_cosine = of.says("after {} the mean cosine is {}, after {} it is {}")
    first_norm, last_norm = of.says("norms grow from {} to {}")
    run = points(of.run())
    assert len(run) - 1 == all_layers.value
    assert mean_cosine(run[int(some.value)]) == some_cosine.rounded
    assert mean_cosine(run[-1]) == last_cosine.rounded
    norms = np.linalg.norm(run, axis=2).mean(axis=1)
    assert norms[0] == first_norm.rounded
    assert norms[-1] == last_norm.rounded


def gravity(of: Shipped) -> None:
    """Every pair at a distance r pulls Σ w |x|² down at w² r²/(r² + s²) each way; a cut-off leaves the nearer pairs."""
    rate, first, last, time, radius, share = of.says(
        "falls at the rate {}, from {} to {} at t = {}; cut off at radius {} it would begin with {}, the share"
    )
    run = of.run()
    cloud = np.asarray(points(run))
    squares = np.mean(np.sum(cloud**2, axis=-1), axis=1)
    assert squares[0] == first.rounded
    assert np.mean(np.sum(frame_at(run, time.value) ** 2, axis=-1)) == last.rounded
    assert -slope(run.times, squares, 0, 1) == rate.rounded
    assert np.mean(pdist(cloud[0]) < radius.value) == share.rounded


def gravity_cut_off(of: Shipped) -> None:
    """Nearer pairs alone begin the fall; the run without the cut-off goes on as `gravity` does."""
    radius, rate, whole, last, kept = of.says(
        "cut off at radius {}: the mean of |x|^2 begins to fall at the rate {} in place of {}, "
        "and is {} at t = 1, not {}"
    )
    run = of.run()
    cloud = np.asarray(points(run))
    distances = pdist(cloud[0])
    squares = np.mean(np.sum(cloud**2, axis=-1), axis=1)
    pulls = distances**2 / (distances**2 + 0.01) * (1 - 1 / len(cloud[0]))
    assert of.table["drift"][0]["kernel"]["kernels"][1]["radius"] == radius.value
    assert np.mean(np.where(distances < radius.value, pulls, 0)) == rate.rounded
    assert np.mean(pulls) == whole.rounded
    assert squares[-1] == last.rounded
    uncut = of.table["drift"][0]["kernel"]["kernels"][0]
    others = points(of.run(drift=[of.table["drift"][0] | {"kernel": uncut}]))
    assert np.mean(np.sum(others[-1] ** 2, axis=-1)) == kept.rounded


def heat_flow(of: Shipped) -> None:
    """The rate of the equation at this β is k² I_k/(β I_0); the fit is of late times, when the ripple is small."""
    of.says("in which a ripple of mode k dies like e^(-k^2 t / beta)")
    mode, beta, rate, limit = of.says("mode {} at beta = {}, like e^(-{} t) rather than e^(-{} t)")
    assert (of.table["initial"]["mode"], of.table["drift"][0]["kernel"]["beta"]) == (mode.value, beta.value)
    assert mode.value**2 / beta.value == limit.rounded
    assert mode.value**2 * ive(mode.value, beta.value) / ive(0, beta.value) / beta.value == rate.rounded
    run = of.run()
    angles = np.arctan2(points(run)[..., 1], points(run)[..., 0])
    height = np.abs(np.exp(1j * mode.value * angles).mean(axis=1))
    assert -slope(run.times, np.log(height), 10, 15) == rate.rounded


def hopfield(of: Shipped) -> None:
    """Every token ends nearest to the pattern of its own digit."""
    noisy, kept = of.says("{} noisy digits ask a memory of {}")
    number, each = of.says("recalls each, {} clusters of {}")
    run = of.run()
    patterns = np.load(of.data / "digits.npy")
    assert (run.count, len(patterns)) == (noisy.value, kept.value)
    assert sizes(points(run)[-1], 0.05) == [each.value] * int(number.value)
    assert (KDTree(patterns).query(points(run)[-1])[1] == np.asarray(run.labels)).all()


def hysteresis(of: Shipped) -> None:
    """A cluster is an order parameter above a half, in the mean of the second half of a step.

    At κ_c the free energy of the clustered density is that of the uniform one.
    """
    up, low_high, low_low, balance = of.says(
        "a cluster appears at {} and dissolves at {} to {}, on both sides of kappa_c = {}"
    )
    schedule = of.table["drift"][0]["schedule"]
    run, values = of.run(), np.asarray(schedule["values"])
    order = np.asarray(run.observables["order_parameter"])
    top = int(np.argmax(values))
    step = np.floor((np.asarray(run.times) - 1e-9) / schedule["duration"])
    late = (np.asarray(run.times) - 1e-9) % schedule["duration"] > schedule["duration"] / 2
    held = np.array([order[(step == index) & late].mean() for index in range(len(values))])
    risen = values[: top + 1][held[: top + 1] > 0.5]
    fallen = values[top:][held[top:] < 0.5]
    assert risen.min() == up.value
    assert low_low.value <= fallen.max() <= low_high.value
    beta = of.table["drift"][0]["drift"]["kernel"]["beta"]
    assert brentq(lambda kappa: _free_energy_gain(kappa, beta), 0.388, 0.4) == balance.rounded


def _free_energy_gain(kappa: float, beta: float) -> float:
    """The free energy of a clustered density on the circle less that of the uniform one, temperature 1.

    F = ∫ p log p − κ/(2β) ∬ e^(β cos(x − y)) p p; its clustered stationary point is found by iteration.
    """
    x = 2 * np.pi * np.arange(256) / 256
    kernel = np.exp(beta * np.cos(x[:, None] - x))
    density = np.exp(4 * np.cos(x))
    for _ in range(4000):
        density = density / density.mean()
        density = np.exp(kappa / beta * (kernel @ density) / 256)
    density /= density.mean()
    clustered = np.mean(density * np.log(density)) - kappa / (2 * beta) * density @ kernel @ density / 256**2
    return float(clustered + kappa / (2 * beta) * iv(0, beta))


def image_patches(of: Shipped) -> None:
    """Clusters at the distance that the analysis takes here; the frames are .13 apart."""
    six, begin, end, three = of.says("{} from t = {} to {}, {} in the end")
    run = of.run()
    counts = [clusters(frame, choose_threshold(run).value) for frame in points(run)]
    first, last = np.flatnonzero(np.array(counts) == six.value)[[0, -1]]
    assert counts[first : last + 1] == [six.value] * (last - first + 1)
    for frame, said in ((first, begin), (last, end)):
        assert abs(run.times[frame] - said.value) < said.half + run.times[1] - run.times[0]
    assert counts[-1] == three.value


def kernel_regression(of: Shipped) -> None:
    """The first layer is the Nadaraya–Watson regression."""
    (targets,) = of.says("replaces {} noisy targets by their local means")
    run, places = points(of.run()), np.load(of.data / "line_places.npy")
    assert run.shape[1] == targets.value
    weights = norm.pdf(places - places.T, scale=of.table["drift"][0]["kernel"]["kernel"]["width"])
    np.testing.assert_allclose(run[1], weights @ run[0] / weights.sum(axis=1, keepdims=True), atol=1e-12)
    assert np.ptp(run[-1]) < np.ptp(run[1]) < np.ptp(run[0])


def kuramoto(of: Shipped) -> None:
    """The formula is that of infinitely many tokens; of N they differ by about r^N, until r = .94 by less than 1e-7."""
    (beta,) = of.says("At beta = {} attention is the Kuramoto model")
    assert of.table["drift"][0]["kernel"]["beta"] == beta.value
    of.says("r(t) = r0 e^(t/2) / sqrt(1 - r0^2 + r0^2 e^t)")
    run, first = of.run(), of.table["initial"]["order"]
    time = np.asarray(run.times)
    formula = first * np.exp(time / 2) / np.sqrt(1 - first**2 + first**2 * np.exp(time))
    found = np.asarray(run.observables["order_parameter"])
    np.testing.assert_allclose(found[formula < 0.94], formula[formula < 0.94], atol=1e-7)
    np.testing.assert_allclose(found, formula, atol=1e-3)


def label_propagation(of: Shipped) -> None:
    """Shares of labels solve a linear equation, here by SciPy's expm."""
    moons, count = of.says("One label on each of {} moons spreads along them to all {} points")
    largest, most = of.says("the larger share is right everywhere from t = {} on, and is more than a half at t = {}")
    run = of.run()
    label = np.asarray(run.labels)
    assert (run.count, label.max() + 1) == (count.value, moons.value)
    places, known = np.load(of.data / "moons_places.npy"), np.load(of.data / "moons_share.npy") == 0
    assert known.sum() == moons.value
    weights = norm.pdf(np.linalg.norm(places[:, None] - places, axis=2), scale=0.1)
    matrix = np.where(known[:, None], 0.0, weights / weights.sum(axis=1, keepdims=True) - np.eye(len(places)))

    def own(time: float) -> np.ndarray:
        shares = expm(time * matrix) @ points(run)[0]
        return np.array([shares[np.arange(len(label)), label], shares[np.arange(len(label)), 1 - label]])

    np.testing.assert_allclose(own(run.times[-1])[0], points(run)[-1][np.arange(len(label)), label], atol=1e-5)
    for said, happened in ((largest, lambda x: (x[0] > x[1]).all()), (most, lambda x: (x[0] > 0.5).all())):
        assert not happened(own(said.value - said.half))
        assert happened(own(said.value + said.half))


def layer_norm(of: Shipped) -> None:
    """SciPy solves the tokens of the unit sphere of the vectors of mean 0, up to t = 2."""
    of.says("they move like tokens on the unit sphere at beta times the dimension")
    run = of.run()
    beta = of.table["drift"][0]["kernel"]["beta"] * run.dimension
    frame = np.abs(np.asarray(run.times) - 2).argmin()
    start = units(points(run)[0] - points(run)[0].mean(axis=1, keepdims=True))

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        u = flat.reshape(start.shape)
        weights = np.exp(beta * u @ u.T)
        mean = weights @ u / weights.sum(axis=1, keepdims=True)
        return (mean - np.sum(mean * u, axis=1, keepdims=True) * u).ravel()

    solved = solve_ivp(velocity, (0, run.times[frame]), start.ravel(), rtol=1e-8, atol=1e-10).y[:, -1]
    np.testing.assert_allclose(units(points(run)[frame]), solved.reshape(start.shape), atol=1e-5)


def layers(of: Shipped) -> None:
    """One step of a layer of attention in NumPy; others are of the same four steps."""
    steps, size = of.says("each of {} explicit steps x <- N(x + {} v)")
    assert len(of.table["drift"][0]["drifts"]) == of.says("{} layers, attention and linear attention in turn")[0].value
    assert of.table["time"]["step"] == size.value == of.table["drift"][0]["duration"] / steps.value
    run = points(of.run())
    attention = np.exp(8 * run[0] @ run[0].T)
    stepped = run[0] + size.value * attention @ run[0] / attention.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run[1], units(stepped), atol=1e-10)


def linear_attention(of: Shipped) -> None:
    small, large, time = of.says("{} on one side and {} on the other (t = {})")
    run = of.run()
    frame = frame_at(run, time.value)
    along = frame @ np.linalg.svd(points(run)[0])[2][0]
    assert sorted([int((along < 0).sum()), int((along > 0).sum())]) == [small.value, large.value]
    assert sizes(frame, LINK) == [large.value, small.value]
    assert np.abs(along).min() > 0.9


def linear_neighbourhoods(of: Shipped) -> None:
    """Weights of the nearest that leave no more of a point than SciPy's nnls does; labels are the larger shares."""
    (neighbours,) = of.says("the weights by which {} neighbours make up a point")
    (count,) = of.says("all {} are right at the end")
    weights = np.exp(np.load(of.data / "neighbours_log_weights.npy"))
    places = np.load(of.data / "neighbours_places.npy")
    distances = np.linalg.norm(places[:, None] - places, axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1 : int(neighbours.value) + 1]
    assert np.take_along_axis(weights, nearest, axis=1).sum(axis=1) == pytest.approx(1, abs=1e-6)
    assert weights.sum(axis=1) == pytest.approx(1, abs=1e-6)
    left = np.linalg.norm(weights @ places - places, axis=1)
    best = np.linalg.norm(reconstruction_weights(places, int(neighbours.value)) @ places - places, axis=1)
    assert (left < best + 1e-5).all()
    run = of.run()
    assert np.sum(points(run)[-1].argmax(axis=1) == np.asarray(run.labels)) == run.count == count.value


def linearised_attention(of: Shipped) -> None:
    cosine, time, one, rate = of.says(
        "mean cosine {} at t = {} and one cluster from {} on, with no plateau; 1 - cosine like e^-{}t"
    )
    run = of.run()
    assert mean_cosine(frame_at(run, time.value)) == cosine.rounded
    of.moment(one, lambda x: clusters(x, LINK) == 1)
    left = np.array([1 - mean_cosine(frame) for frame in points(run)])
    assert slope(run.times, np.log(left), 8, 14) == pytest.approx(-rate.value, abs=0.01)


def local_autoregression(of: Shipped) -> None:
    """States and the next ones; all forecasts end on the cycle, a ring, and go around it."""
    (states,) = of.says("a series of {} noisy states")
    series = np.load(of.data / "series_states.npz")
    assert len(series["points"]) + 1 == states.value
    np.testing.assert_allclose(series["points"][1:], series["values"][:-1], atol=1e-12)
    of.says("run onto its cycle and around it")
    run = points(of.run())
    angles = np.unwrap(np.arctan2(run[..., 1], run[..., 0]), axis=0)
    assert np.linalg.norm(run[-1], axis=1).min() > 0.3
    assert np.abs(angles[-1] - angles[-40]).min() > 2 * np.pi


def million_tokens(of: Shipped) -> None:
    """The mean of N random units is about N^(-1/2) long; a file of frames holds N d numbers of four bytes each."""
    (tokens,) = of.says("A {} tokens")
    _, share = of.says("noise of {} in {} grows into clusters")
    (size,) = of.says("Frames in float32: {} GB")
    initial = of.table["initial"]
    assert initial["count"] == tokens.value
    assert tokens.value**-0.5 == pytest.approx(1 / share.value)
    assert of.table["record"]["storage"] == "float32"
    assert of.table["time"]["frames"] * tokens.value * 2 * 4 / 1e9 == size.rounded
    start = np.asarray(drawn(of.name).start.points)
    assert 0.1 < np.linalg.norm(start.mean(axis=0)) * share.value < 3


def minilm_attention(of: Shipped) -> None:
    """One: cosines of all pairs above .999, at this step and not at the one before."""
    steps, entropy, early = of.says("alone, {} times: hard at first (entropy {} at step {})")
    one, above, cosine = of.says("by step {} (cosines above {}), except river and water (cosine {})")
    run = of.run()
    apart = np.isin(np.asarray(run.words), ("river", "water"))
    assert len(run) - 1 == steps.value
    assert run.observables["attention_entropy"][int(early.value)] == entropy.rounded
    for step, is_one in ((int(one.value) - 1, False), (int(one.value), True)):
        assert (cosines(points(run)[step][~apart]).min() > above.value) == is_one
    last = cosines(points(run)[-1])
    assert last[apart][:, ~apart].mean() == cosine.rounded
    assert last[apart][:, apart].min() > above.value


def minilm_feed_forward(of: Shipped) -> None:
    before, after, rank, rank_after = of.says("(mean cosine {} to {}, effective rank {} to {})")
    (steps,) = of.says("feed-forward layers alone, {} times")
    first, last = points(of.run())[[0, int(steps.value)]]
    assert mean_cosine(first) == before.rounded
    assert mean_cosine(last) == after.rounded
    assert effective_rank(first) == rank.rounded
    assert effective_rank(last) == rank_after.rounded


def minilm_repeated(of: Shipped) -> None:
    """One: cosines of all pairs above .995, at this step and not at the one before."""
    (steps,) = of.says("One trained layer, {} times")
    one, above, cosine = of.says(
        "after {} steps all tokens are one (cosines above {}) but [CLS], which stays where it began (cosine {})"
    )
    run = of.run()
    assert len(run) - 1 == steps.value
    marker = np.asarray(run.words) == "[CLS]"
    for step, is_one in ((int(one.value) - 1, False), (int(one.value), True)):
        assert (cosines(points(run)[step][~marker]).min() > above.value) == is_one
    stays = units(points(run)[:, marker][:, 0])
    wander = units(points(run)[:, ~marker].mean(axis=1))
    assert stays[0] @ stays[-1] == cosine.rounded
    assert wander[int(one.value)] @ wander[-1] < 0.5


def minilm_text(of: Shipped) -> None:
    before, after, near, nearer, least, layer, banks = of.says(
        "at every layer (mean cosine {} to {}), 'teller' to the first 'bank' from {} to {}; "
        "the two banks ({} at layer {}) end as one word ({})"
    )
    run = of.run()
    words = np.asarray(run.words)
    bank, teller = np.flatnonzero(words == "bank"), np.flatnonzero(words == "teller")[0]
    means = [mean_cosine(frame) for frame in points(run)]
    assert (np.diff(means) > 0).all()
    assert (means[0], means[-1]) == (before.rounded, after.rounded)
    first, last = cosines(points(run)[0]), cosines(points(run)[-1])
    alike = [cosines(frame)[tuple(bank)] for frame in points(run)]
    assert int(np.argmin(alike)) == layer.value
    assert min(alike) == least.rounded
    assert (first[teller, bank[0]], last[teller, bank[0]]) == (near.rounded, nearer.rounded)
    assert last[bank[0], bank[1]] == banks.rounded


def minilm_without_norm(of: Shipped) -> None:
    layers, length, longer, entropy, cosine = of.says(
        "{} trained layers without norms: lengths grow from {} to {}, attention is hard after one layer "
        "(entropy below {}), and all but [CLS] point one way (mean cosine {})"
    )
    run = of.run()
    assert len(run) - 1 == layers.value
    lengths = np.linalg.norm(points(run), axis=2).mean(axis=1)
    assert (lengths[0], lengths[-1]) == (length.rounded, longer.rounded)
    assert np.max(run.observables["attention_entropy"][1:]) < entropy.value
    assert mean_cosine(points(run)[-1][np.asarray(run.words) != "[CLS]"]) == cosine.rounded


def moons(of: Shipped) -> None:
    """A string of beads: of either moon the particles end in three clusters or more, and none holds both moons."""
    (moons,) = of.says("Heavy tails and {} moons")
    of.says("the moons become strings of beads")
    run = of.run()
    label = np.asarray(run.labels)
    assert label.max() + 1 == moons.value
    bead = linked(points(run)[-1], 0.05)
    strings = [set(bead[label == moon]) for moon in range(int(moons.value))]
    assert min(len(string) for string in strings) >= 3
    assert not set.intersection(*strings)


def near_and_far(of: Shipped) -> None:
    """The rate nears 1 from above: 1.04 at the end."""
    reach, cosine, time = of.says(
        "Softmax within {} places and linearised attention everywhere, half and half: "
        "only the far half draws neighbourhoods together, {} at t = {}"
    )
    of.says("then 1 - cosine like e^-t")
    drift = of.table["drift"][0]
    assert drift["drifts"][0]["positional"]["radius"] == reach.value
    assert drift["weights"] == [0.5, 0.5]
    run = of.run()
    assert mean_cosine(frame_at(run, time.value)) == cosine.rounded
    left = np.array([1 - mean_cosine(frame) for frame in points(run)])
    assert slope(run.times, np.log(left), 17, 20) == pytest.approx(-1, abs=0.05)


def nearest_neighbours(of: Shipped) -> None:
    nearest, remain, least = of.says(
        "the mean of its {} nearest, however far they are: smaller groups join others, {} of at least {} points remain"
    )
    assert of.table["drift"][0]["kernel"]["count"] == nearest.value
    found = sizes(points(of.run())[-1], 1e-3)
    assert len(found) == remain.value
    assert min(found) == least.value


def ngpt(of: Shipped) -> None:
    """1 − ρ falls at the rate 2 α, here 1, to a thousandth between t = 10 and 20."""
    of.says("1 - rho falls like e^(-2 alpha t)")
    run = of.run()
    left = np.array([1 - mean_cosine(frame) for frame in points(run)])
    alpha = of.table["geometry"]["alpha"]
    assert slope(run.times, np.log(np.maximum(left, 1e-300)), 10, 20) == pytest.approx(-2 * alpha, rel=1e-3)


def noise(of: Shipped) -> None:
    """Below and above the critical temperature by a fifth; of 400 tokens chance alone makes an order of about .05."""
    of.says("below the critical temperature I_1(beta)/beta a cluster holds together, above it tokens stay spread")
    beta = of.table["drift"][0]["kernel"]["beta"]
    critical = iv(1, beta) / beta
    assert of.table["temperature"] < critical
    order = {}
    for temperature in (of.table["temperature"], 0.8 * critical, 1.2 * critical):
        run = of.run(temperature=temperature)
        order[temperature] = np.mean(np.linalg.norm(points(run)[100:].mean(axis=1), axis=1))
    own, below, above = order.values()
    assert own > 0.9
    assert below > 0.5
    assert above < 0.3


def peri_norm(of: Shipped) -> None:
    """The exponent is -2 up to 1 %; the beginning is faster than that of Pre-LN by |attention| < 1."""
    of.says("a fast beginning and then the slow t^-2 of Pre-LN")
    run, other = of.run(), Shipped("pre_norm", of.folder).run()
    left, slow = (np.array([1 - mean_cosine(frame) for frame in points(each)]) for each in (run, other))
    assert slope(np.log(run.times[1:]), np.log(left[1:]), np.log(30), np.log(100)) == pytest.approx(-2, abs=0.02)
    early = (run.times > 0) & (run.times < 0.1)
    assert ((1 - left[early]) / (1 - slow[early]) > 2).all()


def post_norm_block(of: Shipped) -> None:
    """One: the cosines of all pairs above .998, at this layer and not at the one before."""
    layers, above = of.says("still one cluster after {} layers (cosines above {})")
    before, after = points(of.run())[int(layers.value) - 1 : int(layers.value) + 1]
    assert cosines(before).min() < above.value < cosines(after).min()


def pre_norm(of: Shipped) -> None:
    """The exponent is -2 and nears it from below: -2.04 at t = 80 to 100."""
    of.says("1 - rho falls only like t^-2")
    run = of.run()
    left = np.array([1 - mean_cosine(frame) for frame in points(run)])
    assert slope(np.log(run.times[1:]), np.log(left[1:]), np.log(80), np.log(100)) == pytest.approx(-2, abs=0.05)


def redrawn_values(of: Shipped) -> None:
    """Two opposite points: every cosine is ±1, and both signs occur."""
    layers, begun, ended = of.says(
        "drawn anew in each of {} layers, with mean zero: no layer attracts on average, yet tokens gather at two "
        "opposite points, because all have the same noise. The effective rank falls from {} to {}"
    )
    drift = of.table["drift"][0]
    assert (drift["count"], drift.get("value", 0.0)) == (layers.value, 0.0)
    assert of.table["time"]["end"] == pytest.approx(layers.value * drift["duration"])
    run = points(of.run())
    assert [effective_rank(run[0]), effective_rank(run[-1])] == [begun.rounded, ended.rounded]
    similar = run[-1] @ run[-1].T
    assert np.abs(similar).min() > 0.999
    assert similar.min() < 0 < similar.max()


def relaxation_labelling(of: Shipped) -> None:
    labels, before, whole, after, same = of.says(
        "A picture of {} labels, {} pixels in {} wrong: neighbours support labels until all are consistent, "
        "{} in {} wrong"
    )
    run = of.run()
    label = np.asarray(run.labels)
    assert len(np.unique(label)) == run.dimension == labels.value
    wrong = [100 * np.mean(frame.argmax(axis=1) != label) for frame in points(run)[[0, -1]]]
    assert whole.value == same.value == 100
    assert wrong == [before.rounded, after.rounded]
    assert points(run)[-1].max(axis=1).min() > 0.99


def repulsion(of: Shipped) -> None:
    """The standard deviation of distances to the nearest token over their mean."""
    value, early, some, late, end = of.says(
        "With V = {} tokens repel each other. They spread ever more evenly, and never leave the sphere: "
        "the distance to the nearest token varies by {} % (standard deviation) at t = {}, by {} % at t = {}"
    )
    assert of.table["drift"][0]["value"] == value.value
    run = of.run()
    assert of.table["time"]["end"] == end.value
    assert 100 * _unevenness(of.at(some.value)[0]) == early.rounded
    assert 100 * _unevenness(points(run)[-1]) == late.rounded
    np.testing.assert_allclose(np.linalg.norm(points(run), axis=2), 1, atol=1e-9)


def momentum(of: Shipped) -> None:
    """The same start and drift as `repulsion`, which is run beside it to the later time."""
    power, share, soon, late = of.says(
        "with inertia and Nesterov's friction {}/t: the distance to the nearest token varies by {} % (standard "
        "deviation) at t = {}, without inertia only at t = {}"
    )
    assert (of.table["geometry"]["friction"], of.table["geometry"]["vanishing"]) == (power.value, True)
    assert of.table["time"]["end"] == soon.value
    first = Shipped("repulsion", of.folder)
    assert all(of.table[key] == first.table[key] for key in ("seed", "initial", "drift"))
    assert 100 * _unevenness(points(of.run())[-1]) == share.rounded
    half, end = first.at(late.value / 2, late.value)
    assert 100 * _unevenness(end) == share.rounded
    assert 100 * _unevenness(half) > share.value


def _unevenness(places: np.ndarray) -> float:
    nearest = KDTree(places).query(places, 2)[0][:, 1]
    return float(nearest.std() / nearest.mean())


def rescaled_polytope(of: Shipped) -> None:
    """The corners are those of the hull at t = 16, where clusters are points; distances fall at the rate 1 ± 1 %."""
    of.says("the cloud's hull shrinks to a polytope")
    corners, time, tokens, near = of.says(
        "tokens come to its {} corners like e^-t, and at t = {} all {} are within {} of them"
    )
    run = of.run()
    assert (run.count, of.table["time"]["end"]) == (tokens.value, time.value)
    volumes = [ConvexHull(frame).volume for frame in points(run)[::20]]
    assert (np.diff(volumes) < 0).all()
    final = of.at(16.0)[0]
    group = linked(final, 1e-3)
    ends = np.array([final[group == each].mean(axis=0) for each in range(group.max() + 1)])
    assert len(ConvexHull(ends).vertices) == len(ends) == corners.value
    far = np.array([KDTree(ends).query(frame)[0].max() for frame in points(run)])
    assert far[-1] == near.rounded
    assert slope(run.times, np.log(far), 5, 8) == pytest.approx(-1, abs=0.01)


def rings(of: Shipped) -> None:
    """Both rings turn by more than a radian, and more clusters than rings are left."""
    (number,) = of.says("{} rings rotate while they tear into droplets")
    run = of.run()
    assert len(of.table["initial"]["radii"]) == number.value
    inner = np.linalg.norm(points(run)[0], axis=1) < np.mean(of.table["initial"]["radii"])
    angles = np.unwrap(np.arctan2(points(run)[..., 1], points(run)[..., 0]), axis=0)
    for ring in (inner, ~inner):
        assert np.mean(angles[-1] - angles[0], where=ring) > 1
    assert clusters(points(run)[-1], 0.1) > number.value


def self_localization(of: Shipped) -> None:
    """Levels are connected values, 0.05 apart or less; the lower step is the gap between the upper two."""
    levels, time, low, middle, high, within = of.says("{} levels by t = {} ({}, {} and {}, each within {})")
    before, after, end = of.says("the lower step wears off later: its jump falls from {} to {} at t = {}")
    run = of.run()
    frame = frame_at(run, time.value)
    level = linked(frame, 0.05)
    means = np.sort([frame[level == each].mean() for each in range(level.max() + 1)])
    assert len(means) == levels.value
    assert means.tolist() == [low.rounded, middle.rounded, high.rounded]
    assert max(np.abs(frame[level == each] - frame[level == each].mean()).max() for each in range(3)) < within.value
    for said, moment in ((before, time.value), (after, end.value)):
        values = np.sort(frame_at(run, moment)[:, 0])
        assert values[values > 0.7].min() - values[values < 0.7].max() == said.rounded


def sentence(of: Shipped) -> None:
    """Until the first moment there are more clusters than words; from the second on two, from the third one."""
    equal, half, meet = of.says(
        "Equal words become one by t = {}, then unlike ones; from t = {} on two halves seem final, "
        "until at t = {} they meet"
    )
    words = len(set(of.table["initial"]["text"].split()))
    of.moment(equal, lambda x: clusters(x, LINK) <= words)
    of.moment(half, lambda x: clusters(x, LINK) <= 2)
    of.moment(meet, lambda x: clusters(x, LINK) == 1)


def set_norm_attraction(of: Shipped) -> None:
    count, size = of.says("{} quantiles of a Gaussian under x <- norm(x + {} m)")
    *found, layer0, layer1, layer2, layer3 = of.says(
        "excess kurtosis goes {}, {}, {}, {} by layers {}, {}, {}, {}, to two atoms of"
    )
    atom, stragglers = of.says("to two atoms of {} and {} stragglers")
    run = of.run()
    assert (run.count, of.table["time"]["step"]) == (count.value, size.value)
    for said, layer in zip(found, (layer0, layer1, layer2, layer3), strict=True):
        assert excess_kurtosis(frame_at(run, layer.value * size.value)) == said.rounded
    groups = sizes(points(run)[-1], 0.1)
    assert groups[:2] == [atom.value, atom.value]
    assert sum(groups[2:]) == stragglers.value


def set_norm_density(of: Shipped) -> None:
    atoms, before, after, count = of.says("leaves for {} atoms, W2 to the Gaussian {} -> {}, as {} quantiles do")
    run = of.run()
    assert _normal_distance(points(run)[0], run.masses[0]) == before.rounded
    assert _normal_distance(points(run)[-1], run.masses[-1]) == after.rounded
    assert atoms.value == 2
    assert excess_kurtosis(points(run)[-1], np.asarray(run.masses[-1])) == pytest.approx(-2, abs=0.05)
    assert 0 < of.table["drift"][0]["kernel"]["beta"] < of.says("where beta < {}")[0].value
    other = of.run(**of.overrides())
    assert _normal_distance(points(other)[-1], other.masses[-1]) < 0.03  # a grain of cells, W2 = 0.21 before
    quantiles = Shipped("set_norm_repulsion", of.folder)
    drift, time = quantiles.table["drift"][0] | {"value": 1.0}, quantiles.table["time"] | {"end": float(run.times[-1])}
    atoms_alone = quantiles.run(drift=[drift], time=time | {"frames": 2})
    assert atoms_alone.count == count.value
    assert [_normal_distance(frame) for frame in points(atoms_alone)] == [before.rounded, after.rounded]


def _normal_distance(places: np.ndarray, masses: Any = None) -> float:
    """W2 of standardised numbers to N(0, 1), the root of ∫ (q(Φ(y)) − y)² φ(y) dy with their quantiles q, on a grid."""
    x = places[:, 0]
    shares = np.full(len(x), 1 / len(x)) if masses is None else np.asarray(masses) / np.sum(masses)
    standard = (x - shares @ x) / np.sqrt(shares @ (x - shares @ x) ** 2)
    order = np.argsort(standard)
    y = np.linspace(-8, 8, 16001)
    which = np.searchsorted(np.cumsum(shares[order]), norm.cdf(y))
    quantiles = standard[order][np.minimum(which, len(x) - 1)]
    return float(np.sqrt(np.trapezoid((quantiles - y) ** 2 * norm.pdf(y), y)))


def set_norm_moons(of: Shipped) -> None:
    layer, atoms = of.says("by layer {} {} atoms")
    before, after = of.says("excess kurtosis goes from {} to {} instead")
    run, other = of.run(), of.run(**of.overrides())
    assert run.times[-1] / of.table["time"]["step"] == pytest.approx(layer.value)
    assert np.sum(np.asarray(sizes(points(run)[-1], 0.1)) > 10) == atoms.value
    assert excess_kurtosis(points(run)[0]) == before.rounded
    assert excess_kurtosis(points(other)[-1]) == after.rounded


def set_norm_moons_density(of: Shipped) -> None:
    """Over the directions of the record, and over all of the plane: these differ by chance, by at most a twentieth."""
    kurtosis, later, directions, distance, farther = of.says(
        "excess kurtosis {} -> {}, sliced W2 to the Gaussian (over {} directions) {} -> {}"
    )
    kurtosis_other, distance_other = of.says("towards it, to {} and {}")
    run, other = of.run(), of.run(**of.overrides())
    some = np.random.default_rng(0).normal(size=(int(directions.value), 2))
    angles = np.pi * np.arange(180) / 180
    for each, frame, said, said_distance in (
        (run, 0, kurtosis, distance),
        (run, -1, later, farther),
        (other, -1, kurtosis_other, distance_other),
    ):
        places, masses = points(each)[frame], np.asarray(each.masses[frame])
        assert excess_kurtosis(places, masses) == said.rounded
        found = _sliced_distance(places, masses, units(some))
        assert found == said_distance.rounded
        assert found == pytest.approx(_sliced_distance(places, masses, np.c_[np.cos(angles), np.sin(angles)]), rel=0.05)


def _sliced_distance(places: np.ndarray, masses: np.ndarray, ways: np.ndarray) -> float:
    """The root mean square of W2 to the normal law over directions, of points S^(-1/2) (x - c)."""
    shares = masses / masses.sum()
    centred = places - shares @ places
    values, axes = np.linalg.eigh(centred.T @ (shares[:, None] * centred))
    standard = centred @ (axes / np.sqrt(values)) @ axes.T
    return float(np.sqrt(np.mean([_normal_distance(standard @ way[:, None], shares) ** 2 for way in ways])))


def set_norm_repulsion(of: Shipped) -> None:
    value, beta = of.says("With V = {} and beta < {} the Gaussian attracts")
    count, distance, kurtosis, near, grain, end = of.says(
        "{} uniform quantiles come from W2 = {} and excess kurtosis {} to {}, the grain of {} atoms, and to {}"
    )
    assert of.table["drift"][0]["value"] == value.value
    assert of.table["drift"][0]["kernel"]["beta"] < beta.value
    run = of.run()
    assert run.count == count.value == grain.value
    assert _normal_distance(points(run)[0]) == distance.rounded
    assert excess_kurtosis(points(run)[0]) == kurtosis.rounded
    assert _normal_distance(points(run)[-1]) == near.rounded
    assert _normal_distance(norm.ppf((np.arange(run.count) + 0.5) / run.count)[:, None]) == near.rounded
    assert excess_kurtosis(points(run)[-1]) == end.rounded


def sharpening(of: Shipped) -> None:
    (bound,) = of.says("until a value reaches {} and the run stops")
    run = of.run()
    assert run.status == "stopped by event"
    assert np.abs(points(run)[-1]).max() == pytest.approx(bound.value, abs=1e-8)


def six_local_means(of: Shipped) -> None:
    """Six products of a row-stochastic matrix, and distances from the curve that the file is made from."""
    count, before, after = of.says(
        "{} noisy tokens of a figure eight, {} from where they were without noise (root mean square), come to {}"
    )
    (lost,) = of.says("the eight is lost ({})")
    angle = 2 * np.pi * np.arange(int(count.value)) / count.value
    eight = np.stack([np.sin(angle), 0.6 * np.sin(2 * angle)], axis=1)
    found = np.loadtxt(of.data / "noisy_loop.csv", delimiter=",", skiprows=1)
    lags = np.abs(np.subtract.outer(np.arange(len(found)), np.arange(len(found))))
    run = points(of.run())
    assert len(run) == 7
    for frame in range(7):
        np.testing.assert_allclose(run[frame], found, atol=1e-12)
        weights = np.exp(-((found[:, None] - found[None]) ** 2).sum(-1) / (2 * 0.3**2)) * (lags < 3)
        found = weights @ found / weights.sum(axis=1, keepdims=True)
    everywhere = points(of.run(**of.overrides()))[-1]
    for said, cloud in ((before, run[0]), (after, run[-1]), (lost, everywhere)):
        assert abs(np.sqrt(((cloud - eight) ** 2).sum(axis=1).mean()) - said.value) <= said.half


def sliding_window(of: Shipped) -> None:
    (reach,) = of.says("Each token sees {} neighbours on either side only")
    assert of.table["drift"][0]["positional"] == {"kind": "window", "radius": reach.value}


def sqrt_scaled(of: Shipped) -> None:
    """The slope over √t nears -4 from above, as √(t/(t + 1)): -3.97 while 1 - rho is above rounding."""
    of.says("1 - rho falls like e^(-4 sqrt(t))")
    run = of.run()
    left = np.array([1 - mean_cosine(frame) for frame in points(run)])
    assert slope(np.sqrt(run.times), np.log(np.maximum(left, 1e-300)), 7, 9) == pytest.approx(-4, rel=0.01)


def transformer_block(of: Shipped) -> None:
    """Clusters of tokens .0447 sqrt(3) apart; hardly: by less than a fifteenth of the diameter until the end."""
    time, number, large, small = of.says(
        "from t = {} on {} clusters at opposite ends of an axis, of {} and {} tokens, that hardly move"
    )
    run = of.run()
    link = LINK * np.sqrt(run.dimension)
    of.moment(time, lambda x: clusters(x, link) == number.value)
    last = points(run)[-1]
    assert sizes(last, link) == [large.value, small.value]
    ends = units(np.array([last[linked(last, link) == each].mean(axis=0) for each in range(2)]))
    assert ends[0] @ ends[1] < -0.98
    assert np.linalg.norm(last - frame_at(run, time.value), axis=1).max() < 2 * np.sqrt(3) / 15


def two_heads(of: Shipped) -> None:
    """At the first time all but three tokens are in two clusters on opposite sides; at the second one is left."""
    first, cosine, meet = of.says(
        "by t = {} tokens are at both ends of one axis (mean cosine {}); at t = {} the two clusters become one"
    )
    run = of.run()
    early = frame_at(run, first.value)
    assert mean_cosine(early) == cosine.rounded
    assert sum(sizes(early, 0.5)[:2]) >= run.count - 3
    of.moment(meet, lambda x: clusters(x, LINK) == 1)
    centre = points(run).mean(axis=1)[-50:]
    turned = np.unwrap(np.arctan2(centre[:, 1], centre[:, 0]))
    assert (np.diff(turned) > 0.05).all() or (np.diff(turned) < -0.05).all()


def wigner_crystal(of: Shipped) -> None:
    """Neighbours among all copies; energies by Ewald's sum, that of the body-centred lattice by its known constant."""
    time, neighbours, distance = of.says("at t = {} each has {} neighbours at {}, a body-centred cubic lattice")
    (last,) = of.says("the energy of a charge falls to {}, that of the lattice")
    run, side = of.run(), of.table["drift"][0]["drift"]["side"]
    end = frame_at(run, time.value)
    steps = end[:, None] - end[None]
    steps -= side * np.round(steps / side)
    lengths = np.sort(np.linalg.norm(steps, axis=-1), axis=1)[:, 1:]
    near = lengths[:, : int(neighbours.value)]
    assert near.min() == distance.rounded
    assert near.max() == distance.rounded
    assert lengths[:, int(neighbours.value)].min() > 1.1 * near.max()
    count = len(end)
    first, ours = (float(ewald(x, np.ones(count), side, background=True).energy) / count for x in (points(run)[0], end))
    assert ours == last.rounded
    assert first > ours
    radius = (3 * side**3 / (4 * np.pi * count)) ** (1 / 3)
    assert -0.895929255682 / radius == last.rounded


def word_analogies(of: Shipped) -> None:
    """A pair or a group meets when it is one cluster."""
    (beta,) = of.says("at beta = {}: ")
    walk, run_ran, count, royal, six, eight, end = of.says(
        "walk meets walked (t = {}) and run ran ({}), then the royal {} meet (t = {}), "
        "then cities and countries ({} of {} by t = {})"
    )
    assert of.table["drift"][0]["kernel"]["beta"] == beta.value
    run = of.run()
    words = np.asarray(run.words).tolist()

    def met(*group: str) -> Callable[[np.ndarray], bool]:
        return lambda x: clusters(x[[words.index(word) for word in group]], LINK) == 1

    royals = ("king", "queen", "prince", "princess")
    assert (len(royals), run.times[-1]) == (count.value, end.value)
    for said, group in ((walk, ("walk", "walked")), (run_ran, ("run", "ran")), (royal, royals)):
        of.moment(said, met(*group))
    places = words[words.index("paris") : words.index("italy") + 1]
    assert len(places) == eight.value
    assert sizes(points(run)[-1][[words.index(word) for word in places]], LINK)[0] == six.value


def equiangular(of: Shipped) -> None:
    """The mean similarity and SciPy's solution of its equation, for n tokens."""
    of.says("follows one ordinary differential equation")
    run, beta = of.run(), of.table["drift"][0]["kernel"]["beta"]

    def change(_: float, rho: np.ndarray) -> np.ndarray:
        others = (run.count - 1) * np.exp(beta * rho)
        return 2 * np.exp(beta * rho) * (1 - rho) * ((run.count - 1) * rho + 1) / (np.exp(beta) + others)

    solved = solve_ivp(
        change, (0, run.times[-1]), [of.table["initial"]["rho"]], t_eval=run.times, rtol=1e-10, atol=1e-12
    )
    for frame, rho in zip(points(run), solved.y[0], strict=True):
        np.testing.assert_allclose(cosines(frame)[np.triu_indices(run.count, 1)], rho, atol=1e-8)


def long_contexts(of: Shipped) -> None:
    """The share of oneself, 1/(1 + (n − 1) n^(−γ)), goes to 0 or 1 with n; the cosine at the end says who has met."""
    (threshold,) = of.says("below gamma = {} orthogonal tokens attend to all alike and meet")
    of.says("above it each sees only itself, the more so the more there are")
    found = {}
    for gamma in (threshold.value - 0.2, threshold.value + 0.3):
        for count in (32, 256):
            last = points(of.run(**{"numbers.gamma": gamma, "initial.count": count}))[-1]
            assert last.shape == (count, count)
            found[gamma < threshold.value, count] = mean_cosine(last)
    assert min(found[True, 32], found[True, 256]) > 0.99
    assert found[False, 256] < 0.05 < found[False, 32]


def gradient_flow(of: Shipped) -> None:
    """The energy in NumPy; its slope by central differences, whose error is of second order in the frames' distance."""
    of.says("the energy's slope equals the recorded dissipation at all times")
    run, beta = of.run(), of.table["drift"][0]["kernel"]["beta"]
    energy = np.array([np.exp(beta * frame @ frame.T).mean() / (2 * beta) for frame in points(run)])
    recorded = np.asarray(run.observables["dissipation"])
    np.testing.assert_allclose(
        np.gradient(energy, run.times)[1:-1], recorded[1:-1], rtol=0.01, atol=1e-3 * recorded.max()
    )


CHECKS: dict[str, Callable[[Shipped], None]] = {
    check.__name__: check
    for check in (
        alibi, annealed_sampling, annealing, blurring_mean_shift, bounded_confidence, causal, circle_instability,
        condensing_density, contrastive, cross_attention, density_circle, density_line, density_sphere,
        depth_refinement, differential, encoder_decoder, equiangular, first_marked, first_merge, flow_of_measures,
        flow_of_points, from_file, gaussian_blow_up, gaussian_law, gpt_random, gradient_flow, gravity, gravity_cut_off,
        heat_flow,
        hopfield, hysteresis, image_patches, kernel_regression, kuramoto, label_propagation, layer_norm, layers,
        linear_attention, linear_neighbourhoods, linearised_attention,
        local_autoregression, long_contexts, million_tokens, minilm_attention, minilm_feed_forward, minilm_repeated,
        minilm_text,
        minilm_without_norm, momentum, moons, near_and_far, nearest_neighbours, ngpt, noise, peri_norm, post_norm_block,
        pre_norm, redrawn_values, relaxation_labelling, repulsion, rescaled_polytope, rings, self_localization,
        sentence,
        set_norm_attraction, set_norm_density, set_norm_moons, set_norm_moons_density, set_norm_repulsion, sharpening,
        six_local_means, sliding_window, sqrt_scaled, transformer_block, two_heads, wigner_crystal, word_analogies,
    )
}  # fmt: skip
# Their numbers are those of the file: nothing is run.
BY_DEFAULT = ("annealed_sampling", "sliding_window")
# "two by two" counts nothing.
WITHOUT_A_NUMBER = ("metastable_sphere",)


@pytest.mark.parametrize("name", by_default(CHECKS, BY_DEFAULT))
def test_a_comment_states_what_its_run_does(name, tmp_path):
    skip_without_extra(name)
    CHECKS[name](Shipped(name, tmp_path))


def test_every_comment_with_a_number_is_checked():
    with_numbers = {name for name in shipped() if re.search(r"\d", comment(name)) or numbers(comment(name))}
    assert with_numbers - set(WITHOUT_A_NUMBER) <= set(CHECKS)
    assert set(WITHOUT_A_NUMBER) <= with_numbers


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [
        ("5,000", 5000, 500),
        ("0.40", 0.4, 0.005),
        (".61", 0.61, 0.005),
        ("-2", -2, 0.5),
        ("1,234", 1234, 0.5),
        ("ten", 10, 0),
    ],
)
def test_a_number_stands_for_what_is_written_like_it(text, value, half):
    said = Stated(text)
    assert said.value == value
    assert said.half == pytest.approx(half)
    assert value + 0.99 * half == said.rounded
    assert value - 1.01 * half - 1e-9 != said.rounded
