// The app: one state (a time, a view, a colouring), drawn at most once a screen refresh, and only if something changed.
// Its time is the player's, its single particles are the focus's.

class App {
  constructor(facts, arrays, codes) {
    this.facts = facts;
    this.arrays = arrays;
    this.run = new Run(facts, arrays, codes);
    this.timeline = new Timeline(arrays.times, arrays.arc, arrays.frames, facts);
    this.colors = new Colors(facts);
    this.camera = makeCamera(this.run, this.run.radius);
    this.lastClusters = lastClusters(this.run);
    this.speedRange = speedRange(this.run, this.timeline);
    this.mode = firstMode(this);
    this.sizeFactor = 1;
    this.rotating = false;
    this.holding = -1; // the frame whose clusters give the colours of the mode "cluster"; −1 for that of the moment
    this.only = -1; // the category that is shown alone
    this.showMass = this.run.hasClusters && this.mode !== "last"; // rings are about the clusters of the moment
    this.names = new Names(this);
    this.showWords = this.names.usable;
    this.player = new Player(this);
    this.focus = new Focus(this);
    this.dirty = { under: true, points: true, panels: true };
    this.reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
    this.scene = new Scene(this, byId("under"), byId("over"));
    this.makeRenderer();
    this.panels = new Panels(this, byId("panels"));
    this.controls = new Controls(this);
    this.watch();
    this.player.showScale();
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
    // A canvas of a new size is empty, and one of an old size is stretched: both are drawn again before the next paint.
    const redraw = (change) => new ResizeObserver(() => { change(); this.draw(); });
    redraw(() => this.resize()).observe(byId("stage"));
    const plots = redraw(() => this.invalidate("panels"));
    for (const panel of this.panels.list) plots.observe(panel.plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolor());
  }

  resize(finer = 1) {
    const stage = byId("stage");
    this.ratio = finer * Math.min(devicePixelRatio || 1, 2);
    [this.width, this.height] = [stage.clientWidth, stage.clientHeight];
    fitCanvas(byId("points"), this.width, this.height, this.ratio);
    this.scene.resize(this.width, this.height, this.ratio);
    this.invalidate("under");
  }

  invalidate(part) {
    this.dirty[part] = true;
    this.dirty.points = true;
  }

  // ---- colour -----------------------------------------------------------------------------------------------------
  setMode(mode) {
    this.mode = mode;
    this.only = -1;
    byId("color").value = mode;
    this.refreshCategories();
    this.recolor();
  }

  nextMode() {
    const modes = colorModes(this).map(([value]) => value);
    this.setMode(modes[(modes.indexOf(this.mode) + 1) % modes.length]);
  }

  // The stored frame whose clusters give particles their colours for all times; −1 without one.
  get held() {
    if (this.mode === "last") return this.lastClusters;
    return this.mode === "cluster" ? this.holding : -1;
  }

  get paintMode() {
    return this.held >= 0 ? "held" : this.mode;
  }

  // Show one category of the legend alone, or all again if it is shown alone already.
  isolate(code, name) {
    this.only = this.only === code ? -1 : code;
    byId("live").textContent = this.only < 0 ? "All are shown" : `Only ${name} shown`;
    this.legendKey = null;
    this.invalidate("under");
    this.invalidate("panels");
  }

  // The category of particle j in the colours of now; null where colours are a scale.
  categoryOf(j, k) {
    if (this.mode === "label") return this.run.arrays.label_codes[j];
    if (this.mode === "leading") return leadingLabel(this.run, j, k)[0];
    if (this.held >= 0) return this.run.cluster(j, this.held);
    return this.mode === "cluster" ? this.run.cluster(j, k) : null;
  }

  // Whether particle j is not of the category that is shown alone in frame k.
  isFaint(j, k) {
    return this.only >= 0 && this.categoryOf(j, k) !== this.only;
  }

  toggleHold() {
    if (!this.run.hasClusters) return;
    this.holding = this.mode === "cluster" && this.holding >= 0 ? -1 : this.player.moment.k;
    this.setMode("cluster");
  }

  refreshCategories() {
    this.colors.ofLabels = this.mode === "label";
    this.colors.refresh();
    this.renderer.setColors(this.colors);
    const { run, held } = this;
    const holds = this.mode === "cluster" && held >= 0;
    pressed(byId("hold"), holds);
    byId("hold").textContent = holds ? "Colours held" : "Hold colours";
    this.codes = Uint16Array.from({ length: run.count }, (_, j) =>
      this.paintMode === "held" ? run.cluster(j, held) : run.arrays.label_codes ? run.arrays.label_codes[j] : 0);
    this.renderer.setCategories(this.codes);
    this.dotsKey = null;
  }

