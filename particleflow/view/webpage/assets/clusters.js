// Clusters at the shown moment: the entries of the legend, the places of rings, and the colours of particles.

const LEGEND_ITEMS = 8;
const WHOLE_RADIUS = 0.044; // of the stage's shorter side: the radius of a dot that holds all of the mass, as in movies
const MOST_LAST_CLUSTERS = 12; // what figures colour by, too (analysis/clusters/last_clusters.py)
const LEAST_SHARE = 0.01;
const MOSTLY_ONE = 0.7;

// The last stored frame with 2 to 12 clusters of several particles, 1 % or more each, that hold 9 of 10 particles; no
// cluster may dominate but in the very last frame, and chains, which have no number, are no clusters. −1 without one.
function lastClusters(run) {
  if (!run.hasClusters) return -1;
  for (let k = run.frames - 1; k >= 0; k--) {
    if (!run.isSeparated(k)) continue;
    const sizes = [...run.clusterSizes(k)].filter(([code, size]) => code !== MISSING_LABEL && size > 1).map(([, size]) => size / run.count);
    const heavy = sizes.filter((share) => share >= LEAST_SHARE);
    const alike = sizes.reduce((sum, share) => sum + share * share, 0);
    const enough = heavy.reduce((sum, share) => sum + share, 0) >= 0.9;
    if (heavy.length < 2 || !enough || (alike > MOSTLY_ONE && k < run.frames - 1)) continue;
    return heavy.length <= MOST_LAST_CLUSTERS ? k : -1;
  }
  return -1;
}

// The first entries of a legend, and the one that is shown alone if it comes later.
function firstEntries(app, entries, most) {
  const kept = entries.slice(0, most);
  return [...kept, ...entries.slice(most).filter(({ code }) => code === app.only)];
}

// What the legend lists in the colours of now, {code, name}: clusters or labels; nothing where colours are a scale.
function legendEntries(app) {
  return app.run.law || !["last", "cluster", "label", "leading"].includes(app.mode) ? [] : legendGroups(app);
}

