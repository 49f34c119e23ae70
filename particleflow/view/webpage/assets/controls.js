// Buttons, menus, keys and gestures; each only calls the app.

const byId = (id) => document.getElementById(id);
const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8];
const SCALES = [["linear", "Linear"], ["log", "Log"], ["arc", "Arc length"]];

const KEYS = [
  ["space", "play or pause"],
  ["← →", "one frame back or on; with shift ten"],
  ["home end", "first or last frame"],
  ["+ −", "faster or slower"],
  ["L", "linear time, log time, arc length"],
  ["C", "next colouring"],
  ["H", "hold the cluster colours of this moment"],
  ["M", "rings for cluster mass"],
  ["W", "words beside the particles"],
  ["R", "rotate (3-D)"],
  ["0", "reset the view"],
  ["[ ]", "follow the previous or next particle"],
  ["S", "save a picture"],
  ["T", "light or dark"],
  ["tab", "through the legend; enter shows a cluster or label alone, and all again"],
  ["esc", "show all again, or stop following the particle"],
  ["?", "this help"],
];

function pressed(button, on) {
  button.setAttribute("aria-pressed", String(on));
}

class Controls {
  constructor(app) {
    this.app = app;
    this.buildMenus();
    this.buildDialogs();
    this.bindButtons();
    this.bindKeys();
    this.bindStage();
  }

  buildMenus() {
    const { app } = this;
    for (const [value, title] of colorModes(app)) byId("color").append(new Option(title, value));
    byId("color").value = app.mode;
    byId("color").addEventListener("change", (event) => app.setMode(event.target.value));
    for (const speed of SPEEDS) byId("speed").append(new Option(`${speed}×`, speed));
    byId("speed").value = app.player.speed;
    byId("speed").addEventListener("change", (event) => app.player.setSpeed(Number(event.target.value)));
    for (const [value, title] of SCALES) {
      const moved = value === "arc" && app.run.density;
      const button = element("button", "", moved ? "Mass moved" : title);
      button.type = "button";
      button.dataset.scale = value;
      button.setAttribute("role", "radio");
      button.disabled = value === "log" && !app.timeline.hasLog;
      button.addEventListener("click", () => app.player.setScale(value));
      byId("scale").append(button);
    }
    byId("hold").hidden = !app.run.hasClusters;
    byId("rotate").hidden = app.camera.kind !== "orbit";
    byId("reset").hidden = isFixed(app.camera);
    byId("size").parentElement.hidden = app.run.law || (Boolean(app.run.density) && !cellAlpha(app));
    byId("color").parentElement.hidden = app.run.law || Boolean(app.run.density || app.run.placed); // there is one way to colour it
  }

  buildDialogs() {
    for (const [keys, meaning] of KEYS) {
      const term = element("dt");
      for (const key of keys.split(" ")) term.append(element("kbd", "", key));
      byId("keys").append(term, element("dd", "", meaning));
    }
    for (const [name, text] of runFacts(this.app)) byId("facts-list").append(element("dt", "", name), element("dd", "", text));
    byId("scenario-block").hidden = !this.app.facts.scenario;
    byId("scenario").textContent = this.app.facts.scenario;
  }

  bindButtons() {
    const { app } = this;
    const actions = {
      play: () => app.player.toggle(),
      hold: () => app.toggleHold(),
      rotate: () => app.toggleRotation(),
      reset: () => app.resetView(),
      save: () => app.savePicture(),
      "theme-button": () => app.toggleTheme(),
      "help-button": () => byId("help").showModal(),
      "about-button": () => byId("about").showModal(),
    };
    for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
    byId("size").addEventListener("input", (event) => app.setSize(Number(event.target.value)));
    const scrubber = byId("scrubber");
    scrubber.addEventListener("pointerdown", () => app.player.pause());
    scrubber.addEventListener("input", () => app.player.seekUnit(Number(scrubber.value)));
    for (const dialog of document.querySelectorAll("dialog")) {
      dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    }
  }

