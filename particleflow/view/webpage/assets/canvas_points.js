// Points without WebGL2: the same interface on a 2-D canvas, for old or locked-down browsers. Slower, and it thins out
// very large runs; the page says so.

const CANVAS_LIMIT = 20000;

class CanvasPoints {
  constructor(canvas, run, timeline) {
    this.kind = "canvas";
    this.canvas = canvas;
    this.run = run;
    this.timeline = timeline;
    this.context = canvas.getContext("2d");
    this.stride = Math.max(1, Math.ceil(run.count / CANVAS_LIMIT));
  }

  setColors(colors) {
    this.colors = colors;
  }

  setCategories(codes) {
    this.codes = codes;
  }

  color(j, view) {
    const { run, colors } = this;
    if (view.mode === "cluster") return colors.category(run.cluster(j, view.moment.k));
    if (view.mode === "label" || view.mode === "held") return colors.category(this.codes[j]);
    if (view.mode === "index") return colors.scale(j / Math.max(1, run.count - 1));
    if (view.mode === "density") return colors.scale(run.level(j, view.moment));
    const [low, high] = view.speedRange;
    const speed = speedOf(run, this.timeline, j, view.moment.k);
    return colors.scale((Math.log10(Math.max(speed, 1e-300)) - low) / (high - low));
  }

  draw(view) {
    const { canvas, context, run, colors } = this;
    const [width, height] = [canvas.width, canvas.height];
    const [near, far] = view.cue;
    const items = [];
    const point = [0, 0, 0];
    const { dots } = view;
    context.clearRect(0, 0, width, height);
    for (let i = 0; i < run.count; i += this.stride) {
      const j = dots?.order ? dots.order[i] : i;
      if (!run.point(j, view.moment, point)) continue;
      const [x, y] = project(view.matrix, width, height, point, [0, 0, 0]);
      if (dots?.anchor) run.point(dots.anchor[j], view.moment, point);
      items.push([j, x, y, project(view.matrix, width, height, point, [0, 0, 0])[2]]);
    }
    if (far > near) items.sort((a, b) => b[3] - a[3]);
    if (!view.numbers.alpha) return;
    for (const [j, x, y, w] of items) {
      const depth = far > near ? clamp((w - near) / (far - near), 0, 1) : 0;
      const behind = view.numbers.solid && depth > 0.5; // open dots, as in figures
      const rule = run.facts.behind;
      const strength = behind ? rule.rim + rule.gain * (1 - depth) : view.numbers.solid ? 1 - 0.12 * depth : 1 - 0.38 * depth * depth;
      const mixed = (share) => this.color(j, view).map((entry, c) => colors.background[c] + (entry - colors.background[c]) * share);
      const share = dots ? dots.share[j] : 1;
      const category = view.mode === "cluster" ? run.cluster(j, view.moment.k) : this.codes[j];
      context.globalAlpha = view.numbers.alpha * (view.only >= 0 && category !== view.only ? 0.14 : 1);
      const radius = (view.numbers.size * Math.sqrt(share) * (view.numbers.reference > 0 ? view.numbers.reference / w : 1) + 1) / 2;
      context.fillStyle = cssColor(mixed(strength));
      if (run.density?.kind === "plane") {
        context.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
        continue;
      }
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
      if (!behind) continue;
      context.fillStyle = cssColor(mixed(rule.open));
      context.beginPath();
      context.arc(x, y, radius * rule.inside, 0, 2 * Math.PI);
      context.fill();
    }
  }
}
