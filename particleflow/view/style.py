"""One look for every picture: themes, colours that colour-blind readers can tell apart, and harmless text.

A *theme* is a set of colours and fonts: "light", "dark", "print" (for a paper, whose caption says what title and small
print say), and "user", which is made of the reader's own matplotlib settings. `use(name)` switches it on for a block:

    with style.use("dark"):
        axes = view.kymograph(run)

Categories take the Okabe-Ito colours first, on a dark page lighter ones of the same hues: a category has one hue in
every theme. Past seven, hues step by the golden angle in the OKLCH colour space while
the lightness alternates, so that neighbours differ in lightness too. Continuous and cyclic scales are built in the same
space with a monotone (cyclic: single-humped) lightness, so they keep their order in greyscale.
"""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from particleflow.errors import ArgumentError


@dataclass(frozen=True)
class Theme:
    """The colours and sizes of one look.

    `background` and `panel` are the colours of the page and of axes, `muted` and `grid` those of frames and lines,
    `shade` that of plateaus and of fog; `categories` are the first category colours and `lightness` the range of OKLCH
    lightness of all others. `font_size` and `line_width` are in points, `width`, of a whole figure, in inches.
    `sequential` is the matplotlib colour map of plain numbers; `annotated`, whether figures have a title and small
    print; `size`, (width, height) of every figure in inches, or None for that of each figure's own shape. `own` says
    that the settings are the user's.
    """

    name: str
    background: str
    panel: str
    text: str
    muted: str
    grid: str
    shade: str
    categories: tuple[str, ...]
    lightness: tuple[float, float]
    font: str
    font_size: float
    line_width: float
    width: float
    sequential: str = "viridis"
    annotated: bool = True
    size: tuple[float, float] | None = None
    own: bool = False

    @property
    def is_dark(self) -> bool:
        """Whether the page is darker than a middle grey."""
        from matplotlib.colors import to_rgb

        return bool(oklab(np.array(to_rgb(self.background)))[0] < 0.5)


FALLBACK = "DejaVu Sans"  # the font of letters that a theme's own lacks
_MOST_PIXELS, _MOST_INCHES = 20_000, 100.0  # of a side of a picture
_LONGEST = 300  # letters of a title
_OKABE_ITO_LIGHT = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#5D4E8C")
_OKABE_ITO_DARK = ("#008DDC", "#F7AE22", "#35D5A0", "#F27528", "#A8DCFD", "#DE81B5", "#B4A2F6")  # of the same hues
_USER = "user"
EDITABLE_TEXT: dict[str, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}  # text stays text
REPEATABLE: dict[str, Any] = {"svg.hashsalt": "particleflow"}

THEMES = {
    "light": Theme(
        "light", "#ffffff", "#ffffff", "#1c2430", "#66707d", "#e6e9ee", "#eef2f7",
        _OKABE_ITO_LIGHT, (0.46, 0.74), "DejaVu Sans", 10.0, 1.4, 6.4,
    ),
    "dark": Theme(
        "dark", "#0f141b", "#0f141b", "#e4e9f0", "#8c97a5", "#252d38", "#1a222d",
        _OKABE_ITO_DARK, (0.62, 0.86), "DejaVu Sans", 10.0, 1.4, 6.4,
    ),
    "print": Theme(
        "print", "#ffffff", "#ffffff", "#000000", "#4d4d4d", "#e0e0e0", "#efefef",
        _OKABE_ITO_LIGHT, (0.42, 0.72), "STIXGeneral", 8.0, 0.9, 3.4,
        sequential="cividis", annotated=False,
    ),
}  # fmt: skip

_current: ContextVar[Theme] = ContextVar("particleflow_theme", default=THEMES["light"])


def find(theme: str | Theme) -> Theme:
    """The theme of a name; a theme is returned as it is."""
    if isinstance(theme, Theme):
        return theme
    if theme == _USER:
        return _of_user()
    if theme not in THEMES:
        known = ", ".join(map(repr, (*THEMES, _USER)))
        raise ArgumentError(f"Argument `theme` must be one of {known}, but is {theme!r}.")
    return THEMES[theme]


