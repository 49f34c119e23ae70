// The app: one state (a time, a view, a colouring), drawn at most once a screen refresh, and only if something changed.

const BASE_SECONDS = 18; // one pass over the run at speed 1

class App {
  constructor(facts, arrays, codes) {
    this.facts = facts;
    this.arrays = arrays;
    this.run = new Run(facts, arrays, codes);
    this.timeline = new Timeline(arrays.times, arrays.arc, arrays.frames);
    this.colors = new Colors(facts);
    this.camera = makeCamera(this.run, this.run.radius);
    this.speedRange = speedRange(this.run, this.timeline);
    this.mode = colorModes(this.run)[0][0];
    this.speed = 1;
    this.sizeFactor = 1;
    this.time = this.timeline.begin;
    this.playing = false;
    this.rotating = false;
    this.held = -1;
    this.showMass = this.run.hasClusters;
    this.hovered = -1;
    this.selected = -1;
    this.dirty = { under: true, points: true, panels: true };
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.scene = new Scene(this, byId("under"), byId("over"));
    this.makeRenderer();
    this.panels = new Panels(this, byId("panels"));
    this.controls = new Controls(this);
    this.watch();
    this.showScale();
    this.resize();
    this.tick = this.tick.bind(this);
    requestAnimationFrame(this.tick);
  }

  makeRenderer() {
    const canvas = byId("points");
    try {
      this.renderer = new GLPoints(canvas, this.run);
      canvas.addEventListener("webglcontextlost", (event) => {
        event.preventDefault();
        this.notify("The graphics card dropped the picture; it comes back by itself, or after reloading the page.");
      });
      canvas.addEventListener("webglcontextrestored", () => {
        this.renderer = new GLPoints(canvas, this.run);
        this.notify("");
        this.recolor();
      });
    } catch (problem) {
      const fresh = canvas.cloneNode(); // a canvas that has once been asked for WebGL gives no 2-D context
      canvas.replaceWith(fresh);
      this.renderer = new CanvasPoints(fresh, this.run, this.timeline);
      const thinned = this.renderer.stride > 1 ? ` One in ${this.renderer.stride} particles is drawn.` : "";
      this.notify("This browser offers no WebGL2, so a slower drawing is used." + thinned);
    }
    this.refreshCategories();
  }

  notify(text) {
    byId("notice").textContent = text;
    byId("notice").hidden = !text;
  }

