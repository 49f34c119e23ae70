// Cameras. Each gives a clip matrix (column-major, as WebGL wants it) and reacts to gestures:
// `drag` and `zoom` take pixels. Three kinds: orbit (3-D), plane (2-D), strip (1-D, where x runs along time).

const LEGEND_ROOM = 11;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const normalized = (a) => a.map((entry) => entry / Math.hypot(...a));

// Screen position in CSS pixels and distance w of a world point.
function project(matrix, width, height, point, out) {
  const [x, y, z] = point;
  const w = matrix[3] * x + matrix[7] * y + matrix[11] * z + matrix[15];
  out[0] = (((matrix[0] * x + matrix[4] * y + matrix[8] * z + matrix[12]) / w) * 0.5 + 0.5) * width;
  out[1] = (0.5 - ((matrix[1] * x + matrix[5] * y + matrix[9] * z + matrix[13]) / w) * 0.5) * height;
  out[2] = w;
  return out;
}

class OrbitCamera {
  constructor(centre, radius, room, facing) {
    this.kind = "orbit";
    this.facing = facing ?? [0.65, 0.35]; // yaw and pitch of the first look
    this.centre = centre;
    this.radius = radius;
    this.focal = 1 / Math.tan((28 * Math.PI) / 360);
    this.distance = (radius * room) / Math.sin((28 * Math.PI) / 360);
    this.reset();
  }

  reset() {
    [this.yaw, this.pitch] = this.facing;
    this.magnification = 1;
  }

  drag(dx, dy, width, height) {
    const turn = Math.PI / Math.min(width, height);
    this.yaw -= dx * turn;
    this.pitch = clamp(this.pitch + dy * turn, -1.55, 1.55);
  }

  zoom(factor) {
    this.magnification = clamp(this.magnification * factor, 0.4, 60);
  }

  // Distances between which depth fades points out.
  get cue() {
    return [this.distance - this.radius, this.distance + this.radius];
  }

  get forward() {
    const [yaw, pitch] = [this.yaw, this.pitch];
    return [-Math.cos(pitch) * Math.cos(yaw), -Math.cos(pitch) * Math.sin(yaw), -Math.sin(pitch)];
  }

  matrix(width, height) {
    const forward = this.forward;
    const right = normalized(cross(forward, [0, 0, 1]));
    const up = cross(right, forward);
    const eye = this.centre.map((entry, c) => entry - forward[c] * this.distance);
    const small = Math.min(width, height);
    const [sx, sy] = [(this.focal * this.magnification * small) / width, (this.focal * this.magnification * small) / height];
    const near = Math.max(0.02 * this.radius, this.distance - 1.8 * this.radius);
    const far = this.distance + 1.8 * this.radius;
    const a = (far + near) / (far - near);
    const b = (-2 * far * near) / (far - near);
    const offset = dot(forward, eye);
    const lower = (2 * LEGEND_ROOM) / height; // a little below the middle: the legend stands above
    const columns = [0, 1, 2].map((c) => [sx * right[c], sy * up[c] - lower * forward[c], a * forward[c], forward[c]]);
    return [...columns.flat(), -sx * dot(right, eye), -sy * dot(up, eye) + lower * offset, b - a * offset, -offset];
  }
}

class PlaneCamera {
  constructor(low, high, margin) {
    this.kind = "plane";
    this.low = low;
    this.high = high;
    this.margin = margin; // pixels kept free for axes: left, right, top, bottom
    this.reset();
  }

  reset() {
    this.magnification = 1;
    this.centre = [(this.low[0] + this.high[0]) / 2, (this.low[1] + this.high[1]) / 2];
  }

  // CSS pixels per unit of length.
  pixels(width, height) {
    const [left, right, top, bottom] = this.margin;
    const spans = [this.high[0] - this.low[0] || 1e-9, this.high[1] - this.low[1] || 1e-9];
    if (spans[0] === 1e-9 && spans[1] === 1e-9) spans.fill(1);
    const fitted = Math.min((width - left - right) / spans[0], (height - top - bottom) / spans[1]);
    return Math.max(fitted, 1e-12) * this.magnification;
  }

  middle(width, height) {
    const [left, right, top, bottom] = this.margin;
    return [(width + left - right) / 2, (height + top - bottom) / 2];
  }

  drag(dx, dy, width, height) {
    const scale = this.pixels(width, height);
    this.centre = [this.centre[0] - dx / scale, this.centre[1] + dy / scale];
  }

  // Zoom about the pixel under the pointer, which stays where it is.
  zoom(factor, x, y, width, height) {
    const before = this.pixels(width, height);
    this.magnification = clamp(this.magnification * factor, 0.2, 1e4);
    const after = this.pixels(width, height);
    const [mx, my] = this.middle(width, height);
    const change = 1 / before - 1 / after;
    this.centre = [this.centre[0] + (x - mx) * change, this.centre[1] - (y - my) * change];
  }

