// The kinds of panel: an observable, the number of clusters, the merge tree, and angles on the circle.

// A vertical scale for values: logarithmic when they are positive and span more than `decades`. A logarithmic one ends
// at the level at which values are rounding, as in the figures; `clipped` says whether values are below it.
function verticalScale(values, decades, level = 0) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (!(high >= low)) [low, high] = [0, 1];
  const log = low > 0 && high / Math.max(low, level) > 10 ** decades;
  const clipped = log && low < level;
  if (clipped) low = level;
  if (high === low) [low, high] = [low - (Math.abs(low) * 0.05 || 0.5), high + (Math.abs(high) * 0.05 || 0.5)];
  const forward = log ? Math.log10 : (value) => value;
  const [a, b] = [forward(low), forward(high)];
  const pad = 0.06 * (b - a);
  const toY = (value, area) => area.top + area.height * (1 - (forward(clipped && value < low ? low : value) - a + pad) / (b - a + 2 * pad));
  const ticks = (count) => {
    if (!log) return niceTicks(low, high, count);
    const powers = niceTicks(a, b, count).filter((power) => Math.abs(power - Math.round(power)) < 1e-6);
    if (powers.length > 1) return powers.map((power) => 10 ** Math.round(power));
    return [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].filter((value) => value >= low && value <= high);
  };
  return { toY, ticks, low, high, log, clipped };
}

// A curve with many more samples than pixels keeps the extremes of each column. With `middles`, the places half way in
// time from each sample to the next, a value changes there.
function drawCurve(context, xs, ys, middles) {
  context.beginPath();
  let open = false;
  for (let i = 0; i < xs.length; i++) {
    if (!Number.isFinite(ys[i])) open = false;
    else if (!open) {
      context.moveTo(xs[i], ys[i]);
      open = true;
    } else {
      if (middles) {
        context.lineTo(middles[i - 1], ys[i - 1]);
        context.lineTo(middles[i - 1], ys[i]);
      }
      context.lineTo(xs[i], ys[i]);
    }
  }
  context.stroke();
}

// Slanted lines across the area from one x to another.
function hatch(context, from, to, area, color) {
  context.save();
  context.beginPath();
  context.rect(from, area.top, to - from, area.height);
  context.clip();
  const lines = [];
  for (let x = from - area.height; x < to; x += 8) lines.push([x, area.top + area.height, x + area.height, area.top]);
  drawLines(context, lines, color, 1, 1);
  context.restore();
}

// Frames in which clusters are not separated have no number: they are hatched.
function hatchUncounted(context, app, area) {
  const { timeline, colors } = app;
  const { times } = timeline;
  const counts = app.arrays.counts ?? [];
  const edge = (i) => {
    const [before, after] = [times[Math.max(i - 1, 0)], times[Math.min(i, times.length - 1)]];
    return area.left + timeline.toUnit(timeline.changeBetween(before, after)) * area.width;
  };
  let first = 0;
  for (let i = 0; i <= counts.length; i++) {
    if (i < counts.length && !Number.isFinite(counts[i])) continue;
    if (i > first) hatch(context, edge(first), edge(i), area, colors.line);
    first = i + 1;
  }
}

class CurvePanel extends Panel {
  setValues(values, decades, level) {
    this.values = values;
    this.scale = verticalScale(values, decades, level);
  }

  paint(context, area) {
    const { timeline, colors } = this.app;
    const toY = (value) => this.scale.toY(value, area);
    this.guides(context, area, this.ticks(area), toY);
    const toX = (time) => area.left + timeline.toUnit(time) * area.width;
    if (this.scale.clipped) this.markRounding(context, area, toY(this.scale.low));
    const { times } = timeline;
    const middles = this.steps && Array.from(times.subarray(1), (time, i) => toX(timeline.changeBetween(times[i], time)));
    context.strokeStyle = cssColor(colors.accent);
    context.lineWidth = 1.8;
    context.lineJoin = "round";
    drawCurve(context, Array.from(times, toX), Array.from(this.values, toY), middles);
  }

  // A dotted line at the level below which values are rounding errors.
  markRounding(context, area, y) {
    const { colors } = this.app;
    context.setLineDash([1, 3]);
    drawLines(context, [[area.left, y, area.left + area.width, y]], colors.muted, 1, 1);
    context.setLineDash([]);
    drawTexts(context, [["at rounding", area.left + area.width - 3, y - 3]], colors.muted, "right", "bottom", 11);
  }

  ticks(area) {
    return this.scale.ticks(Math.max(3, Math.floor(area.height / 42)));
  }

  current() {
    const place = locate(this.app.timeline.times, this.app.player.time);
    return this.steps ? this.values[nearest(place)] : interpolate(this.values, place);
  }

  markerHeight(area) {
    return this.scale.toY(this.current(), area);
  }

  readout() {
    return formatNumber(this.current(), 5);
  }

  describe() {
    const range = `${formatNumber(this.scale.low)} to ${formatNumber(this.scale.high)}`;
    return `${this.title} over ${this.app.facts.unit ?? "time"}, ${range}. Drag to move through time.`;
  }
}

