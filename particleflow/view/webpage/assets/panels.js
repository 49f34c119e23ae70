// A panel: a caption with the value at the cursor, a plot over the common time scale, and the cursor. All panels have the
// same gutters, so their cursors stand exactly under one another. The plot is drawn when its size, theme or scale
// changes; moving the cursor only moves three small elements.

const GUTTER = { left: 54, right: 14, top: 8, bottom: 8 };

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

class Panel {
  constructor(app, name, grow) {
    this.app = app;
    this.root = element("figure", "panel");
    this.root.style.flexGrow = grow;
    this.root.style.setProperty("--grow", grow);
    this.caption = element("figcaption");
    this.heading = element("span", "name", name);
    this.value = element("span", "value");
    this.caption.append(this.heading, this.value);
    this.plot = element("div", "plot");
    this.canvas = element("canvas");
    this.canvas.setAttribute("role", "img");
    this.veil = element("div", "veil");
    this.cursor = element("div", "cursor");
    this.dot = element("div", "dot");
    this.plot.append(this.canvas, this.veil, this.cursor, this.dot);
    this.root.append(this.caption, this.plot);
    this.context = this.canvas.getContext("2d");
    this.showsTicks = false;
    this.listen();
  }

  // Dragging anywhere in the plot moves time.
  listen() {
    const scrub = (event) => {
      const box = this.plot.getBoundingClientRect();
      const width = box.width - GUTTER.left - GUTTER.right;
      this.app.player.seekUnit((event.clientX - box.left - GUTTER.left) / width);
    };
    this.plot.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      this.plot.setPointerCapture(event.pointerId);
      this.app.player.pause();
      scrub(event);
    });
    this.plot.addEventListener("pointermove", (event) => {
      if (this.plot.hasPointerCapture(event.pointerId)) scrub(event);
    });
  }

  get area() {
    const bottom = this.showsTicks ? 30 : GUTTER.bottom;
    return {
      left: GUTTER.left,
      top: GUTTER.top,
      width: Math.max(1, this.width - GUTTER.left - GUTTER.right),
      height: Math.max(1, this.height - GUTTER.top - bottom),
    };
  }

  draw() {
    this.width = this.plot.clientWidth;
    this.height = this.plot.clientHeight;
    if (!this.width || !this.height) return;
    const ratio = Math.min(devicePixelRatio || 1, 3);
    fitCanvas(this.canvas, this.width, this.height, ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.paint(this.context, this.area);
    if (this.showsTicks) drawTimeTicks(this.context, this.app.timeline, this.area, this.app.colors);
    this.canvas.setAttribute("aria-label", this.describe());
    this.moveCursor();
  }

  moveCursor() {
    const area = this.area;
    const x = area.left + this.app.player.unit * area.width;
    this.cursor.style.transform = `translateX(${x}px)`;
    this.cursor.style.height = this.veil.style.height = `${area.height + 4}px`;
    this.cursor.style.top = this.veil.style.top = `${area.top - 2}px`;
    this.veil.style.left = `${x}px`;
    this.veil.style.width = `${Math.max(0, area.left + area.width - x + 4)}px`;
    const y = this.markerHeight(area);
    this.dot.hidden = !Number.isFinite(y);
    if (Number.isFinite(y)) this.dot.style.transform = `translate(${x}px, ${y}px)`;
    this.value.textContent = this.readout();
  }

  markerHeight() {
    return NaN;
  }

  readout() {
    return "";
  }

  // Horizontal guide lines with their values in the left gutter.
  guides(context, area, ticks, toY, format = null) {
    const { colors } = this.app;
    drawLines(context, ticks.map((value) => [area.left, toY(value), area.left + area.width, toY(value)]), colors.line, 1, 1);
    context.font = font(11);
    const fits = (text) => context.measureText(text).width <= area.left - 9;
    const power = (value, digits) => value.toExponential(digits).replace("e+", "e").replace("-", "−");
    // a number too wide for the gutter is written shorter rather than cut
    const names = format ? ticks.map(format) : distinctNumbers(ticks);
    const shortest = (value, i) => [names[i], power(value), power(value, 0)].find((text, j) => j === 2 || fits(text));
    const texts = ticks.map((value, i) => [shortest(value, i), area.left - 7, clamp(toY(value), 7, this.height - 7)]);
    const told = texts.filter(([text], i) => i === 0 || text !== texts[i - 1][0]); // a number is written once
    drawTexts(context, told, colors.muted, "right", "middle", 11);
  }
}

class Panels {
  constructor(app, root) {
    this.app = app;
    this.root = root;
    this.list = [];
    const { facts, arrays, run } = app;
    if (facts.observables.length && run.frames > 1) this.list.push(new SeriesPanel(app));
    if (facts.counts && run.frames > 1) this.list.push(new CountPanel(app));
    if (arrays.tree_y) this.list.push(new TreePanel(app));
    const round = run.dimension === 2 && run.radius;
    if (run.density && (round || run.dimension === 1) && run.frames > 1) this.list.unshift(new DensityPanel(app));
    else if (round && run.frames > 1) this.list.push(new AnglePanel(app));
    for (const panel of this.list) root.append(panel.root);
    if (this.list.length) this.list[this.list.length - 1].showsTicks = true;
    document.body.classList.toggle("no-panels", this.list.length === 0);
  }

  draw() {
    for (const panel of this.list) panel.draw();
  }

  // Draw the panels again whose colours are those of the points.
  recolor() {
    for (const panel of this.list) if (panel.followsColors) panel.draw();
  }

  moveCursor() {
    for (const panel of this.list) panel.moveCursor();
  }
}
