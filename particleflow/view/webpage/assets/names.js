// Names: the words of particles beside them on the stage. Particles at one place share a name, and no name lies on
// another: the heaviest group chooses first, and a name that finds no free place is written shorter or left out.

const FEW_PARTICLES = 150; // up to so many each may have a name; of more, only heavy clusters
const MOST_NAMES = 40;
const NAME_REACH = 10; // pixels: particles so near to each other share a name
const NAME_SIZE = 12;
const MOST_TOKENS = 100000; // of more, looking up words in every frame would take longer than drawing it

// The most frequent of words, and how many others there are: "river, bank, water +3".
function listWords(words, most) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  const found = [...counts].sort((a, b) => b[1] - a[1]).map(([word]) => word);
  return found.slice(0, most).join(", ") + (found.length > most ? ` +${found.length - most}` : "");
}

const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

class Names {
  constructor(app) {
    this.app = app;
    this.usable = app.run.hasWords && app.run.count <= MOST_TOKENS;
    this.drawn = [];
    this.members = { k: -1 };
  }

  // Particles of the clusters of frame k, by cluster; looked up once a frame.
  clusters(k) {
    if (this.members.k !== k) {
      const { run } = this.app;
      const found = new Map();
      for (let j = 0; j < run.count; j++) {
        const code = run.cluster(j, k);
        if (!found.has(code)) found.set(code, []);
        found.get(code).push(j);
      }
      this.members = { k, found };
    }
    return this.members.found;
  }

  ofCluster(code, k, most = 2) {
    return listWords((this.clusters(k).get(code) ?? []).map((j) => this.app.run.word(j)), most);
  }

  // Groups to name: {members, x, y, radius, faint}, the heaviest first.
  groups(matrix) {
    const { app } = this;
    const { k } = app.player.moment;
    const all = app.run.count <= FEW_PARTICLES ? this.nearby(matrix) : this.heavy(matrix);
    const shown = all.map((group) => ({ ...group, members: group.members.filter((j) => !app.isFaint(j, k)) }));
    const found = shown.filter((group) => group.members.length);
    return found.sort((a, b) => a.faint - b.faint || b.members.length - a.members.length).slice(0, MOST_NAMES);
  }

  heavy(matrix) {
    const { app } = this;
    const { k } = app.player.moment;
    return heavyClusters(app).map(({ code, size, centre }) => {
      const [x, y, w] = project(matrix, app.width, app.height, centre, [0, 0, 0]);
      const members = this.clusters(k).get(code);
      const radius = app.scene.ringed.has(code) ? massRadius(app, size) : app.dotRadius(members[0]);
      return { members, x, y, radius, faint: this.isBehind(w) };
    });
  }

  isBehind(w) {
    const [near, far] = this.app.camera.cue;
    return far > near && w > (near + far) / 2;
  }

  // Particles that are linked at NAME_REACH on the stage, and in depth; a wide cloud of them has no place.
  nearby(matrix) {
    const { run, player, camera, width, height } = this.app;
    const [near, far] = camera.cue;
    const unit = far > near ? Math.min(width, height) / (far - near) : 0; // pixels of a unit of depth
    const places = [];
    for (let j = 0; j < run.count; j++) {
      const point = [0, 0, 0];
      if (run.point(j, player.moment, point)) places.push([j, ...project(matrix, width, height, point, [0, 0, 0])]);
    }
    const owner = places.map((_, i) => i);
    const root = (i) => (owner[i] === i ? i : (owner[i] = root(owner[i])));
    for (let i = 0; i < places.length; i++) {
      for (let l = 0; l < i; l++) {
        const [dx, dy, dw] = [1, 2, 3].map((c) => places[i][c] - places[l][c]);
        if (Math.hypot(dx, dy, dw * unit) <= NAME_REACH) owner[root(i)] = root(l);
      }
    }
    const found = new Map();
    places.forEach((place, i) => found.set(root(i), [...(found.get(root(i)) ?? []), place]));
    return [...found.values()].map((group) => this.group(group)).filter((group) => group.spread <= 5 * NAME_REACH);
  }

  group(places) {
    const mean = (c) => places.reduce((sum, place) => sum + place[c], 0) / places.length;
    const span = (c) => Math.max(...places.map((place) => place[c])) - Math.min(...places.map((place) => place[c]));
    const members = places.map(([j]) => j);
    const spread = Math.max(span(1), span(2));
    const dot = Math.max(...members.map((j) => this.app.dotRadius(j)));
    const radius = Math.max(spread / 2 + dot, this.ring(members));
    return { members, x: mean(1), y: mean(2), radius, faint: this.isBehind(mean(3)), spread };
  }

  // The radius of the largest ring around most of a cluster that lies in some particles, 0 without one: a name stands
  // outside of the ring of the whole, and beside the dot of a small part.
  ring(members) {
    const { app } = this;
    const { k } = app.player.moment;
    const inside = new Map();
    for (const j of members) inside.set(app.run.cluster(j, k), (inside.get(app.run.cluster(j, k)) ?? 0) + 1);
    const ringed = [...inside].filter(([code, count]) => app.scene.ringed.has(code) && 2 * count > app.sizesAt(k).get(code));
    const largest = Math.max(0, ...ringed.map(([code]) => app.sizesAt(k).get(code)));
    return largest > 0 ? massRadius(app, largest) : 0;
  }

  draw(context, matrix) {
    const { app } = this;
    context.font = font(NAME_SIZE);
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 3;
    this.drawn = [];
    const found = this.groups(matrix);
    for (const group of found) {
      const others = found.filter((other) => other !== group).map(({ x, y, radius }) => {
        const clear = radius + 5; // a name keeps off the markers of other groups, so that it is not taken for theirs
        return [x - clear, y - clear, x + clear, y + clear];
      });
      const name = this.place(context, group, others);
      if (!name) continue;
      this.drawn.push(name);
      const [left, top, , bottom] = name.box;
      context.strokeStyle = cssColor(app.colors.background, 0.85);
      context.strokeText(name.text, left, (top + bottom) / 2);
      context.fillStyle = cssColor(group.faint ? app.colors.muted : app.colors.ink);
      context.fillText(name.text, left, (top + bottom) / 2);
    }
  }

  // A free place for the name of a group, the longest that fits; null if there is none.
  place(context, group, others) {
    const words = group.members.map((j) => this.app.run.word(j));
    const texts = [...new Set([3, 2, 1].map((most) => listWords(words, most)))];
    const near = 3.5 * NAME_SIZE;
    const repeated = this.drawn.some(
      (name) => name.text === texts[0] && Math.max(Math.abs(name.x - group.x), Math.abs(name.y - group.y)) < near);
    if (repeated) return null;
    const obstacles = [...this.drawn.map((name) => name.box), ...others];
    for (const text of texts) {
      for (const box of this.beside(group, context.measureText(text).width, 1.25 * NAME_SIZE)) {
        const inside = box[0] >= 4 && box[1] >= 30 && box[2] <= this.app.width - 4 && box[3] <= this.app.height - 4;
        if (inside && !obstacles.some((other) => overlap(box, other))) return { text, box, x: group.x, y: group.y };
      }
    }
    return null;
  }

  // Boxes right, left, below and above of a marker, then at its corners.
  beside({ x, y, radius }, width, height) {
    const sides = [[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, 1], [1, -1], [-1, -1]];
    return sides.map(([across, down]) => {
      const away = (across && down ? 0.71 * radius : radius) + 4;
      const left = x + across * away - (width * (1 - across)) / 2;
      const top = y + down * away - (height * (1 - down)) / 2;
      return [left, top, left + width, top + height];
    });
  }
}