  watch() {
    new ResizeObserver(() => this.resize()).observe(byId("stage"));
    new ResizeObserver(() => this.invalidate("panels")).observe(byId("panels"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolor());
  }

  resize() {
    const stage = byId("stage");
    this.ratio = Math.min(devicePixelRatio || 1, 2);
    [this.width, this.height] = [stage.clientWidth, stage.clientHeight];
    fitCanvas(byId("points"), this.width, this.height, this.ratio);
    this.scene.resize(this.width, this.height, this.ratio);
    this.invalidate("under");
  }

  invalidate(part) {
    this.dirty[part] = true;
    this.dirty.points = true;
  }

  // ---- time -------------------------------------------------------------------------------------------------------
  get unit() {
    return clamp(this.timeline.toUnit(this.time), 0, 1);
  }

  get moment() {
    return this.timeline.moment(this.time);
  }

  seek(time) {
    this.time = clamp(time, this.timeline.begin, this.timeline.end);
    this.invalidate("points");
  }

  seekUnit(unit, stop = false) {
    if (stop) this.pause();
    this.seek(this.timeline.fromUnit(unit));
  }

  stepFrames(hop) {
    this.pause();
    const { k, fraction } = this.moment;
    const from = hop < 0 && fraction > 1e-9 ? k + 1 : k;
    this.seek(this.timeline.frameTimes[clamp(from + hop, 0, this.run.frames - 1)]);
    this.announce();
  }

  play() {
    if (this.run.frames < 2) return;
    if (this.unit >= 1) this.seek(this.timeline.begin);
    this.playing = true;
    this.lastTick = null;
    this.showPlaying();
  }

  pause() {
    if (this.playing) this.announce();
    this.playing = false;
    this.showPlaying();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  showPlaying() {
    byId("play").classList.toggle("playing", this.playing);
    byId("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
  }

  announce() {
    byId("live").textContent = describeMoment(this);
  }

  setSpeed(speed) {
    this.speed = speed;
    byId("speed").value = speed;
  }

  changeSpeed(by) {
    this.setSpeed(SPEEDS[clamp(SPEEDS.indexOf(this.speed) + by, 0, SPEEDS.length - 1)]);
  }

  setScale(mode) {
    this.timeline.mode = mode;
    this.showScale();
    this.invalidate("panels");
    if (this.camera.kind === "strip") this.invalidate("under");
  }

  nextScale() {
    const allowed = SCALES.map(([value]) => value).filter((value) => value !== "log" || this.timeline.hasLog);
    this.setScale(allowed[(allowed.indexOf(this.timeline.mode) + 1) % allowed.length]);
  }

  showScale() {
    for (const button of byId("scale").children) {
      button.setAttribute("aria-checked", String(button.dataset.scale === this.timeline.mode));
    }
  }

  // ---- colour -----------------------------------------------------------------------------------------------------
  setMode(mode) {
    this.mode = mode;
    byId("color").value = mode;
    this.refreshCategories();
    this.recolor();
  }

  nextMode() {
    const modes = colorModes(this.run).map(([value]) => value);
    this.setMode(modes[(modes.indexOf(this.mode) + 1) % modes.length]);
  }

  get paintMode() {
    return this.mode === "cluster" && this.held >= 0 ? "held" : this.mode;
  }

  toggleHold() {
    if (!this.run.hasClusters) return;
    this.held = this.held >= 0 ? -1 : this.moment.k;
    pressed(byId("hold"), this.held >= 0);
    byId("hold").textContent = this.held >= 0 ? "Colours held" : "Hold colours";
    this.setMode("cluster");
  }

  refreshCategories() {
    this.renderer.setColors(this.colors);
    const { run, held } = this;
    const codes = Uint16Array.from({ length: run.count }, (_, j) =>
      this.paintMode === "held" ? run.cluster(j, held) : run.arrays.label_codes ? run.arrays.label_codes[j] : 0);
    this.renderer.setCategories(codes);
  }

  recolor() {
    this.colors.refresh();
    this.refreshCategories();
    this.legendKey = null;
    this.invalidate("under");
    this.invalidate("panels");
  }

  sizesAt(k) {
    if (this.sizesFrame !== k) {
      this.sizes = this.run.clusterSizes(k);
      this.sizesFrame = k;
    }
    return this.sizes;
  }

  toggleMass() {
    this.showMass = this.run.hasClusters && !this.showMass;
    this.invalidate("points");
  }

  toggleTheme() {
    document.documentElement.dataset.theme = darkNow() ? "light" : "dark";
    this.recolor();
  }

  // ---- view -------------------------------------------------------------------------------------------------------
  // Diameter of a point in CSS pixels: larger for few particles and for large stages.
  pointSize() {
    const room = Math.sqrt(Math.min(this.width, this.height) / 600);
    return clamp(26 / this.run.count ** 0.22, 1.6, 13) * room * this.sizeFactor;
  }

  setSize(factor) {
    this.sizeFactor = factor;
    this.invalidate("points");
  }

  drag(dx, dy, here) {
    if (this.camera.kind === "strip") {
      const area = this.camera.area(this.width, this.height);
      this.seekUnit((here[0] - area.left) / area.width, true);
      return;
    }
    this.camera.drag(dx, dy, this.width, this.height);
    this.hideTooltip();
    this.invalidate("under");
  }

  zoom(factor, x, y) {
    this.camera.zoom(factor, x, y, this.width, this.height);
    this.invalidate("under");
  }

  resetView() {
    this.camera.reset();
    this.invalidate("under");
  }

  toggleRotation() {
    if (this.camera.kind !== "orbit") return;
    this.rotating = !this.rotating;
    pressed(byId("rotate"), this.rotating);
  }

  axisName(axis) {
    return this.facts.explained === null ? "x" + "₁₂₃"[axis] : "PC " + (axis + 1);
  }

  // ---- single particles -------------------------------------------------------------------------------------------
  // The nearest particle to a place on the stage, the front one of equals; −1 if none is within reach.
  pick([x, y], reach) {
    const { run, moment, width, height } = this;
    const matrix = this.camera.matrix(width, height);
    const [near, far] = this.camera.cue;
    const [point, place] = [[0, 0, 0], [0, 0, 0]];
    let [best, score] = [-1, reach];
    for (let j = 0; j < run.count; j++) {
      if (!run.point(j, moment, point)) continue;
      project(matrix, width, height, point, place);
      const away = Math.hypot(place[0] - x, place[1] - y);
      const cost = away + (far > near ? (6 * (place[2] - near)) / (far - near) : 0);
      if (away <= reach && cost < score) [best, score] = [j, cost];
    }
    return best;
  }

  hover(place) {
    this.hoverPlace = place;
    const found = place ? this.pick(place, 14) : -1;
    if (found !== this.hovered) this.invalidate("points");
    this.hovered = found;
    byId("over").style.cursor = found >= 0 ? "pointer" : "";
    this.showTooltip();
  }

  click(place, reach) {
    if (this.camera.kind === "strip" && this.pick(place, reach) < 0) this.drag(0, 0, place);
    else this.select(this.pick(place, reach));
  }

  select(j) {
    this.selected = j;
    this.invalidate("points");
    if (j >= 0) byId("live").textContent = describeParticle(this, j).map((row) => row.join(" ")).join(", ");
  }

  selectNeighbour(by) {
    this.select((this.selected + by + this.run.count) % this.run.count);
  }

  hideTooltip() {
    byId("tooltip").hidden = true;
  }

  showTooltip() {
    const j = this.hovered >= 0 ? this.hovered : this.selected;
    const tooltip = byId("tooltip");
    const point = [0, 0, 0];
    if (j < 0 || !this.run.point(j, this.moment, point)) return this.hideTooltip();
    const place = project(this.camera.matrix(this.width, this.height), this.width, this.height, point, [0, 0, 0]);
    const rows = describeParticle(this, j);
    tooltip.replaceChildren(...rows.flatMap(([name, text]) => [element("span", "quiet", name), element("span", "", text)]));
    tooltip.hidden = false;
    const [w, h] = [tooltip.offsetWidth, tooltip.offsetHeight];
    const left = place[0] + 16 + w > this.width ? place[0] - 16 - w : place[0] + 16;
    tooltip.style.left = `${clamp(left, 6, Math.max(6, this.width - w - 6))}px`;
    tooltip.style.top = `${clamp(place[1] - h / 2, 6, Math.max(6, this.height - h - 6))}px`;
    return undefined;
  }

  // ---- drawing ----------------------------------------------------------------------------------------------------
  view() {
    const { camera, width, height, moment } = this;
    if (camera.kind === "strip") camera.unit = this.unit;
    const k = Math.min(moment.k, Math.max(0, this.run.frames - 2));
    const at = this.run.frames > 1 && moment.k > k ? { k, next: k + 1, fraction: 1 } : moment;
    const many = this.run.count > 3000;
    return {
      moment: this.mode === "speed" ? at : moment,
      matrix: camera.matrix(width, height),
      cue: camera.cue,
      mode: this.paintMode,
      speedRange: this.speedRange,
      numbers: {
        size: this.pointSize() * this.ratio,
        reference: camera.kind === "orbit" ? camera.distance : 0,
        alpha: many ? 0.75 : 0.92,
        elapsed: this.run.frames > 1 ? this.timeline.frameTimes[k + 1] - this.timeline.frameTimes[k] : 0,
      },
    };
  }

  advance(now) {
    const seconds = this.lastTick === null || this.lastTick === undefined ? 0 : Math.min(0.1, (now - this.lastTick) / 1000);
    this.lastTick = now;
    if (this.rotating) {
      this.camera.yaw += seconds * (this.calm.matches ? 0.08 : 0.3);
      this.invalidate("under");
    }
    if (!this.playing) return;
    const unit = this.unit + (seconds * this.speed) / BASE_SECONDS;
    this.seekUnit(unit);
    if (unit >= 1) this.pause();
  }

  tick(now) {
    this.advance(now);
    if (this.dirty.points) this.draw();
    requestAnimationFrame(this.tick);
  }

  draw() {
    const { dirty } = this;
    this.dirty = { under: false, points: false, panels: false };
    if (!this.width || !this.height) return;
    if (dirty.under) this.scene.drawUnder();
    this.renderer.draw(this.view());
    this.scene.drawOver();
    if (dirty.panels) this.panels.draw();
    else this.panels.moveCursor();
    this.showClock();
    if (this.hovered >= 0 || this.selected >= 0) this.showTooltip();
    else this.hideTooltip();
  }

  showClock() {
    const { k } = this.moment;
    const scrubber = byId("scrubber");
    scrubber.value = this.unit;
    scrubber.style.setProperty("--done", `${100 * this.unit}%`);
    scrubber.setAttribute("aria-valuetext", describeMoment(this));
    byId("readout").textContent = `t = ${formatNumber(this.time)}`;
    const frame = this.arrays.frames[k] + 1;
    byId("clock").textContent = `frame ${frame} / ${this.facts.totalFrames}`;
    const key = `${this.mode} ${this.mode === "cluster" ? (this.held >= 0 ? this.held : k) : ""}`;
    if (key !== this.legendKey) {
      fillLegend(byId("legend"), this);
      this.legendKey = key;
      byId("over").setAttribute("aria-label", `${this.facts.count} particles, ${describeMoment(this)}`);
    }
  }

  savePicture() {
    const picture = document.createElement("canvas");
    fitCanvas(picture, this.width, this.height, this.ratio);
    const context = picture.getContext("2d");
    context.fillStyle = cssColor(this.colors.background);
    context.fillRect(0, 0, picture.width, picture.height);
    this.draw(); // the picture of the card is only there in the task that drew it
    for (const id of ["under", "points", "over"]) context.drawImage(byId(id), 0, 0, picture.width, picture.height);
    picture.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = "particleflow.png";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  // Script and upload of one picture are timed; what the card does with it afterwards is not.
  async benchmark(pictures) {
    const spent = [];
    for (let i = 0; i < pictures; i++) {
      await new Promise(requestAnimationFrame);
      this.time = this.timeline.frameTimes[(i * 2) % this.run.frames];
      const began = performance.now();
      this.draw();
      spent.push(performance.now() - began);
    }
    return spent.sort((a, b) => a - b)[pictures >> 1];
  }
}
