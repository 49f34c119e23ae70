// Single particles: the one under the pointer, the one that is followed, and the tooltip with their data.

class Focus {
  constructor(app) {
    this.app = app;
    this.hovered = -1;
    this.selected = -1;
  }

  // The nearest particle to a place on the stage, the front one of equals; −1 if none is within reach.
  pick([x, y], reach) {
    if (this.app.run.law) return -1;
    const { run, camera, width, height } = this.app;
    const { moment } = this.app.player;
    const matrix = camera.matrix(width, height);
    const [near, far] = camera.cue;
    const [point, place] = [[0, 0, 0], [0, 0, 0]];
    let [best, score] = [-1, Infinity];
    for (let j = 0; j < run.count; j++) {
      if (!run.point(j, moment, point)) continue;
      project(matrix, width, height, point, place);
      const away = Math.hypot(place[0] - x, place[1] - y);
      const cost = away + (far > near ? (6 * (place[2] - near)) / (far - near) : 0);
      if (away <= Math.max(reach, this.app.dotRadius(j)) && cost < score) [best, score] = [j, cost];
    }
    return best;
  }

  hover(place) {
    const found = place ? this.pick(place, 14) : -1;
    if (found !== this.hovered) this.app.invalidate("points");
    this.hovered = found;
    byId("over").style.cursor = found >= 0 ? "pointer" : "";
    this.showTooltip();
  }

  click(place, reach) {
    if (this.app.camera.kind === "strip" && this.pick(place, reach) < 0) this.app.drag(0, 0, place);
    else this.select(this.pick(place, reach));
  }

  select(j) {
    this.selected = j;
    this.app.invalidate("points");
    if (j >= 0) byId("live").textContent = describeParticle(this.app, j).map((row) => row.join(" ")).join(", ");
  }

  selectNeighbour(by) {
    if (this.app.run.law) return;
    const { count } = this.app.run;
    this.select((this.selected + by + count) % count);
  }

  hideTooltip() {
    byId("tooltip").hidden = true;
  }

  showTooltip() {
    const { run, camera, player, width, height } = this.app;
    const j = this.hovered >= 0 ? this.hovered : this.selected;
    const tooltip = byId("tooltip");
    const point = [0, 0, 0];
    if (j < 0 || !run.point(j, player.moment, point)) return this.hideTooltip();
    const place = project(camera.matrix(width, height), width, height, point, [0, 0, 0]);
    const rows = describeParticle(this.app, j);
    tooltip.replaceChildren(...rows.flatMap(([name, text]) => [element("span", "quiet", name), element("span", "", text)]));
    tooltip.hidden = false;
    const [w, h] = [tooltip.offsetWidth, tooltip.offsetHeight];
    const left = place[0] + 16 + w > width ? place[0] - 16 - w : place[0] + 16;
    tooltip.style.left = `${clamp(left, 6, Math.max(6, width - w - 6))}px`;
    tooltip.style.top = `${clamp(place[1] - h / 2, 6, Math.max(6, height - h - 6))}px`;
    return undefined;
  }
}
