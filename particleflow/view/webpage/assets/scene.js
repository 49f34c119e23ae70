// What is drawn around the points: the sphere, circle, box or axes beneath them, and what belongs to single particles or
// clusters above them. The lower canvas changes with the camera only; the upper one with time.

// Parallels and meridians every 30°, as closed curves of unit vectors.
function graticule() {
  const curves = [];
  const turn = Array.from({ length: 97 }, (_, i) => (i / 96) * 2 * Math.PI);
  for (const latitude of [-60, -30, 0, 30, 60]) {
    const [c, s] = [Math.cos((latitude * Math.PI) / 180), Math.sin((latitude * Math.PI) / 180)];
    curves.push(turn.map((a) => [c * Math.cos(a), c * Math.sin(a), s]));
  }
  for (let longitude = 0; longitude < 180; longitude += 30) {
    const [c, s] = [Math.cos((longitude * Math.PI) / 180), Math.sin((longitude * Math.PI) / 180)];
    curves.push(turn.map((a) => [Math.cos(a) * c, Math.cos(a) * s, Math.sin(a)]));
  }
  return curves;
}

class Scene {
  constructor(app, under, over) {
    this.app = app;
    this.under = under.getContext("2d");
    this.over = over.getContext("2d");
    this.curves = graticule();
    this.ringed = new Set(); // clusters that have a ring in the last picture
  }

