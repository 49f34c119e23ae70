// Colours of the theme, of categories and of scales; all come from the palette that the figures use.

function parseColor(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

const cssColor = ([r, g, b], alpha = 1) => `rgba(${Math.round(r)}, ${Math.round(g)}, ${Math.round(b)}, ${alpha})`;

function darkNow() {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
}

class Colors {
  constructor(facts) {
    this.facts = facts;
    this.ofLabels = false; // whether categories are given labels, which have the colours that they have in figures
    this.refresh();
  }

  // Read the theme again after it has changed.
  refresh() {
    this.dark = darkNow();
    const name = this.dark ? "dark" : "light";
    const style = getComputedStyle(document.documentElement);
    const read = (variable) => parseColor(style.getPropertyValue(variable).trim());
    this.background = read("--card");
    this.ink = read("--ink");
    this.muted = read("--muted");
    this.line = read("--line");
    this.accent = read("--accent");
    this.categories = (this.ofLabels ? this.facts.labelPalettes : this.facts.palettes)[name].map(parseColor);
    this.ramp = this.facts.ramps[name].map(parseColor);
  }

  category(code) {
    if (code === MISSING_LABEL) return this.muted;
    return this.categories[code % this.categories.length];
  }

  // Colour of a value in [0, 1] on the continuous scale.
  scale(value) {
    const at = Math.min(1, Math.max(0, value)) * (this.ramp.length - 1);
    const index = Math.min(Math.floor(at), this.ramp.length - 2);
    return this.ramp[index].map((entry, c) => entry + (this.ramp[index + 1][c] - entry) * (at - index));
  }

  rampCss() {
    return `linear-gradient(90deg, ${this.ramp.map((color) => cssColor(color)).join(", ")})`;
  }
}

// Speeds of a run span decades: the colour scale is logarithmic between two quantiles of a sample.
function speedRange(run, timeline) {
  const stride = Math.max(1, Math.floor(run.count / 200));
  const hop = Math.max(1, Math.floor(run.frames / 300));
  const found = [];
  for (let k = 0; k + 1 < run.frames; k += hop) {
    for (let j = 0; j < run.count; j += stride) {
      const speed = speedOf(run, timeline, j, k);
      if (speed > 0) found.push(Math.log10(speed));
    }
  }
  found.sort((a, b) => a - b);
  if (!found.length) return [-1, 0];
  const quantile = (q) => found[Math.round(q * (found.length - 1))];
  const [low, high] = [quantile(0.05), quantile(0.98)];
  return high > low + 0.1 ? [Math.max(low, high - 6), high] : [high - 1, high];
}

// |x(t_{k+1}) − x(t_k)| / (t_{k+1} − t_k), in the coordinates that are shown.
function speedOf(run, timeline, j, k) {
  const next = Math.min(k + 1, run.frames - 1);
  const elapsed = timeline.frameTimes[next] - timeline.frameTimes[k];
  const a = (k * run.count + j) * 4;
  const b = (next * run.count + j) * 4;
  if (!(elapsed > 0) || run.codes[a] === run.missing || run.codes[b] === run.missing) return 0;
  let squared = 0;
  for (let c = 0; c < 3; c++) squared += ((run.codes[b + c] - run.codes[a + c]) * run.step[c]) ** 2;
  return Math.sqrt(squared) / elapsed;
}

// The colouring of figures: by given labels where they differ, else by the last clusters, by index in a run that ends in
// chains, else the first of the menu.
function firstMode(app) {
  const codes = app.run.arrays.label_codes;
  if (!app.run.density && !app.run.placed && codes?.some((code) => code !== codes[0])) return "label";
  if (app.lastClusters < 0 && app.run.hasClusters && !app.run.isSeparated(app.run.frames - 1)) return "index"; // chains
  return colorModes(app)[0][0];
}

// The ways to colour that this run allows, as [name, title].
function colorModes({ run, lastClusters }) {
  if (run.density) return [["density", run.density.kind === "points" ? "mass" : "density"]];
  if (run.placed) return [run.placed.names.length > 1 ? ["leading", "leading label"] : ["value", "value"]];
  const modes = [];
  if (lastClusters >= 0) modes.push(["last", "last clusters"]);
  if (run.hasClusters) modes.push(["cluster", "clusters now"]);
  if (run.arrays.labels) modes.push(["label", "given label"]);
  modes.push(["index", "index"]);
  if (run.frames > 1) modes.push(["speed", "speed"]);
  return modes;
}
