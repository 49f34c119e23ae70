// Clusters at the shown moment: the entries of the legend, the places of rings, and the colours of particles.

const LEGEND_ITEMS = 8;

// The groups that the legend names, largest first.
function legendGroups(app) {
  const { run } = app;
  if (app.mode === "label") {
    const found = new Map(Array.from(run.arrays.label_codes, (code, j) => [code, labelName(run, code, j)]));
    return [...found].sort((a, b) => a[0] - b[0]).map(([code, name]) => ({ code, name }));
  }
  const k = app.held >= 0 ? app.held : app.player.moment.k;
  const words = (code) => (app.names.usable ? `${app.names.ofCluster(code, k)} · ` : "");
  // of a sample only the shares mean something
  const sampled = app.facts.count < app.facts.totalCount;
  const amount = (size) => (sampled ? `≈ ${formatNumber((100 * size) / run.count, 3)} %` : formatCount(size));
  return [...app.sizesAt(k)].filter(([code]) => code !== MISSING_LABEL).sort((a, b) => b[1] - a[1])
    .map(([code, size], place) => ({ code, name: (place < LEGEND_ITEMS ? words(code) : "") + amount(size) }));
}

// A given label by its number, or by the words of its particles where that says more.
function labelName(run, code, j) {
  if (!run.hasWords) return `label ${run.arrays.labels[j]}`;
  run.labelNames ??= new Map();
  if (!run.labelNames.has(code)) {
    const words = [];
    run.arrays.label_codes.forEach((other, i) => other === code && words.push(run.word(i)));
    run.labelNames.set(code, listWords(words, 2));
  }
  return run.labelNames.get(code);
}

// The radius of a ring whose area is the share of the particles in a cluster.
function massRadius(app, size) {
  return app.pointSize() / 2 + 3 + 0.09 * Math.min(app.width, app.height) * Math.sqrt(size / app.run.count);
}

// A ring is drawn around at least so many particles.
const leastRinged = (app) => Math.max(3, app.run.count / 50);

// Clusters that hold at least a fiftieth of the particles, with their centres now.
function heavyClusters(app) {
  const { run } = app;
  const { moment } = app.player;
  const least = leastRinged(app);
  const heavy = new Map();
  for (const [code, size] of app.sizesAt(moment.k)) {
    if (size >= least && code !== MISSING_LABEL) heavy.set(code, { code, size, centre: [0, 0, 0], found: 0 });
  }
  if (!heavy.size || app.camera.kind === "strip") return [];
  // a sample of the members places the ring well enough, and keeps large runs fast
  const stride = Math.max(1, Math.floor(run.count / 5000));
  const point = [0, 0, 0];
  for (let j = 0; j < run.count; j += stride) {
    const entry = heavy.get(run.cluster(j, moment.k));
    if (!entry || !run.point(j, moment, point)) continue;
    for (let c = 0; c < 3; c++) entry.centre[c] += point[c];
    entry.found++;
  }
  // a chain all around the circle has its centre where no particle is
  const apart = (entry) => run.radius && Math.hypot(...entry.centre) < 0.7 * run.radius;
  return [...heavy.values()].filter((entry) => entry.found)
    .map((entry) => ({ ...entry, centre: entry.centre.map((sum) => sum / entry.found) }))
    .filter((entry) => !apart(entry));
}

// CSS colour of particle j in stored frame k, the same as that of its point.
function particleColor(app, j, k) {
  const { colors, run } = app;
  if (app.mode === "cluster") return cssColor(colors.category(run.cluster(j, app.held >= 0 ? app.held : k)));
  if (app.mode === "label") return cssColor(colors.category(run.arrays.label_codes[j]));
  if (app.mode === "index") return cssColor(colors.scale(Math.round((32 * j) / Math.max(1, run.count - 1)) / 32));
  const [low, high] = app.speedRange;
  const level = (Math.log10(Math.max(speedOf(run, app.timeline, j, k), 1e-300)) - low) / (high - low);
  return cssColor(colors.scale(Math.round(32 * clamp(level, 0, 1)) / 32));
}
