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

// Of sizes by category, the share of the whole that a category and those below it hold, the largest category first, with
// the share 1: dots, or stripes, of these shares on one another leave of each category a ring of its own share.
function nestedShares(sizes) {
  const parts = [...sizes].sort((a, b) => b[1] - a[1]);
  const whole = parts.reduce((sum, [, size]) => sum + size, 0);
  let outside = 0;
  return new Map(parts.map(([code, size]) => {
    const share = 1 - outside / whole;
    outside += size;
    return [code, share];
  }));
}

// Particles of several labels at one place are rings, as in figures: dots one inside the other, the most frequent label
// outermost, whose ring areas are the labels' shares. For every particle: the `share` of the area of the whole dot that
// its own covers, and the last particle at its place, the `anchor`; `order` draws places by anchors and inner dots last.
function ringsOf(run, codes, k) {
  const { count } = run;
  const { anchor, place } = placesOf(run, k);
  const sizes = new Map(); // by place, then by code
  for (let j = 0; j < count; j++) {
    if (place[j] < count) continue; // alone
    if (!sizes.has(place[j])) sizes.set(place[j], new Map());
    const there = sizes.get(place[j]);
    there.set(codes[j], (there.get(codes[j]) ?? 0) + 1);
  }
  const shares = new Map([...sizes].map(([at, there]) => [at, nestedShares(there)]));
  const share = Float32Array.from(place, (at, j) => (at < count ? 1 : shares.get(at).get(codes[j])));
  return { share, anchor, order: orderOf(anchor, share) };
}

// For every particle its place in frame k, a cell of a grid (of two, one shifted by half a cell, the fuller cell counts)
// or, below `count`, its own; and the last particle of that cell.
function placesOf(run, k) {
  const { count, step } = run;
  const cell = 0.005 * Math.max(...run.facts.high.map((high, c) => high - run.facts.low[c]));
  const frame = run.frame(k);
  const anchor = Uint32Array.from({ length: count }, (_, j) => j);
  const [place, keys] = [Float64Array.from(anchor), new Float64Array(count)];
  const most = new Uint32Array(count).fill(1);
  for (const [grid, shift] of [0, 0.5].entries()) {
    const cells = new Map();
    for (let j = 0; j < count; j++) {
      let key = 0;
      for (let c = 0; c < 3; c++) key = 512 * key + Math.floor((step[c] * frame[4 * j + c]) / cell + shift);
      keys[j] = key;
      const found = cells.get(key);
      if (found) [found.size, found.last] = [found.size + 1, j];
      else cells.set(key, { size: 1, last: j });
    }
    for (let j = 0; j < count; j++) {
      const { size, last } = cells.get(keys[j]);
      if (size <= most[j]) continue;
      most[j] = size;
      anchor[j] = last;
      place[j] = (grid + 1) * count + last;
    }
  }
  return { anchor, place };
}

// Particles in the order of their anchors, of each of these the largest share first.
function orderOf(anchor, share) {
  const { length } = anchor;
  const [order, starts, mixed] = [new Uint32Array(length), new Uint32Array(length + 1), new Set()];
  for (let j = 0; j < length; j++) {
    starts[anchor[j] + 1]++;
    if (share[j] < 1) mixed.add(anchor[j]);
  }
  for (let j = 0; j < length; j++) starts[j + 1] += starts[j];
  const next = starts.slice();
  for (let j = 0; j < length; j++) order[next[anchor[j]]++] = j;
  for (const at of mixed) order.subarray(starts[at], starts[at + 1]).sort((a, b) => share[b] - share[a]);
  return order;
}

// The labels in a cluster of frame k, the most frequent first: {code, size, j} with one particle j of each.
function labelParts(run, cluster, k) {
  const found = new Map();
  for (let j = 0; j < run.count; j++) {
    if (run.cluster(j, k) !== cluster) continue;
    const code = run.arrays.label_codes[j];
    if (!found.has(code)) found.set(code, { code, size: 0, j });
    found.get(code).size++;
  }
  return [...found.values()].sort((a, b) => b.size - a.size);
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