  // The sizes of dots in frame k, and the rings in which particles of several categories at one place are drawn; null
  // for the cells of a density, the nodes of a law and values on places.
  dots(k) {
    if (this.run.density || this.run.law || this.run.placed) return null;
    const inRings = this.paintMode === "label" || this.paintMode === "held";
    const whole = (2 * WHOLE_RADIUS * Math.min(this.width, this.height) * this.sizeFactor) / this.pointSize();
    const key = `${k} ${inRings} ${whole}`;
    if (this.dotsKey !== key) this.dotsNow = dotsOf(this.run, inRings ? this.codes : null, k, whole * whole);
    this.dotsKey = key;
    return this.dotsNow;
  }

  // The radius in CSS pixels of the dot that particle j lies in, or of the largest dot.
  dotRadius(j = -1) {
    if (this.run.placed) return this.run.placed.kind === "graph" ? CURVE_DOT * this.sizeFactor : placedRadius(this);
    const dots = this.dots(this.player.moment.k);
    const area = dots === null ? 1 : j < 0 ? dots.largest : dots.whole[j];
    return (this.pointSize() / 2) * Math.sqrt(area);
  }

  recolor() {
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

  toggleWords() {
    this.showWords = this.names.usable && !this.showWords;
    this.names.drawn = [];
    this.invalidate("points");
  }

  toggleTheme() {
    document.documentElement.dataset.theme = darkNow() ? "light" : "dark";
    this.recolor();
  }

  // ---- view -------------------------------------------------------------------------------------------------------
  // Diameter of a point in CSS pixels: larger for few particles and for large stages.
  pointSize() {
    const cell = this.run.density ? cellSize(this) : 0;
    if (cell) return cell * this.sizeFactor;
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
      this.player.seekUnit((here[0] - area.left) / area.width, true);
      return;
    }
    this.camera.drag(dx, dy, this.width, this.height);
    this.focus.hideTooltip();
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
    if (this.run.placed) return this.run.placed.axes[axis];
    return this.facts.explained === null ? "x" + "₁₂₃"[axis] : "PC " + (axis + 1);
  }

  // ---- drawing ----------------------------------------------------------------------------------------------------
  view() {
    const { camera, width, height } = this;
    const { moment, unit } = this.player;
    if (camera.kind === "strip") camera.unit = unit;
    const k = Math.min(moment.k, Math.max(0, this.run.frames - 2));
    const at = this.run.frames > 1 && moment.k > k ? { k, next: k + 1, fraction: 1 } : moment;
    const many = this.run.count > 3000;
    const alpha = this.run.law || this.run.placed ? 0 : this.run.density ? cellAlpha(this) : many ? 0.75 : 0.92;
    return {
      moment: this.mode === "speed" ? at : moment,
      matrix: camera.matrix(width, height),
      cue: camera.cue,
      mode: this.paintMode,
      dots: this.dots(moment.k),
      only: this.only,
      speedRange: this.speedRange,
      numbers: {
        size: this.pointSize() * this.ratio,
        solid: this.run.radius && camera.kind === "orbit" && !this.run.density ? 1 : 0,
        reference: camera.kind === "orbit" ? camera.distance : 0,
        alpha,
        elapsed: this.run.frames > 1 ? this.timeline.frameTimes[k + 1] - this.timeline.frameTimes[k] : 0,
      },
    };
  }

  tick(now) {
    const seconds = this.player.advance(now);
    if (this.rotating) {
      this.camera.yaw += seconds * (this.reducedMotion.matches ? 0.08 : 0.3);
      this.invalidate("under");
    }
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
    this.player.showClock();
    this.showLegend();
    this.focus.showTooltip();
  }

  showLegend() {
    const key = `${this.mode} ${this.mode === "cluster" ? (this.held >= 0 ? this.held : this.player.moment.k) : ""} ${this.only}`;
    if (key === this.legendKey) return;
    this.legendKey = key;
    fillLegend(byId("legend"), this);
    const shown = this.run.law ? "normal law" : `${this.facts.count} ${this.run.density ? "cells" : this.run.placed ? "places" : "particles"}`;
    byId("over").setAttribute("aria-label", `${shown}, ${describeMoment(this)}`);
  }

  savePicture() {
    pictureOf(this).toBlob((blob) => {
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
      this.player.time = this.timeline.frameTimes[(i * 2) % this.run.frames];
      const began = performance.now();
      this.draw();
      spent.push(performance.now() - began);
    }
    return spent.sort((a, b) => a - b)[pictures >> 1];
  }
}
