// A normal law: ellipses of one and two standard deviations around its mean, on a line these as lines. The points that
// carry it are the nodes of a quadrature, whose weighted mean and covariance are those of the law; they are not drawn.

const DEVIATIONS = [1, 2];

// The mean and the covariance of the nodes at a moment; null where a node is missing.
function lawMoments(run, moment) {
  const d = run.dimension;
  const [mean, point] = [Array(d).fill(0), [0, 0, 0]];
  const covariance = mean.map(() => Array(d).fill(0));
  const { weights } = run.arrays;
  const whole = weights ? weights.reduce((sum, weight) => sum + weight, 0) : run.count;
  const weight = (j) => (weights ? weights[j] : 1) / whole;
  for (let j = 0; j < run.count; j++) {
    if (!run.point(j, moment, point)) return null;
    for (let c = 0; c < d; c++) mean[c] += weight(j) * point[c];
  }
  for (let j = 0; j < run.count; j++) {
    run.point(j, moment, point);
    for (let a = 0; a < d; a++) {
      for (let b = 0; b < d; b++) covariance[a][b] += weight(j) * (point[a] - mean[a]) * (point[b] - mean[b]);
    }
  }
  return { mean, covariance };
}

// The columns f of a factor F of the covariance S = F Fᵀ (Cholesky).
function lawFactor(covariance) {
  const d = covariance.length;
  const columns = covariance.map(() => Array(d).fill(0));
  for (let c = 0; c < d; c++) {
    for (let r = c; r < d; r++) {
      const rest = columns.slice(0, c).reduce((left, f) => left - f[r] * f[c], covariance[r][c]);
      if (r === c) columns[c][c] = Math.sqrt(Math.max(rest, 0));
      else columns[c][r] = columns[c][c] > 0 ? rest / columns[c][c] : 0;
    }
  }
  return columns;
}

// Closed curves on the surface of so many deviations, one for each pair of columns of the factor.
function lawCurves({ mean, covariance }, deviations) {
  const factor = lawFactor(covariance);
  const curves = [];
  for (let a = 0; a < factor.length; a++) {
    for (let b = a + 1; b < factor.length; b++) {
      curves.push(Array.from({ length: 181 }, (_, i) => {
        const [x, y] = [Math.cos((i * Math.PI) / 90), Math.sin((i * Math.PI) / 90)].map((part) => deviations * part);
        return [0, 1, 2].map((c) => (mean[c] ?? 0) + x * (factor[a][c] ?? 0) + y * (factor[b][c] ?? 0));
      }));
    }
  }
  return curves;
}

// The box of all that lies within 2.2 standard deviations in some frame: [low, high].
function lawBox(run) {
  const box = [Array(run.dimension).fill(Infinity), Array(run.dimension).fill(-Infinity)];
  for (let k = 0; k < run.frames; k++) {
    const law = lawMoments(run, { k, next: k, fraction: 0 });
    if (!law) continue;
    law.mean.forEach((value, c) => {
      const reach = 2.2 * Math.sqrt(Math.max(law.covariance[c][c], 0));
      box[0][c] = Math.min(box[0][c], value - reach);
      box[1][c] = Math.max(box[1][c], value + reach);
    });
  }
  return box.every((corner) => corner.every(Number.isFinite)) ? box : [run.facts.low, run.facts.high];
}

function drawLaw({ app, over, width, height }, matrix) {
  const law = lawMoments(app.run, app.player.moment);
  if (!law) return;
  for (const deviations of DEVIATIONS) {
    for (const curve of lawCurves(law, deviations)) {
      const seen = curve.map((point) => project(matrix, width, height, point, [0, 0, 0]));
      drawLines(over, seen.slice(1).map((here, i) => [seen[i][0], seen[i][1], here[0], here[1]]), app.colors.accent, 1, 2.4 / deviations);
    }
  }
}

// On a line: the mean and the deviations over time.
function drawLawStrip({ app, under }, area, atY) {
  const { run, timeline, colors } = app;
  const laws = Array.from({ length: run.frames }, (_, k) => lawMoments(run, { k, next: k, fraction: 0 }));
  for (const deviations of [-2, -1, 0, 1, 2]) {
    const seen = laws.flatMap((law, k) => (law
      ? [[area.left + timeline.toUnit(timeline.frameTimes[k]) * area.width, atY(law.mean[0] + deviations * Math.sqrt(Math.max(law.covariance[0][0], 0)))]]
      : []));
    drawLines(under, seen.slice(1).map((here, i) => [...seen[i], ...here]), colors.accent, 1, deviations ? 2.4 / Math.abs(deviations) : 1);
  }
}
