// Descriptions of the run, of a moment and of a particle, as plain text that is never parsed as markup.

function describeMoment(app) {
  const index = nearest(locate(app.timeline.times, app.player.time));
  const count = app.arrays.counts ? `, ${describeCount(app, app.arrays.counts[index])}` : "";
  return `${app.facts.unit ? "" : "time "}${timeText(app).replace("t = ", "")}${count}`;
}

// The time that is shown, "t = 3.2", or "layer 3" where figures count layers.
function timeText({ facts, player }) {
  return facts.unit ? `${facts.unit} ${formatNumber(player.time, 9)}` : `t = ${formatNumber(player.time)}`;
}

// What a number that is not known means: chains, which are not separated, or a density that is nearly even.
const withoutCount = (app) => (app.facts.counted === "peaks" ? "no peak yet" : "chains, not separated");

// "3 clusters", or why there is no number.
function describeCount(app, count) {
  return Number.isFinite(count) ? `${formatCount(count)} ${app.facts.counted}` : withoutCount(app);
}

// Facts of the run, what the page shows of it and what it leaves out, as [name, text].
function runFacts(app) {
  const { facts } = app;
  const share = (shown, total, why) =>
    shown < total ? `${formatCount(shown)} of ${formatCount(total)}, ${why}` : formatCount(total);
  const rows = [
    [facts.density ? "Cells" : facts.placed ? "Places" : facts.law ? "Nodes that carry the law, not drawn" : "Particles", share(facts.count, facts.totalCount, "drawn at random to keep the file small")],
    ["Frames", share(facts.frameCount, facts.totalFrames, `closest together where ${facts.density ? "most mass moves" : "the particles move most"}`)],
  ];
  rows.push([facts.unit ? `${facts.unit[0].toUpperCase()}${facts.unit.slice(1)}s` : "Time", `${formatNumber(app.timeline.begin)} to ${formatNumber(app.timeline.end)}`]);
  rows.push(["Geometry", `${facts.geometry || "not stated"}, ${facts.dimension} coordinate${facts.dimension === 1 ? "" : "s"}`]);
  if (facts.explained !== null) {
    const kept = `${formatNumber(100 * facts.explained, 3)} % of the variance`;
    const method = `first three principal components of ${facts.dimension} coordinates (singular value decomposition)`;
    rows.push(["Projection", `${method}, ${kept}; coordinates and speeds are those of the projection`]);
  }
  const error = Math.max(...facts.step) / 2;
  const precision = `${facts.bits} bits a coordinate, off by at most ${formatNumber(error, 2)}`;
  rows.push(["Precision", `${precision}; ${facts.map ? "nothing is between two steps of the map" : "between frames points are interpolated"}`]);
  if (facts.lost) rows.push(["Not drawn", `${facts.lost}: too large for a number in every frame`]);
  if (facts.threshold) rows.push([facts.density ? "Peaks" : "Clusters", facts.threshold]);
  if (facts.runs !== null) rows.push(["Ensemble", `the first of ${facts.runs} runs is shown`]);
  if (facts.seed !== null) rows.push(["Seed", facts.seed]);
  if (facts.status) rows.push(["Status", facts.status]);
  return rows;
}

function describeParticle(app, j) {
  const { run, arrays } = app;
  const { moment } = app.player;
  const point = [0, 0, 0];
  if (!run.point(j, moment, point)) return [["particle", String(run.number(j))], ["state", "not finite"]];
  const rows = run.hasWords ? [["word", run.word(j)]] : [];
  rows.push([run.density ? "cell" : run.placed ? "place" : "particle", String(run.number(j))]);
  if (run.placed?.kind === "places") rows.push(placedRow(run, j, moment));
  if (run.density) rows.push([run.density.kind === "points" ? "mass" : "density", formatNumber(run.densityAt(run.level(j, moment)), 3)]);
  if (arrays.positions_of) rows.push(["position", formatNumber(arrays.positions_of[j], 6)]);
  if (arrays.labels) rows.push(["label", String(arrays.labels[j])]);
  if (run.hasClusters) {
    const code = run.cluster(j, moment.k);
    const size = app.sizesAt(moment.k).get(code);
    const noun = app.facts.count < app.facts.totalCount ? "shown particle" : "particle";
    const named = `${formatCount(code + 1)} (${formatCount(size)} ${noun}${size === 1 ? "" : "s"})`;
    rows.push(["cluster", code === MISSING_LABEL ? "none" : named]);
    if (arrays.labels && code !== MISSING_LABEL && size > 1) {
      const parts = labelParts(run, code, moment.k).map((part) => `${formatCount(part.size)} of ${labelName(run, part.code, part.j)}`);
      rows.push(["its labels", parts.slice(0, 4).join(", ") + (parts.length > 4 ? ` +${parts.length - 4}` : "")]);
    }
    if (app.names.usable && code !== MISSING_LABEL && size > 1) rows.push(["its words", app.names.ofCluster(code, moment.k, 5)]);
  }
  if (arrays.weights) rows.push(["weight", formatNumber(arrays.weights[j])]);
  for (let c = 0; c < run.dimension; c++) {
    // no more digits than were stored
    const digits = clamp(Math.floor(-Math.log10(run.step[c])), 0, 12);
    rows.push([run.dimension === 1 ? "x" : app.axisName(c), formatNumber(Number(point[c].toFixed(digits)), 6)]);
  }
  const speed = speedOf(run, app.timeline, j, Math.max(0, Math.min(moment.k, run.frames - 2)));
  if (run.frames > 1 && !run.density && !run.placed) rows.push(["speed", formatNumber(speed, 3)]);
  return rows;
}

// What there is on a place in the plane: its value, or the label that leads there in the last stored frame.
function placedRow(run, j, moment) {
  const { names, low, high } = run.placed;
  if (names.length === 1) return ["value", formatNumber(low + (high - low) * run.level(j, moment), 4)];
  const [label, lead] = leadingLabel(run, j, moment.k);
  return ["leads", lead > 0 ? names[label] : "none"];
}

function showHeading(facts) {
  byId("title").textContent = facts.title || "Untitled run";
  const noun = facts.density ? "cell" : facts.placed ? "place" : facts.law ? "node" : "particle";
  const parts = facts.law ? ["normal law"] : [`${formatCount(facts.totalCount)} ${noun}${facts.totalCount === 1 ? "" : "s"}`];
  const circle = facts.radius && facts.dimension === 2;
  if (facts.geometry) parts.push(circle ? "circle" : facts.geometry.replaceAll("_", " "));
  const counted = facts.placed ? "value" : "dimension";
  parts.push(`${facts.dimension} ${counted}${facts.dimension === 1 ? "" : "s"}${facts.placed ? " on each" : ""}`);
  const kept = `${formatNumber(100 * (facts.explained ?? 1), 3)} % of the variance`;
  if (facts.explained !== null) parts.push(`projected on 3 principal components (${kept})`);
  const frames = `${formatCount(facts.totalFrames)} frame${facts.totalFrames === 1 ? "" : "s"}`;
  parts.push(facts.frameCount < facts.totalFrames ? `${formatCount(facts.frameCount)} of ${frames}` : frames);
  if (facts.count < facts.totalCount) parts.push(`${formatCount(facts.count)} ${noun}s shown`);
  if (facts.radius && facts.shownDimension === 3 && !facts.density) parts.push(facts.behind.note);
  if (facts.runs !== null) parts.push(`run 1 of ${facts.runs}`);
  const unbroken = parts.map((part) => (part.length < 40 ? part.replaceAll(" ", "\u00a0") : part));
  byId("subtitle").textContent = unbroken.join(" · ");
}
