// Values on places that stay, as in the figures: in the plane dots whose colour is the value, or the leading one of several
// labels, the paler the less it leads; over a line a curve of dots (place, value), above the dots of the start.

const START_DOT = 2.3; // radius in CSS pixels
const CURVE_DOT = 2.7;
const DOT_RADII = [3, 8]; // of places in the plane that are no pixels of a grid
const PLACE_COVER = 0.95; // of the distance between neighbours

// The label that leads on place j in stored frame k and its lead in [0, 1]; 0 is no lead.
function leadingLabel(run, j, k) {
  const { shades } = run.placed;
  const code = run.codes[(k * run.count + j) * 4 + 3];
  return [Math.floor(code / shades), (code % shades) / (shades - 1)];
}

// The colour and the opacity of place j at a moment; between two frames both are mixed. Opacity 0 is an empty circle.
function placedColor(app, j, moment) {
  const { run, colors } = app;
  if (run.placed.names.length === 1) return [colors.scale(run.level(j, moment)), 1];
  const [label, lead] = leadingLabel(run, j, moment.k);
  const [after, last] = leadingLabel(run, j, moment.next);
  const shade = (value) => (value > 0 ? run.placed.palest + (1 - run.placed.palest) * value : 0);
  const [from, to] = [(1 - moment.fraction) * shade(lead), moment.fraction * shade(last)];
  if (from + to === 0) return [colors.muted, 0];
  const mixed = colors.category(label).map((entry, c) => (from * entry + to * colors.category(after)[c]) / (from + to));
  return [mixed, from + to];
}

// The radius of a dot in the plane, half the side of a pixel of a grid, in CSS pixels.
function placedRadius(app) {
  const half = (PLACE_COVER * app.run.placed.gap * app.camera.pixels(app.width, app.height)) / 2;
  return (app.run.placed.grid ? Math.max(half, 1) : clamp(half, ...DOT_RADII)) * app.sizeFactor;
}

function drawPlaced(scene, matrix) {
  if (scene.app.run.placed.kind === "graph") drawGraph(scene, matrix);
  else drawPlaces(scene, matrix);
}

function drawPlaces({ app, over, width, height }, matrix) {
  const { run, player } = app;
  const radius = placedRadius(app);
  const [point, seen] = [[0, 0, 0], [0, 0, 0]];
  over.lineWidth = 0.8;
  const dots = Array.from({ length: run.count }, (_, j) => [j, ...placedColor(app, j, player.moment)]);
  dots.sort((a, b) => (a[2] > 0) - (b[2] > 0)); // empty circles lie below
  for (const [j, color, shade] of dots) {
    if (!run.point(j, player.moment, point)) continue;
    const [x, y] = project(matrix, width, height, point, seen);
    over.beginPath();
    if (run.placed.grid) over.rect(x - radius, y - radius, 2 * radius, 2 * radius);
    else over.arc(x, y, radius, 0, 2 * Math.PI);
    if (shade > 0) {
      over.fillStyle = cssColor(color, app.isFaint(j, player.moment.k) ? 0.12 * shade : shade);
      over.fill();
    } else {
      over.strokeStyle = cssColor(app.colors.muted, 0.8);
      over.stroke();
    }
  }
}

function drawGraph({ app, over, width, height }, matrix) {
  const { run, player, colors } = app;
  run.across ??= Array.from({ length: run.count }, (_, j) => j).sort((a, b) => run.codes[4 * a] - run.codes[4 * b]);
  const at = (moment) => run.across.flatMap((j) => {
    const point = [0, 0, 0];
    return run.point(j, moment, point) ? [project(matrix, width, height, point, [0, 0, 0])] : [];
  });
  const dots = (places, radius, color) => {
    over.fillStyle = cssColor(color);
    over.beginPath();
    for (const [x, y] of places) {
      over.moveTo(x + radius, y);
      over.arc(x, y, radius, 0, 2 * Math.PI);
    }
    over.fill();
  };
  const now = at(player.moment);
  dots(at({ k: 0, next: 0, fraction: 0 }), START_DOT * app.sizeFactor, colors.muted);
  over.strokeStyle = cssColor(colors.category(0));
  over.lineWidth = 2;
  over.lineJoin = "round";
  over.beginPath();
  now.forEach(([x, y], i) => over[i ? "lineTo" : "moveTo"](x, y));
  over.stroke();
  dots(now, CURVE_DOT * app.sizeFactor, colors.category(0));
}

// Places to the right and values upwards, each on a scale of its own.
function drawGraphAxes({ app, under, width, height }) {
  const { camera, colors } = app;
  const area = camera.area(width, height);
  const bottom = area.top + area.height;
  const ys = niceTicks(camera.low[1], camera.high[1], Math.max(3, area.height / 80));
  const xs = niceTicks(camera.low[0], camera.high[0], Math.max(3, area.width / 90));
  const atX = (value) => area.left + (area.width * (value - camera.low[0])) / (camera.high[0] - camera.low[0]);
  const atY = (value) => bottom - (area.height * (value - camera.low[1])) / (camera.high[1] - camera.low[1]);
  drawLines(under, ys.map((value) => [area.left, atY(value), area.left + area.width, atY(value)]), colors.line, 0.9, 1);
  drawLines(under, [[area.left, bottom, area.left + area.width, bottom]], colors.muted, 0.6, 1);
  drawTexts(under, ys.map((value, i) => [distinctNumbers(ys)[i], area.left - 8, atY(value)]), colors.muted, "right", "middle");
  drawTexts(under, xs.map((value, i) => [distinctNumbers(xs)[i], atX(value), bottom + 7]), colors.muted, "center", "top");
  drawAxisNames(under, app, area);
}

// The names of both axes: below the right end, and above the upper one.
function drawAxisNames(under, app, area) {
  const [across, up] = app.run.placed.axes;
  drawTexts(under, [[across, area.left + area.width, area.top + area.height + 21]], app.colors.muted, "right", "top", 12);
  drawTexts(under, [[up, area.left - 8, area.top - 10]], app.colors.muted, "right", "bottom", 12);
}

// The legend: the names of several labels as buttons, the scale of one value, or what the dots over a line are.
function placedLegend(app) {
  const { kind, names, low, high } = app.run.placed;
  const mark = (color, text) => {
    const item = element("span", "item");
    const dot = element("i");
    dot.style.background = cssColor(color);
    item.append(dot, element("span", "", text));
    return item;
  };
  if (kind === "graph") return [mark(app.colors.muted, "start"), mark(app.colors.category(0), "now")];
  const bar = element("i", "bar");
  bar.style.background = app.colors.rampCss();
  return [element("span", "", formatNumber(low, 2)), bar, element("span", "", formatNumber(high, 2)), element("span", "quiet", names[0])];
}