def sized(theme: str | Theme, size: Any = None, dpi: Any = None) -> Theme:
    """The theme with figures of a size (width, height) in inches, if one is given.

    An error unless size and resolution `dpi` are positive and make pictures of a reasonable size.
    """
    found = find(theme)
    sides: list[float] = [found.width] if size is None else np.ravel(size).tolist()
    if size is not None and not (len(sides) == 2 and all(0 < side <= _MOST_INCHES for side in sides)):
        raise ArgumentError(
            f"Argument `size` must be a width and a height of up to {_MOST_INCHES:g} inches, but is {size!r}."
        )
    if dpi is not None and not 1 <= dpi * max(sides) <= _MOST_PIXELS:
        raise ArgumentError(f"Argument `dpi` must make pictures of 1 to {_MOST_PIXELS:,} pixels, but is {dpi!r}.")
    return found if size is None else replace(found, size=(float(sides[0]), float(sides[1])))


def _of_user() -> Theme:
    """The theme of the matplotlib settings in use: a style sheet, a matplotlibrc, or assignments to `rcParams`."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex
    from matplotlib.font_manager import FontProperties, findfont, get_font

    settings = mpl.rcParams
    names = ("figure.facecolor", "axes.facecolor", "text.color")
    background, panel, text = (_hex(_rgb(settings[name])) for name in names)
    usual = THEMES["dark" if oklab(_rgb(background))[0] < 0.5 else "light"]
    cycle = [to_hex(color) for color in settings["axes.prop_cycle"].by_key().get("color", ())]
    size = FontProperties(size=settings["font.size"]).get_size_in_points()
    muted, grid, shade = (_hex((1 - part) * _rgb(background) + part * _rgb(text)) for part in (0.6, 0.15, 0.08))
    return Theme(
        _USER, background, panel, text, muted, grid, shade, (*cycle, *usual.categories[len(cycle) :]),
        usual.lightness, get_font(findfont(FontProperties())).family_name, size, float(settings["lines.linewidth"]),
        float(settings["figure.figsize"][0]), sequential=settings["image.cmap"], own=True,
    )  # fmt: skip


def _hex(channels: np.ndarray) -> str:
    """The text #rrggbb of a colour in [0, 1], (3,)."""
    from matplotlib.colors import to_hex

    red, green, blue = channels.tolist()
    return to_hex((red, green, blue))


def _rgb(color: Any) -> np.ndarray:
    """A matplotlib colour on white paper, as sRGB in [0, 1], (3,)."""
    from matplotlib.colors import to_rgba

    *channels, opacity = to_rgba(color)
    return opacity * np.array(channels) + (1 - opacity)


def current() -> Theme:
    """The theme in use here; "light" outside every `use` block."""
    return _current.get()


def settings(theme: Theme) -> dict[str, Any]:
    """The matplotlib settings of a theme; of the user's own only those that text from files needs."""
    import matplotlib as mpl

    if theme.own:
        families = [*mpl.rcParams["font.family"], FALLBACK]
        return {"font.family": families, "text.usetex": False, **EDITABLE_TEXT, **REPEATABLE}
    return {**_page_settings(theme), **_axes_settings(theme), **_font_settings(theme)}


def _page_settings(theme: Theme) -> dict[str, Any]:
    """Settings of the figure as a whole: size, background, layout, files, and lines."""
    return {
        "figure.facecolor": theme.background,
        "figure.figsize": (theme.width, theme.width * 0.62),
        "figure.dpi": 160,
        "figure.constrained_layout.h_pad": 0.09,
        "figure.constrained_layout.w_pad": 0.09,
        "savefig.dpi": 160,
        "savefig.facecolor": theme.background,
        **EDITABLE_TEXT,
        **REPEATABLE,
        "legend.frameon": False,
        "lines.linewidth": theme.line_width,
        "lines.solid_capstyle": "round",
    }


def _axes_settings(theme: Theme) -> dict[str, Any]:
    """Settings of axes, ticks, titles and grids."""
    ticks = {
        f"{axis}tick.{name}": value
        for axis in "xy"
        for name, value in (
            ("color", theme.muted),
            ("labelcolor", theme.text),
            ("labelsize", 0.9 * theme.font_size),
            ("major.width", 0.7),
            ("minor.width", 0.5),
        )
    }
    return ticks | {
        "axes.facecolor": theme.panel,
        "axes.edgecolor": theme.muted,
        "axes.labelcolor": theme.text,
        "axes.titlecolor": theme.text,
        "axes.titleweight": "regular",
        "axes.titlelocation": "left",
        "axes.titlepad": 7.0,
        "axes.titley": 1.0,  # the default place, fixed: the search for ticks above takes a tenth of a figure's time
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": False,
        "axes.axisbelow": True,
        "grid.color": theme.grid,
        "grid.linewidth": 0.6,
    }