  bindKeys() {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const field = event.target.closest("select, input:not(#scrubber)");
      const open = document.querySelector("dialog[open]");
      if (open) {
        if (event.key === "?") open.close();
        return;
      }
      // a focused button keeps its space bar and a menu its arrows
      const own = field || (event.key === " " && event.target.closest("button:not(#play)"));
      if (!own && this.handleKey(event.key, event.shiftKey)) event.preventDefault();
    });
  }

  handleKey(key, shift) {
    const { app } = this;
    const hop = shift ? 10 : 1;
    const actions = {
      " ": () => app.player.toggle(),
      ArrowLeft: () => app.player.stepFrames(-hop),
      ArrowRight: () => app.player.stepFrames(hop),
      Home: () => app.player.seekUnit(0, true),
      End: () => app.player.seekUnit(1, true),
      "+": () => app.player.changeSpeed(1),
      "=": () => app.player.changeSpeed(1),
      "-": () => app.player.changeSpeed(-1),
      _: () => app.player.changeSpeed(-1),
      l: () => app.player.nextScale(),
      c: () => app.nextMode(),
      h: () => app.toggleHold(),
      m: () => app.toggleMass(),
      w: () => app.toggleWords(),
      r: () => app.toggleRotation(),
      0: () => app.resetView(),
      "[": () => app.focus.selectNeighbour(-1),
      "]": () => app.focus.selectNeighbour(1),
      s: () => app.savePicture(),
      t: () => app.toggleTheme(),
      Escape: () => (app.only >= 0 ? app.isolate(app.only) : app.focus.select(-1)),
      "?": () => byId("help").showModal(),
    };
    const action = actions[key.length === 1 ? key.toLowerCase() : key];
    if (action) action();
    return Boolean(action);
  }

  // One pointer turns or moves, two pinch, a still one shows or selects a particle.
  bindStage() {
    const { app } = this;
    const stage = byId("over");
    const pointers = new Map();
    let travelled = 0;
    const local = (event) => {
      const box = stage.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    stage.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      stage.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, local(event));
      if (pointers.size === 1) travelled = 0;
    });
    stage.addEventListener("pointermove", (event) => {
      const here = local(event);
      const before = pointers.get(event.pointerId);
      if (!before) return app.focus.hover(here);
      const others = [...pointers].filter(([id]) => id !== event.pointerId);
      if (others.length) {
        const other = others[0][1];
        const ratio = Math.hypot(here[0] - other[0], here[1] - other[1]) / Math.hypot(before[0] - other[0], before[1] - other[1]);
        if (Number.isFinite(ratio) && ratio > 0) app.zoom(ratio, (here[0] + other[0]) / 2, (here[1] + other[1]) / 2);
        travelled += 10;
      } else {
        travelled += Math.hypot(here[0] - before[0], here[1] - before[1]);
        if (travelled > 4) app.drag(here[0] - before[0], here[1] - before[1], here);
      }
      pointers.set(event.pointerId, here);
      return undefined;
    });
    const release = (event) => {
      const still = pointers.delete(event.pointerId) && travelled <= 4;
      if (event.type === "pointerup" && still) app.focus.click(local(event), event.pointerType === "touch" ? 22 : 12);
    };
    stage.addEventListener("pointerup", release);
    stage.addEventListener("pointercancel", release);
    stage.addEventListener("pointerleave", () => app.focus.hover(null));
    stage.addEventListener("dblclick", () => app.resetView());
    stage.addEventListener("wheel", (event) => {
      if (isFixed(app.camera)) return;
      event.preventDefault();
      app.zoom(Math.exp(-clamp(event.deltaY, -120, 120) * 0.0022), ...local(event));
    }, { passive: false });
  }
}

// The legend: the largest clusters of the moment with their sizes, the given labels, or a colour scale. A cluster or label
// is a button that shows it alone, and all again.
function fillLegend(root, app) {
  const items = [];
  if (app.run.law) {
    const shown = app.camera.kind === "strip" ? "Mean, one and two" : "One and two";
    items.push(element("span", "quiet", `${shown} standard deviations of the normal law`));
  } else if (app.mode === "value") {
    items.push(...placedLegend(app));
  } else if (app.mode === "density") {
    const { low, high, log, name } = app.run.density;
    const bar = element("i", "bar");
    bar.style.background = app.colors.rampCss();
    items.push(element("span", "", formatNumber(log ? low : 0, 2)), bar, element("span", "", formatNumber(high, 2)));
    items.push(element("span", "quiet", name + (log ? ", log scale" : "")));
  } else if (app.mode === "index" || app.mode === "speed") {
    const bar = element("i", "bar");
    bar.style.background = app.colors.rampCss();
    const [low, high] = app.mode === "index" ? [0, app.facts.totalCount - 1] : app.speedRange.map((power) => 10 ** power);
    items.push(element("span", "", formatNumber(low, 2)), bar, element("span", "", formatNumber(high, app.mode === "index" ? 7 : 2)));
    if (app.mode === "speed") items.push(element("span", "quiet", "speed, log scale"));
  } else {
    const found = legendEntries(app);
    const shown = app.width < 480 ? 3 : app.names.usable && app.mode !== "label" ? 5 : LEGEND_ITEMS;
    const entries = firstEntries(app, found, shown);
    for (const entry of entries) items.push(legendButton(app, entry));
    if (found.length > entries.length) items.push(element("span", "quiet", `and ${found.length - entries.length} more`));
  }
  const focused = root.contains(document.activeElement) ? document.activeElement.dataset.code : null;
  root.replaceChildren(...items);
  if (focused !== null) items.find((item) => item.dataset.code === focused)?.focus();
}

function legendButton(app, { code, name }) {
  const what = ["label", "leading"].includes(app.mode) ? name : `cluster of ${name}`;
  const button = element("button", "item");
  button.type = "button";
  button.dataset.code = code;
  button.title = app.only === code ? "Show all again" : "Show these alone";
  pressed(button, app.only === code);
  button.setAttribute("aria-label", `${what}: show alone`);
  const mark = element("i");
  mark.style.background = cssColor(app.colors.category(code));
  button.classList.toggle("faint", app.only >= 0 && app.only !== code);
  button.append(mark, element("span", "", name));
  button.addEventListener("click", () => app.isolate(code, what));
  return button;
}
