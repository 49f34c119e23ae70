// Drawing on 2-D canvases, for the scene and for the panels: lines, texts, the ticks of a time axis, paths over time.

// Give a canvas the pixels of its box; true if that changed anything.
function fitCanvas(canvas, width, height, ratio) {
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width === w && canvas.height === h) return false;
  canvas.width = w;
  canvas.height = h;
  return true;
}

const font = (size, weight = 400) => `${weight} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif`;

// Straight lines [x0, y0, x1, y1] in one colour, opacity and width.
function drawLines(context, lines, color, alpha, width) {
  context.strokeStyle = cssColor(color, alpha);
  context.lineWidth = width;
  context.beginPath();
  for (const [x0, y0, x1, y1] of lines) {
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
  }
  context.stroke();
}

// Write [text, x, y] side by side in one colour; `align` and `baseline` tell which point of a text stands at (x, y).
function drawTexts(context, texts, color, align, baseline, size = 11.5) {
  context.fillStyle = cssColor(color);
  context.font = font(size);
  context.textAlign = align;
  context.textBaseline = baseline;
  for (const [text, x, y] of texts) context.fillText(text, x, y);
}

// The ticks of a time axis below a plot; a label that would touch the one before is left out.
function drawTimeTicks(context, timeline, area, colors) {
  const bottom = area.top + area.height;
  context.font = font(11.5);
  const [marks, texts] = [[], []];
  let free = -Infinity;
  for (const { unit, label } of timeline.ticks(Math.max(2, Math.floor(area.width / 75)))) {
    const x = area.left + unit * area.width;
    const half = context.measureText(label).width / 2;
    const at = clamp(x, area.left - 10 + half, area.left + area.width + 10 - half);
    marks.push([x, bottom, x, bottom + 4]);
    if (at - half < free + 8) continue;
    texts.push([label, at, bottom + 7]);
    free = at + half;
  }
  drawTexts(context, texts, colors.muted, "center", "top");
  drawLines(context, marks, colors.muted, 0.7, 1);
  drawLines(context, [[area.left, bottom, area.left + area.width, bottom]], colors.muted, 0.5, 1);
}

// Paths of up to 600 particles over time, coloured like the points; `breakAt` cuts a path that jumps (angles).
function drawPaths(context, app, area, value, toY, breakAt = Infinity) {
  const { run, timeline } = app;
  const stride = Math.max(1, Math.ceil(run.count / 600));
  const hop = Math.max(1, Math.floor(run.frames / Math.max(60, area.width / 1.5)));
  const paths = new Map();
  for (let j = 0; j < run.count; j += stride) {
    let [lastX, lastValue] = [NaN, NaN];
    for (let k = 0; k < run.frames; k = k === run.frames - 1 ? run.frames : Math.min(k + hop, run.frames - 1)) {
      const here = run.codes[(k * run.count + j) * 4] === run.missing ? NaN : value(j, k);
      const x = area.left + timeline.toUnit(timeline.frameTimes[k]) * area.width;
      if (Math.abs(here - lastValue) < breakAt) {
        const color = particleColor(app, j, Math.max(0, k - hop));
        if (!paths.has(color)) paths.set(color, new Path2D());
        const path = paths.get(color);
        path.moveTo(lastX, toY(lastValue));
        path.lineTo(x, toY(here));
      }
      [lastX, lastValue] = [x, here];
    }
  }
  const shown = Math.ceil(run.count / stride);
  context.lineWidth = 1;
  context.globalAlpha = clamp(12 / Math.sqrt(shown), 0.35, 0.9);
  for (const [color, path] of paths) {
    context.strokeStyle = color;
    context.stroke(path);
  }
  context.globalAlpha = 1;
}