def _font_settings(theme: Theme) -> dict[str, Any]:
    """Settings of text: font families and their sizes; LaTeX is never run."""
    size = theme.font_size
    return {
        # the second has the glyphs that the first lacks; twice the same would be looked up twice for every word
        "font.family": list(dict.fromkeys([theme.font, FALLBACK])),
        "font.size": size,
        "axes.titlesize": 1.05 * size,
        "axes.labelsize": size,
        "axes.unicode_minus": True,
        "legend.fontsize": 0.88 * size,
        "mathtext.fontset": "stix" if theme.font.startswith("STIX") else "dejavusans",
        "text.color": theme.text,
        "text.usetex": False,
    }


@contextmanager
def use(theme: str | Theme = "light") -> Iterator[Theme]:
    """Switch a theme on for a block, for our plots and for anything else drawn with matplotlib inside it.

    After the block matplotlib's settings are what they were before.
    """
    import matplotlib as mpl

    found = find(theme)
    token = _current.set(found)
    try:
        with mpl.rc_context(settings(found)):  # pyright: ignore[reportArgumentType]
            yield found
    finally:
        _current.reset(token)


def oklch(lightness: np.ndarray, chroma: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """sRGB in [0, 1] of OKLCH colours (hue in radians): a perceptually even space, clipped to what a screen shows."""
    a, b = chroma * np.cos(hue), chroma * np.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = np.stack(
        [
            4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
        ],
        axis=-1,
    )
    linear = np.clip(linear, 0.0, 1.0)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def oklab(colors: np.ndarray) -> np.ndarray:
    """OKLab coordinates (..., 3) of sRGB colours in [0, 1]: lightness, then green to red, then blue to yellow."""
    colors = np.asarray(colors, float)
    linear = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    opponents = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.cbrt(linear @ cones.T) @ opponents.T


def differences(colors: np.ndarray) -> np.ndarray:
    """The differences of colours (k, 3), (k, k): distances in OKLab with lightness weighted by a quarter.

    Readers tell two hues apart in a crowd of dots, but hardly two blues of different lightness.
    """
    places = oklab(colors) * np.array([0.25, 1.0, 1.0])
    return np.linalg.norm(places[:, None] - places[None], axis=-1)


def palette(count: int, theme: Theme | None = None) -> np.ndarray:
    """`count` category colours, (count, 3): the theme's own first, then golden-angle hues of alternating lightness."""
    from matplotlib.colors import to_rgb

    theme = theme or current()
    own = np.array([to_rgb(color) for color in theme.categories[:count]]).reshape(-1, 3)
    index = np.arange(max(count - len(own), 0))
    low, high = theme.lightness
    lightness = low + (high - low) * ((index * 2) % 3) / 2
    hue = 0.35 + index * np.pi * (3 - np.sqrt(5))
    return np.concatenate([own, oklch(lightness, np.full(index.shape, 0.13), hue)])


def cyclic_colors(angle: np.ndarray, theme: Theme | None = None) -> np.ndarray:
    """Colours of angles in radians, (..., 3): the hue is the angle, the lightness rises and falls once around."""
    theme = theme or current()
    low, high = theme.lightness
    angle = np.nan_to_num(np.asarray(angle, float))
    lightness = (low + high) / 2 + (high - low) / 2 * np.cos(angle - 1.9)
    return oklch(lightness, np.full(angle.shape, 0.14), angle + 0.5)


def ordered_colors(value: np.ndarray, theme: Theme | None = None) -> np.ndarray:
    """Colours of values in [0, 1], (..., 3), from blue to orange; they stay inside the theme's readable lightness."""
    theme = theme or current()
    low, high = theme.lightness
    value = np.clip(np.nan_to_num(np.asarray(value, float)), 0.0, 1.0)
    return oklch(low + (high - low) * value, np.full(value.shape, 0.135), 4.55 + value * (2 * np.pi + 1.15 - 4.55))


def label_colors(labels: np.ndarray, theme: Theme | None = None) -> np.ndarray:
    """Colours of integer labels, (..., 3); a negative label (in no cluster) is grey."""
    from matplotlib.colors import to_rgb

    theme = theme or current()
    labels = np.asarray(labels).astype(np.int64)
    top = int(labels.max(initial=-1)) + 1
    table = np.concatenate([palette(top, theme), [to_rgb(theme.muted)]])
    return table[np.where(labels < 0, top, labels)]


def _density_map(theme: Theme):
    """A colour map whose zero is the colour of the page, then blue-green to the far end of the lightness scale."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    value = np.linspace(0, 1, 33)[1:]
    light = 0.26 + 0.68 * value if theme.is_dark else 0.93 - 0.66 * value
    chroma = 0.04 + 0.32 * value * (1 - value)
    hue = np.interp(value, [0, 1], [4.9, 1.75] if theme.is_dark else [3.0, 4.9])
    return LinearSegmentedColormap.from_list("density", np.vstack([to_rgb(theme.panel), oklch(light, chroma, hue)]))


def _diverging_map(theme: Theme):
    """A colour map from blue over the colour of the page, which is zero, to orange."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    ends = ["#0b4f80", "#4f9ccb"], ["#e79a4c", "#a33d05"]
    if theme.is_dark:
        ends = ["#9bd4f7", "#2c7fb0"], ["#c0611b", "#ffc58a"]
    stops = [*ends[0], theme.panel, *ends[1]]
    return LinearSegmentedColormap.from_list("diverging", [to_rgb(stop) for stop in stops])


def colormap(kind: str = "density", theme: Theme | None = None):
    """A matplotlib colour map: "density" (zero = the page), "diverging" or "sequential"."""
    theme = theme or current()
    makers = {"density": _density_map, "diverging": _diverging_map, "sequential": _sequential_map}
    if kind not in makers:
        raise ArgumentError(f"Argument `kind` must be one of {', '.join(map(repr, makers))}, but is {kind!r}.")
    return makers[kind](theme)


def _sequential_map(theme: Theme):
    """The theme's colour map of matplotlib; that of print is even in greyscale."""
    from matplotlib import colormaps

    return colormaps[theme.sequential]


@cache
def glyphs(family: str) -> frozenset[int]:
    """The code points that a font has letters for."""
    from matplotlib import font_manager

    return frozenset(font_manager.get_font(font_manager.findfont(family)).get_charmap())


def clean(text: object, limit: int = 80) -> str:
    """Clean text from files: no mathtext, no control characters, only glyphs of the font, at most `limit` characters.

    Every `$` is escaped, so that matplotlib shows it and never parses it.
    """
    kept = "".join(character for character in str(text)[: 20 * limit] if _visible(character))
    kept = " ".join(kept.split())
    if len(kept) > limit:
        kept = kept[: limit - 1].rstrip() + "…"
    known = glyphs(current().font) | glyphs(FALLBACK)
    kept = "".join(character if ord(character) in known else "?" for character in kept)
    return kept.replace("$", r"\$")


def wrapped(text: str, tail: str, width: float, size: float, most: int = 4) -> str:
    """Clean text and a tail in at most so many lines of a width in points; text that is too long ends with "…".

    Parameters: `text`; `tail`, such as a time, which is never shortened; `width` of the lines and `size` of the letters
    in points.
    """
    words, cut = clean(text, _LONGEST).split(), ""
    while True:
        joined = ", ".join(part for part in (" ".join(words) + cut, tail) if part)
        lines = _broken(joined, width, size)
        if len(lines) <= most or not words:
            return "\n".join(lines[:most])
        words, cut = words[:-1], "…"


def wrapped_parts(text: str, between: str, width: float, size: float) -> str:
    """Text in lines of a width in points, broken between its parts; a part that is longer is broken between words.

    Parameters: `between`, what stands between two parts on one line; `size` of the letters in points.
    """
    first, *others = text.split(between)
    lines = [first]
    for part in others:
        longer = f"{lines[-1]}{between}{part}"
        if _width_of(clean(longer, _LONGEST), size) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return "\n".join(wrapped(line, "", width, size) for line in lines)


def _broken(text: str, width: float, size: float) -> list[str]:
    """Text in lines of at most a width in points, broken between words, and inside of a word that is longer."""
    lines, line = [], ""
    for word in text.split():
        if line and _width_of(f"{line} {word}", size) <= width:
            line = f"{line} {word}"
            continue
        lines += [line] if line else []
        pieces = _pieces(word, width, size)
        lines += pieces[:-1]
        line = pieces[-1]
    return [*lines, line] if line else lines


def _pieces(word: str, width: float, size: float) -> list[str]:
    """A word in pieces of at most a width in points; an escaped $ is never divided."""
    pieces = [""]
    for letter in re.findall(r"\\\$|.", word):
        if pieces[-1] and _width_of(pieces[-1] + letter, size) > width:
            pieces.append("")
        pieces[-1] += letter
    return pieces


def _width_of(text: str, size: float) -> float:
    """The width of text in points, in the font of the settings in use."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0]


def _visible(character: str) -> bool:
    """Letters, marks, numbers, punctuation, symbols and white space; not controls, direction overrides, surrogates."""
    return character.isspace() or unicodedata.category(character)[0] != "C"