  get cue() {
    return [0, 0];
  }

  matrix(width, height) {
    const scale = this.pixels(width, height);
    const [mx, my] = this.middle(width, height);
    const [sx, sy] = [(2 * scale) / width, (2 * scale) / height];
    const tx = (2 * mx) / width - 1 - sx * this.centre[0];
    const ty = 1 - (2 * my) / height - sy * this.centre[1];
    return [sx, 0, 0, 0, 0, sy, 0, 0, 0, 0, 0, 0, tx, ty, 0, 1];
  }
}

class StripCamera {
  constructor(low, high, margin) {
    this.kind = "strip";
    this.low = low;
    this.high = high > low ? high : low + 1;
    this.margin = margin;
    this.unit = 0; // where the time cursor stands
    this.cue = [0, 0];
  }

  reset() {}
  drag() {}
  zoom() {}

  area(width, height) {
    const [left, right, top, bottom] = this.margin;
    return { left, top, width: Math.max(1, width - left - right), height: Math.max(1, height - top - bottom) };
  }

  matrix(width, height) {
    const area = this.area(width, height);
    const sy = (2 * area.height) / (height * (this.high - this.low));
    const bottom = 1 - (2 * (area.top + area.height)) / height;
    const tx = (2 * (area.left + this.unit * area.width)) / width - 1;
    return [0, sy, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, tx, bottom - sy * this.low, 0, 1];
  }
}

// A density on a line: the coordinate runs to the right, and the height of the curve is drawn above.
class ProfileCamera extends StripCamera {
  constructor(low, high, margin) {
    super(low, high, margin);
    this.kind = "profile";
  }

  matrix(width, height) {
    const area = this.area(width, height);
    const sx = (2 * area.width) / (width * (this.high - this.low));
    const left = (2 * area.left) / width - 1;
    const bottom = 1 - (2 * (area.top + area.height)) / height;
    return [sx, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, left - sx * this.low, bottom, 0, 1];
  }
}

// Values over the places of a line: both axes fill the stage.
class GraphCamera extends StripCamera {
  constructor(low, high, margin) {
    super(0, 1, margin);
    this.kind = "graph";
    const wide = low.map((value, c) => (high[c] > value ? 0.03 * (high[c] - value) : 0.5));
    this.low = low.map((value, c) => value - wide[c]);
    this.high = high.map((value, c) => value + wide[c]);
  }

  matrix(width, height) {
    const area = this.area(width, height);
    const [sx, sy] = [area.width / width, area.height / height].map((share, c) => (2 * share) / (this.high[c] - this.low[c]));
    const [left, bottom] = [(2 * area.left) / width - 1, 1 - (2 * (area.top + area.height)) / height];
    return [sx, 0, 0, 0, 0, sy, 0, 0, 0, 0, 0, 0, left - sx * this.low[0], bottom - sy * this.low[1], 0, 1];
  }
}

// Whether the stage shows a plot whose axes stay: it can neither be turned nor enlarged.
const isFixed = ({ kind }) => ["strip", "profile", "graph"].includes(kind);

function makeCamera(run, radius) {
  const [low, high] = run.law ? lawBox(run) : [run.facts.low, run.facts.high];
  if (run.placed?.kind === "graph") return new GraphCamera(low, high, [66, 24, 62, 44]);
  if (run.placed) { // dots at the edge are whole
    const pad = 0.7 * run.placed.gap;
    return new PlaneCamera(low.map((value) => value - pad), high.map((value) => value + pad), [56, 24, 78, 58]);
  }
  if (run.dimension === 1 && run.density) return new ProfileCamera(low[0], high[0], [66, 18, 52, 40]);
  if (run.dimension === 1) return new StripCamera(low[0], high[0], [58, 18, 52, 40]);
  if (run.dimension === 2 && radius) {
    const reach = (run.density ? 1.06 + TALLEST_BAR : 1.08) * radius; // bars of a density stand on the circle
    return new PlaneCamera([-reach, -reach], [reach, reach], [24, 24, 44, 34]);
  }
  if (run.dimension === 2) return new PlaneCamera(low, high, [56, 24, 52, 44]);
  if (radius) return new OrbitCamera([0, 0, 0], radius, 1.14, run.facts.facing); // as in figures: at the last clusters
  const centre = low.map((entry, c) => (entry + high[c]) / 2);
  // the corners of a box rarely come to the edge of the stage
  const orbit = new OrbitCamera(centre, Math.hypot(...low.map((entry, c) => high[c] - entry)) / 2 || 1, 1);
  return Object.assign(orbit, { low, high }); // of the box that is drawn
}
