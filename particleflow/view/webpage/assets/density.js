// A density: cells that stay, and a level for each that changes. In the plane and on the sphere cells are dots that touch;
// over a line they are a curve and around the circle bars, as in the figures; a panel shows all of time.

const TALLEST_BAR = 0.42; // of the radius

// Cells along the line or the angle, computed once: their order and their places.
function alongCells(run) {
  if (!run.along) {
    const place = run.dimension === 1
      ? (j) => run.low[0] + run.step[0] * run.codes[4 * j]
      : (j) => Math.atan2(run.low[1] + run.step[1] * run.codes[4 * j + 1], run.low[0] + run.step[0] * run.codes[4 * j]);
    const places = Float64Array.from({ length: run.count }, (_, j) => place(j));
    run.along = { places, order: Array.from(places.keys()).sort((a, b) => places[a] - places[b]) };
  }
  return run.along;
}

const isFlatPicture = ({ kind }) => kind === "line" || kind === "circle";

// Width of a cell in CSS pixels, so that neighbours touch; 0 for a dot of the usual size.
function cellSize(app) {
  const { run, camera, width, height } = app;
  const { kind, width: cell } = run.density;
  if (kind === "plane") return Math.max(1, camera.pixels(width, height) * cell + 0.6);
  if (kind !== "sphere") return 0;
  return Math.max(2, (camera.focal * camera.magnification * Math.min(width, height) * 0.5 * cell) / camera.distance);
}

// The opacity of cells: 0 where a curve or bars show them.
const cellAlpha = (app) => (isFlatPicture(app.run.density) ? 0 : 1);

function drawDensity(scene, matrix) {
  const { kind } = scene.app.run.density;
  if (kind === "line") drawProfile(scene);
  if (kind === "circle") drawBars(scene, matrix);
}

// Height of a density in the plot of a line: that of its level, which is logarithmic where the colours are.
function drawProfile({ app, over, width, height }) {
  const { run, camera, colors } = app;
  const area = camera.area(width, height);
  const { places, order } = alongCells(run);
  const path = new Path2D();
  const bottom = area.top + area.height;
  const x = (j) => area.left + (area.width * (places[j] - camera.low)) / (camera.high - camera.low);
  order.forEach((j, i) => path[i ? "lineTo" : "moveTo"](x(j), bottom - area.height * run.level(j, app.player.moment)));
  const filled = new Path2D(path);
  filled.lineTo(x(order[order.length - 1]), bottom);
  filled.lineTo(x(order[0]), bottom);
  over.fillStyle = cssColor(colors.accent, 0.2);
  over.fill(filled);
  over.strokeStyle = cssColor(colors.accent);
  over.lineWidth = 2;
  over.lineJoin = "round";
  over.stroke(path);
}

function drawProfileAxes({ app, under, width, height }) {
  const { camera, colors, run } = app;
  const area = camera.area(width, height);
  const { low, high, log } = run.density;
  const bottom = area.top + area.height;
  const ticks = log
    ? niceTicks(Math.log10(low), Math.log10(high), 5).filter(Number.isInteger).map((power) => 10 ** power)
    : niceTicks(0, high, 5);
  const level = (value) => (log ? Math.log(value / low) / Math.log(high / low) : value / high);
  const atY = (value) => bottom - area.height * level(value);
  drawLines(under, ticks.map((value) => [area.left, atY(value), area.left + area.width, atY(value)]), colors.line, 0.9, 1);
  drawLines(under, [[area.left, bottom, area.left + area.width, bottom]], colors.muted, 0.6, 1);
  drawTexts(under, ticks.map((value, i) => [distinctNumbers(ticks)[i], area.left - 8, atY(value)]), colors.muted, "right", "middle");
  const atX = (value) => area.left + (area.width * (value - camera.low)) / (camera.high - camera.low);
  const xs = niceTicks(camera.low, camera.high, Math.max(3, area.width / 90));
  drawTexts(under, xs.map((value, i) => [distinctNumbers(xs)[i], atX(value), bottom + 8]), colors.muted, "center", "top");
}

// Bars around the circle, as high as the root of the density.
function drawBars({ app, over, width, height }, matrix) {
  const { run, colors } = app;
  const { places, order } = alongCells(run);
  const [x, y] = project(matrix, width, height, [0, 0, 0], [0, 0, 0]);
  const radius = app.camera.pixels(width, height) * run.radius;
  const last = order.length - 1;
  order.forEach((j, i) => {
    const before = i ? places[order[i - 1]] : places[order[last]] - 2 * Math.PI;
    const after = i < last ? places[order[i + 1]] : places[order[0]] + 2 * Math.PI;
    const [from, to] = [(places[j] + before) / 2, (places[j] + after) / 2];
    const level = run.level(j, app.player.moment);
    const outer = radius * (1 + TALLEST_BAR * Math.sqrt(run.densityAt(level) / run.density.high));
    over.fillStyle = cssColor(colors.scale(level));
    over.strokeStyle = over.fillStyle;
    over.lineWidth = 0.6;
    over.beginPath();
    over.arc(x, y, outer, -from, -to, true);
    over.arc(x, y, radius, -to, -from);
    over.closePath();
    over.fill();
    over.stroke();
  });
}

// The density over all of time: of the cells in a pixel the densest is shown, so that no peak is lost.
class DensityPanel extends Panel {
  constructor(app) {
    super(app, app.run.density.kind === "circle" ? "density by angle" : "density by place", 1.6);
    this.followsColors = true;
  }

  paint(context, area) {
    const { run, timeline, colors } = this.app;
    const { places, order } = alongCells(run);
    const circle = run.density.kind === "circle";
    const [low, high] = circle ? [-Math.PI, Math.PI] : [places[order[0]], places[order[order.length - 1]]];
    const [columns, rows] = [Math.max(1, Math.round(area.width)), Math.min(run.count, Math.max(1, Math.round(area.height)))];
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [columns, rows];
    const ink = picture.getContext("2d");
    const image = ink.createImageData(columns, rows);
    const row = Array.from(places, (place) => clamp(Math.floor((rows * (high - place)) / (high - low)), 0, rows - 1));
    const table = Array.from({ length: 256 }, (_, i) => colors.scale(i / 255));
    for (let column = 0; column < columns; column++) {
      const moment = timeline.moment(timeline.fromUnit((column + 0.5) / columns));
      const most = new Float64Array(rows).fill(-1);
      for (let j = 0; j < run.count; j++) most[row[j]] = Math.max(most[row[j]], run.level(j, moment));
      for (let i = 0; i < rows; i++) {
        if (most[i] < 0) most[i] = i ? most[i - 1] : 0;
        const color = table[Math.round(255 * most[i])];
        image.data.set([...color, 255], 4 * (i * columns + column));
      }
    }
    ink.putImageData(image, 0, 0);
    const toY = (value) => area.top + (area.height * (high - value)) / (high - low);
    const names = { [-1]: "−π", 0: "0", 1: "π" };
    const ticks = circle ? [-Math.PI, 0, Math.PI] : niceTicks(low, high, Math.max(3, area.height / 45));
    this.guides(context, area, ticks, toY, circle ? (value) => names[Math.round(value / Math.PI)] : null);
    context.drawImage(picture, area.left, area.top, area.width, area.height);
  }

  describe() {
    return "Density over place and time. Drag to move through time.";
  }
}