class SeriesPanel extends CurvePanel {
  constructor(app) {
    super(app, "", 1);
    const names = app.facts.observables;
    this.steps = false;
    if (names.length > 1) {
      this.select = element("select", "name");
      this.select.setAttribute("aria-label", "Observable");
      names.forEach((name, i) => this.select.append(new Option(name.replaceAll("_", " "), i)));
      this.heading.replaceWith(this.select);
      this.select.addEventListener("change", () => {
        this.choose(Number(this.select.value));
        this.draw();
      });
    }
    this.choose(0);
  }

  choose(number) {
    this.title = this.app.facts.observables[number].replaceAll("_", " ");
    if (!this.select) this.heading.textContent = this.title;
    this.setValues(this.app.arrays["observable" + number], 3, this.app.facts.levels[number]);
  }
}

class CountPanel extends CurvePanel {
  constructor(app) {
    super(app, app.facts.counted, 1);
    this.title = `number of ${app.facts.counted}`;
    this.steps = true;
    this.setValues(app.arrays.counts, 1.3);
  }

  // Clusters come in whole numbers.
  ticks(area) {
    return super.ticks(area).filter((value) => Number.isInteger(value));
  }

  readout() {
    return Number.isFinite(this.current()) ? formatCount(this.current()) : withoutCount(this.app);
  }

  paint(context, area) {
    hatchUncounted(context, this.app, area);
    super.paint(context, area);
  }
}

const LEAST_STRIPE = 1; // pixel: narrower ones would blur to a colour that is not there

class TreePanel extends Panel {
  constructor(app) {
    super(app, "merge tree", 1.5);
    const { arrays, facts } = app;
    const names = ["y", "birth", "death", "size", "label", "join"];
    this.branches = Object.fromEntries(names.map((name) => [name, arrays["tree_" + name]]));
    this.total = facts.tree;
    this.times = arrays.merge_times;
  }

  paint(context, area) {
    const { timeline, run } = this.app;
    const { y, birth, death, size, label, join } = this.branches;
    const most = Math.max(...size, 1);
    const toY = (value) => area.top + value * area.height;
    hatchUncounted(context, this.app, area);
    context.lineCap = "butt";
    const order = Array.from(y.keys()).sort((a, b) => size[a] - size[b]);
    for (const i of order) {
      const [x0, x1] = [birth[i], death[i]].map((time) => area.left + timeline.toUnit(time) * area.width);
      const lines = [[x0 - 0.5, toY(y[i]), x1 + 0.5, toY(y[i])]]; // a little longer, so that no seam shows
      if (Number.isFinite(join[i])) lines.push([x1, toY(y[i]), x1, toY(join[i])]);
      const width = 0.9 + 4.6 * Math.sqrt(size[i] / most) * Math.min(1, area.height / 90);
      for (const [color, share] of this.stripes(i)) {
        if (share === 1 || width * share >= LEAST_STRIPE) drawLines(context, lines, color, 1, width * share);
      }
    }
  }

  // The colours of a branch and the shares of its width that they are drawn in, the whole width first: that of its
  // cluster, or those of its labels.
  stripes(i) {
    const { run, colors, mode, timeline } = this.app;
    const { label, birth } = this.branches;
    if (!run.hasClusters || label[i] < 0) return [[colors.accent, 1]];
    if (mode !== "label") return [[colors.category(label[i]), 1]];
    const parts = labelParts(run, label[i], nearest(locate(timeline.frameTimes, birth[i])));
    const shares = nestedShares(new Map(parts.map(({ code, size }) => [code, size])));
    return [...shares].map(([code, share]) => [colors.category(code), share]);
  }

  readout() {
    const left = this.total - this.done();
    return left === 0 ? "no merge to come" : left === 1 ? "1 merge to come" : `${left} merges to come`;
  }

  // Merges up to the cursor.
  done() {
    let [low, high] = [0, this.times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= this.app.player.time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  describe() {
    return `Merge tree with ${this.total} merges; time runs to the right. Drag to move through time.`;
  }
}

// Angles of particles on the circle against time.
class AnglePanel extends Panel {
  constructor(app) {
    super(app, "angle", 1.5);
    this.followsColors = true;
  }

  paint(context, area) {
    const { run } = this.app;
    const toY = (value) => area.top + area.height * (0.5 - value / (2 * Math.PI));
    const names = { [-1]: "−π", 0: "0", 1: "π" };
    this.guides(context, area, [-Math.PI, 0, Math.PI], toY, (value) => names[Math.round(value / Math.PI)]);
    const angle = (j, k) => {
      const at = (k * run.count + j) * 4;
      return Math.atan2(run.low[1] + run.step[1] * run.codes[at + 1], run.low[0] + run.step[0] * run.codes[at]);
    };
    drawPaths(context, this.app, area, angle, toY, Math.PI);
  }

  describe() {
    return "Angle of the particles over time. Drag to move through time.";
  }
}