  resize(width, height, ratio) {
    this.width = width;
    this.height = height;
    for (const context of [this.under, this.over]) {
      fitCanvas(context.canvas, width, height, ratio);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
  }

  drawUnder() {
    const { app, under, width, height } = this;
    under.clearRect(0, 0, width, height);
    const kind = app.camera.kind;
    if (kind === "profile") drawProfileAxes(this);
    else if (kind === "graph") drawGraphAxes(this);
    else if (kind === "orbit" && app.run.radius) this.drawSphere();
    else if (kind === "orbit") this.drawBox();
    else if (kind === "strip") this.drawStrip();
    else if (app.run.radius) this.drawCircle();
    else this.drawAxes();
  }

  drawSphere() {
    const { app, under, width, height } = this;
    const { camera, colors } = app;
    const radius = app.run.radius;
    const matrix = camera.matrix(width, height);
    const [x, y] = project(matrix, width, height, [0, 0, 0], [0, 0, 0]);
    const outline = (camera.focal * camera.magnification * Math.min(width, height) * 0.5 * radius) / Math.sqrt(camera.distance ** 2 - radius ** 2);
    const shade = under.createRadialGradient(x - outline * 0.35, y - outline * 0.4, outline * 0.05, x, y, outline);
    shade.addColorStop(0, cssColor(colors.muted, 0.02));
    shade.addColorStop(0.75, cssColor(colors.muted, 0.07));
    shade.addColorStop(1, cssColor(colors.muted, 0.17));
    under.fillStyle = shade;
    under.beginPath();
    under.arc(x, y, outline, 0, 2 * Math.PI);
    under.fill();
    under.strokeStyle = cssColor(colors.muted, 0.55);
    under.lineWidth = 1;
    under.stroke();
    const layers = [[], [], [], []]; // from the far side to the near side
    const [near, far] = camera.cue;
    for (const curve of this.curves) {
      let last = null;
      for (const unit of curve) {
        const here = project(matrix, width, height, unit.map((entry) => entry * radius), [0, 0, 0]);
        const layer = clamp(Math.floor((4 * (far - here[2])) / (far - near)), 0, 3);
        if (last) layers[layer].push([last[0], last[1], here[0], here[1]]);
        last = here;
      }
    }
    layers.forEach((lines, layer) => drawLines(under, lines, colors.muted, [0.1, 0.15, 0.26, 0.4][layer], layer < 2 ? 0.7 : 0.9));
  }

  // Edges of the bounding box, the far ones faint, with the names of the axes.
  drawBox() {
    const { app, under, width, height } = this;
    const { camera, colors } = app;
    const { low, high } = camera;
    const matrix = camera.matrix(width, height);
    const corner = (bits) => [0, 1, 2].map((c) => ((bits >> c) & 1 ? high[c] : low[c]));
    const [near, far] = camera.cue;
    const middle = [width / 2, height / 2];
    for (let axis = 0; axis < 3; axis++) {
      let label = null;
      for (let bits = 0; bits < 8; bits++) {
        if ((bits >> axis) & 1) continue;
        const a = project(matrix, width, height, corner(bits), [0, 0, 0]);
        const b = project(matrix, width, height, corner(bits | (1 << axis)), [0, 0, 0]);
        const depth = clamp(((a[2] + b[2]) / 2 - near) / (far - near), 0, 1);
        drawLines(under, [[a[0], a[1], b[0], b[1]]], colors.muted, 0.6 - 0.48 * depth, 0.9);
        const spot = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
        const away = Math.hypot(spot[0] - middle[0], spot[1] - middle[1]);
        if (!label || away > label.away) label = { spot, away };
      }
      const push = 1 + 16 / Math.max(1, label.away);
      const at = label.spot.map((value, c) => middle[c] + (value - middle[c]) * push);
      at[0] = clamp(at[0], 20, width - 20); // a narrow stage cuts no name
      drawTexts(under, [[app.axisName(axis), ...at]], colors.muted, "center", "middle", 12);
    }
  }

  drawCircle() {
    const { app, under, width, height } = this;
    const { camera, colors } = app;
    const matrix = camera.matrix(width, height);
    const [x, y] = project(matrix, width, height, [0, 0, 0], [0, 0, 0]);
    const radius = camera.pixels(width, height) * app.run.radius;
    under.strokeStyle = cssColor(colors.muted, 0.45);
    under.lineWidth = 1;
    under.beginPath();
    under.arc(x, y, radius, 0, 2 * Math.PI);
    under.stroke();
    const marks = [];
    for (let i = 0; i < 12; i++) {
      const [c, s] = [Math.cos((i * Math.PI) / 6), Math.sin((i * Math.PI) / 6)];
      const half = i % 3 ? 3 : 6;
      marks.push([x + c * (radius - half), y + s * (radius - half), x + c * (radius + half), y + s * (radius + half)]);
    }
    drawLines(under, marks, colors.muted, 0.4, 1);
  }

  drawAxes() {
    const { app, under, width, height } = this;
    const { camera, colors } = app;
    const [left, right, top, bottom] = camera.margin;
    const scale = camera.pixels(width, height);
    const [mx, my] = camera.middle(width, height);
    const [x0, x1, y0, y1] = [left - 12, width - right + 12, top - 12, height - bottom + 12];
    const xs = niceTicks(camera.centre[0] + (x0 - mx) / scale, camera.centre[0] + (x1 - mx) / scale, Math.max(3, width / 110));
    const ys = niceTicks(camera.centre[1] - (y1 - my) / scale, camera.centre[1] - (y0 - my) / scale, Math.max(3, height / 90));
    const atX = (value) => mx + (value - camera.centre[0]) * scale;
    const atY = (value) => my - (value - camera.centre[1]) * scale;
    drawLines(under, xs.map((value) => [atX(value), y0, atX(value), y1]), colors.line, 0.9, 1);
    drawLines(under, ys.map((value) => [x0, atY(value), x1, atY(value)]), colors.line, 0.9, 1);
    drawTexts(under, xs.map((value, i) => [distinctNumbers(xs)[i], atX(value), y1 + 7]), colors.muted, "center", "top");
    drawTexts(under, ys.map((value, i) => [distinctNumbers(ys)[i], x0 - 7, atY(value)]), colors.muted, "right", "middle");
    if (app.run.placed) drawAxisNames(under, app, { left: x0, top: y0, width: x1 - x0, height: y1 - y0 });
  }

  // One dimension: every particle's path, time to the right, with the particles themselves riding on the cursor.
  drawStrip() {
    const { app, under, width, height } = this;
    const { camera, colors, timeline } = app;
    const area = camera.area(width, height);
    const atY = (value) => area.top + area.height * (1 - (value - camera.low) / (camera.high - camera.low));
    const ys = niceTicks(camera.low, camera.high, Math.max(3, area.height / 80));
    drawLines(under, ys.map((value) => [area.left, atY(value), area.left + area.width, atY(value)]), colors.line, 0.9, 1);
    if (app.run.law) drawLawStrip(this, area, atY);
    else drawPaths(under, app, area, (j, k) => app.run.low[0] + app.run.step[0] * app.run.codes[(k * app.run.count + j) * 4], atY);
    drawTexts(under, ys.map((value, i) => [distinctNumbers(ys)[i], area.left - 8, atY(value)]), colors.muted, "right", "middle");
    drawTimeTicks(under, timeline, area, colors);
  }

  drawOver() {
    const { app, over, width, height } = this;
    over.clearRect(0, 0, width, height);
    const matrix = app.camera.matrix(width, height);
    if (app.camera.kind === "strip") {
      const area = app.camera.area(width, height);
      const x = area.left + app.camera.unit * area.width;
      over.fillStyle = cssColor(app.colors.background, 0.55);
      const clear = x + app.dotRadius() + 2; // the points themselves stay bright
      over.fillRect(clear, area.top, Math.max(0, area.left + area.width - clear), area.height);
      drawLines(over, [[x, area.top - 4, x, area.top + area.height + 4]], app.colors.ink, 0.55, 1);
    }
    if (app.run.density) drawDensity(this, matrix);
    if (app.run.placed) drawPlaced(this, matrix);
    if (app.run.law && app.camera.kind !== "strip") drawLaw(this, matrix);
    this.ringed = new Set();
    if (app.showMass) this.drawMasses(matrix);
    if (app.showWords) app.names.draw(over, matrix);
    if (app.focus.selected >= 0 && !app.run.density && !app.run.placed) this.drawTrail(matrix);
    for (const [j, strong] of [[app.focus.hovered, false], [app.focus.selected, true]]) if (j >= 0) this.drawRing(matrix, j, strong);
  }

  drawRing(matrix, j, strong) {
    const { app, over, width, height } = this;
    const point = [0, 0, 0];
    if (!app.run.point(j, app.player.moment, point)) return;
    const [x, y] = project(matrix, width, height, point, [0, 0, 0]);
    over.lineWidth = strong ? 2.5 : 2;
    over.strokeStyle = cssColor(app.colors.ink, 0.95);
    over.beginPath();
    over.arc(x, y, app.dotRadius(j) + (strong ? 5 : 4), 0, 2 * Math.PI);
    over.stroke();
  }

  // The way of the selected particle so far, and faintly what is to come.
  drawTrail(matrix) {
    const { app, over, width, height } = this;
    const strip = app.camera.kind === "strip";
    const area = strip ? app.camera.area(width, height) : null;
    const parts = [[], []];
    const point = [0, 0, 0];
    let last = null;
    for (let k = 0; k < app.run.frames; k++) {
      if (!app.run.point(app.focus.selected, { k, next: k, fraction: 0 }, point)) continue;
      const here = project(matrix, width, height, point, [0, 0, 0]);
      if (strip) here[0] = area.left + app.timeline.toUnit(app.timeline.frameTimes[k]) * area.width;
      if (last) parts[k <= app.player.moment.k ? 0 : 1].push([last[0], last[1], here[0], here[1]]);
      last = here;
    }
    drawLines(over, parts[1], app.colors.ink, 0.22, 1);
    drawLines(over, parts[0], app.colors.ink, 0.85, 1.6);
  }

  // Rings whose area is the share of the particles in a cluster, around those that are not one dot yet.
  drawMasses(matrix) {
    const { app, over, width, height } = this;
    const [near, far] = app.camera.cue;
    for (const { code, size, centre, isDot } of heavyClusters(app)) {
      if (isDot || (app.only >= 0 && (app.paintMode !== "cluster" || code !== app.only))) continue;
      this.ringed.add(code);
      const [x, y, w] = project(matrix, width, height, centre, [0, 0, 0]);
      const depth = far > near ? clamp((w - near) / (far - near), 0, 1) : 0;
      const radius = massRadius(app, size);
      const color = app.mode === "cluster" && app.held < 0 ? app.colors.category(code) : app.colors.muted;
      over.beginPath();
      over.arc(x, y, radius, 0, 2 * Math.PI);
      over.fillStyle = cssColor(color, 0.13 * (1 - 0.6 * depth));
      over.fill();
      const parts = app.mode === "label" ? labelParts(app.run, code, app.player.moment.k) : [{ size }];
      over.lineWidth = app.mode === "label" ? 3 : 1.2;
      let begin = -Math.PI / 2;
      for (const part of parts) { // by labels, arcs as long as their shares
        const end = begin + (2 * Math.PI * part.size) / size;
        over.beginPath();
        over.arc(x, y, radius, begin, end);
        over.strokeStyle = cssColor(part.code === undefined ? color : app.colors.category(part.code), 0.75 * (1 - 0.7 * depth));
        over.stroke();
        begin = end;
      }
    }
  }
}
