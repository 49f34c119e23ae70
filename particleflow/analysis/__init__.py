"""Numbers from a trajectory alone: clusters and how they merge, plateaus, rates, distances, modes, agreement.

NumPy and SciPy only. Names are imported when they are first used.
"""

from importlib import import_module

_NAMES = {
    "agreement": ("adjusted_rand_index", "normalized_mutual_information", "silhouette"),
    "attention": ("AttentionStatistics", "attention_matrix", "attention_statistics"),
    "clusters": (
        "Threshold",
        "choose_threshold",
        "chordal_from_angle",
        "chordal_from_inner",
        "cluster_count",
        "cluster_counts",
        "cluster_labels",
        "cluster_masses",
        "effective_count",
        "inner_from_chordal",
    ),
    "convergence": ("ConvergenceFit", "convergence_slope"),
    "distances": ("energy_distance", "sliced_wasserstein2", "wasserstein2"),
    "merge_tree": ("Birth", "Merge", "MergeTree"),
    "modes": ("fourier_amplitudes", "growth_rates", "growth_window", "harmonic_amplitudes", "mode_amplitudes"),
    "parking": ("expected_centres", "parking_centres", "parking_separation"),
    "persistence": ("counts_by_threshold", "largest_gap", "persistence_diagram", "single_linkage"),
    "plateaus": ("Plateau", "collapse_time", "find_plateaus"),
    "rates": ("LineFit", "RateFit", "better_law", "fit_exponential", "fit_line", "fit_power_law"),
    "similarity": ("SimilarityQuantiles", "similarity_quantiles"),
    "summary": ("summarize", "write_summary"),
    "tracking": ("ClusterTrack", "track_clusters"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(f"particleflow.analysis.{_HOME[name]}"), name)
    raise AttributeError(f"module 'particleflow.analysis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