// The groups that the legend names, largest first.
function legendGroups(app) {
  const { run } = app;
  if (app.mode === "leading") return run.placed.names.map((name, code) => ({ code, name }));
  if (app.mode === "label") {
    const found = new Map(Array.from(run.arrays.label_codes, (code, j) => [code, labelName(run, code, j)]));
    return [...found].sort((a, b) => a[0] - b[0]).map(([code, name]) => ({ code, name }));
  }
  const k = app.held >= 0 ? app.held : app.player.moment.k;
  const words = (code) => (app.names.usable ? `${app.names.ofCluster(code, k)} · ` : "");
  // of a sample only the shares mean something
  const sampled = app.facts.count < app.facts.totalCount;
  const amount = (size) => (sampled ? `≈ ${formatNumber((100 * size) / run.count, 3)} %` : formatCount(size));
  const sizes = new Map(app.sizesAt(k));
  if (app.only >= 0 && !sizes.has(app.only)) sizes.set(app.only, 0); // gone by now, but still shown alone
  return [...sizes].filter(([code]) => code !== MISSING_LABEL).sort((a, b) => b[1] - a[1])
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

// How dots are drawn in frame k. A dot holds the particles at one place: its area grows with their share of the mass,
// from a point's, such that one that holds everything has `most` times the area of a point. Of several `codes` at one
// place (null for colours that are no categories) there are rings, as in figures: dots one inside the other, the most
// frequent code outermost, whose ring areas are the codes' shares. For every particle: the area of its own dot and of
// the `whole` one, in those of a point, the `mass` at its place, and the last particle there, the `anchor`; `order` draws
// places by anchors and inner dots last.
function dotsOf(run, codes, k, most) {
  const { count } = run;
  const { anchor, place, mass } = placesOf(run, k);
  const whole = new Float32Array(count);
  let largest = 1;
  for (let j = 0; j < count; j++) {
    whole[j] = Math.max(1, most * mass[j]);
    if (whole[j] > largest) largest = whole[j];
  }
  if (codes === null) return { share: whole, whole, largest, mass, anchor: null, order: null };
  const sizes = new Map(); // by place, then by code
  for (let j = 0; j < count; j++) {
    if (place[j] < count) continue; // alone
    if (!sizes.has(place[j])) sizes.set(place[j], new Map());
    const there = sizes.get(place[j]);
    there.set(codes[j], (there.get(codes[j]) ?? 0) + run.masses[j]);
  }
  const shares = new Map([...sizes].map(([at, there]) => [at, nestedShares(there)]));
  const inner = Float32Array.from(place, (at, j) => (at < count ? 1 : shares.get(at).get(codes[j])));
  return { share: inner.map((part, j) => part * whole[j]), whole, largest, mass, anchor, order: orderOf(anchor, inner) };
}

// For every particle its place in frame k, a cell of a grid (of two, one shifted by half a cell, the fuller cell counts)
// or, below `count`, its own; the last particle of that cell, and the share of the mass that is in it.
function placesOf(run, k) {
  const { count } = run;
  const [anchor, place, mass] = [new Uint32Array(count), new Float64Array(count), run.masses.slice()];
  for (let j = 0; j < count; j++) anchor[j] = place[j] = j;
  const most = new Uint32Array(count).fill(1);
  for (const [grid, shift] of [0, 0.5].entries()) {
    const cells = cellsOf(run, k, shift);
    for (let j = 0; j < count; j++) {
      const cell = cells.of[j];
      if (cells.size[cell] <= most[j]) continue;
      most[j] = cells.size[cell];
      anchor[j] = cells.last[cell];
      place[j] = (grid + 1) * count + anchor[j];
      mass[j] = cells.mass[cell];
    }
  }
  return { anchor, place, mass };
}

// The cells of a shifted grid that particles of frame k lie in, numbered as they are met, in a table with open
// addresses: for every particle its cell, for every cell its number of particles, its last one and its mass.
function cellsOf(run, k, shift) {
  const { count, masses } = run;
  const cell = 0.005 * Math.max(...run.facts.high.map((high, c) => high - run.facts.low[c]));
  const [a, b, c] = run.step.map((step) => step / cell);
  const frame = run.frame(k);
  const room = 2 ** Math.ceil(Math.log2(2 * count + 2));
  const [slots, keys] = [new Int32Array(room), new Int32Array(count + 1)]; // cells are numbered from 1
  const [of, size, last] = [new Int32Array(count), new Uint32Array(count + 1), new Uint32Array(count + 1)];
  const mass = new Float64Array(count + 1);
  let found = 0;
  for (let j = 0; j < count; j++) {
    const at = 4 * j;
    let key = (Math.floor(a * frame[at] + shift) << 18) | (Math.floor(b * frame[at + 1] + shift) << 9) | Math.floor(c * frame[at + 2] + shift);
    if (frame[at] === run.missing) key = -1 - j; // nowhere
    const mixed = Math.imul(key, 0x9e3779b1);
    let slot = (mixed ^ (mixed >>> 15)) & (room - 1); // high bits as well: a product's low ones are those of the last axis
    while (slots[slot] && keys[slots[slot]] !== key) slot = (slot + 1) & (room - 1);
    if (!slots[slot]) {
      slots[slot] = ++found;
      keys[found] = key;
    }
    const cellHere = slots[slot];
    of[j] = cellHere;
    size[cellHere]++;
    last[cellHere] = j;
    mass[cellHere] += masses[j];
  }
  return { of, size, last, mass };
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

// Clusters that hold at least a fiftieth of the particles, with their centres now, and whether each is one dot, or nearly.
function heavyClusters(app) {
  const { run } = app;
  const { moment } = app.player;
  const least = leastRinged(app);
  const heavy = new Map();
  for (const [code, size] of app.sizesAt(moment.k)) {
    if (size >= least && code !== MISSING_LABEL) heavy.set(code, { code, size, centre: [0, 0, 0], found: 0, mass: 0, most: 0 });
  }
  if (!heavy.size || app.camera.kind === "strip" || !run.isSeparated(moment.k)) return []; // chains have no middle
  // a sample of the members places the ring well enough, and keeps large runs fast
  const stride = Math.max(1, Math.floor(run.count / 5000));
  const point = [0, 0, 0];
  const { mass } = app.dots(moment.k);
  for (let j = 0; j < run.count; j += stride) {
    const entry = heavy.get(run.cluster(j, moment.k));
    if (!entry || !run.point(j, moment, point)) continue;
    for (let c = 0; c < 3; c++) entry.centre[c] += point[c];
    entry.found++;
    entry.mass += run.masses[j];
    entry.most = Math.max(entry.most, mass[j]);
  }
  // a chain all around the circle has its centre where no particle is
  const apart = (entry) => run.radius && Math.hypot(...entry.centre) < 0.7 * run.radius;
  return [...heavy.values()].filter((entry) => entry.found)
    .map((entry) => ({ ...entry, centre: entry.centre.map((sum) => sum / entry.found), isDot: entry.most > 0.9 * stride * entry.mass }))
    .filter((entry) => !apart(entry));
}

// CSS colour of particle j in stored frame k, the same as that of its point.
function particleColor(app, j, k) {
  const { colors, run } = app;
  const category = app.categoryOf(j, k);
  if (category !== null) return app.isFaint(j, k) ? cssColor(colors.muted, 0.15) : cssColor(colors.category(category));
  if (app.mode === "index") return cssColor(colors.scale(Math.round((32 * j) / Math.max(1, run.count - 1)) / 32));
  const [low, high] = app.speedRange;
  const level = (Math.log10(Math.max(speedOf(run, app.timeline, j, k), 1e-300)) - low) / (high - low);
  return cssColor(colors.scale(Math.round(32 * clamp(level, 0, 1)) / 32));
}
