// Starting up, and the page's interface.
//
// window.particleflow, for tests and scripts:
//   ready              promise that resolves when the first picture has been drawn
//   state()            {time, unit, frame, playing, speed, scale, mode, held, only, selected, renderer, frames, count}
//   dotRadius(j)       radius in CSS pixels of the dot that particle j lies in, before perspective
//   positions(k)       Float64Array of the decoded coordinates of stored frame k, particle by particle
//   clusters(k)        array of cluster codes of stored frame k, or null
//   levels(k)          array of how dense the cells of stored frame k are, from 0 to 1, or null for particles
//   placed(k)          [colour, opacity] of values on places in the plane in stored frame k, or null for others
//   names()            the names beside particles in the last picture: {text, box: [left, top, right, bottom]}
//   frameTimes()       times of the stored frames
//   ticks(wanted)      the ticks of the time axis, about so many: {unit, label}
//   cursors()          screen x of the cursor of every panel, and of its plot's left and right end
//   seek(time), play(), pause()
//   benchmark(n)       promise of the median milliseconds of script per picture, over n pictures with a new frame each

function publish(app) {
  const { player, focus } = app;
  const methods = {
    state: () => ({
      time: player.time, unit: player.unit, frame: player.moment.k, playing: player.playing, speed: player.speed,
      scale: app.timeline.mode, mode: app.mode, held: app.held, only: app.only, selected: focus.selected,
      hovered: focus.hovered,
      renderer: app.renderer.kind, frames: app.run.frames, count: app.run.count,
    }),
    positions: (k) => app.run.positions(k),
    clusters: (k) => (app.run.hasClusters ? Array.from({ length: app.run.count }, (_, j) => app.run.cluster(j, k)) : null),
    placed: (k) => (app.run.placed?.kind === "places"
      ? Array.from({ length: app.run.count }, (_, j) => placedColor(app, j, { k, next: k, fraction: 0 })) : null),
    levels: (k) => (app.run.density
      ? Array.from({ length: app.run.count }, (_, j) => app.run.level(j, { k, next: k, fraction: 0 })) : null),
    dotRadius: (j) => app.dotRadius(j),
    names: () => app.names.drawn.map(({ text, box }) => ({ text, box })),
    frameTimes: () => Array.from(app.timeline.frameTimes),
    ticks: (wanted) => app.timeline.ticks(wanted),
    cursors: () => app.panels.list.map((panel) => {
      const [plot, cursor] = [panel.plot.getBoundingClientRect(), panel.cursor.getBoundingClientRect()];
      return { x: cursor.left, left: plot.left + GUTTER.left, right: plot.right - GUTTER.right };
    }),
    seek: (time) => player.seek(time),
    play: () => player.play(),
    pause: () => player.pause(),
    benchmark: (pictures) => app.benchmark(pictures),
  };
  Object.assign(window.particleflow, methods);
}

async function start() {
  const facts = JSON.parse(byId("facts").textContent);
  showHeading(facts);
  const bar = byId("loading");
  const progress = (share) => {
    bar.firstElementChild.style.width = `${100 * share}%`;
    bar.setAttribute("aria-valuenow", Math.round(100 * share));
  };
  const arrays = await readArrays(facts.sections);
  const codes = await readCodes(facts, progress);
  bar.hidden = true;
  const app = new App(facts, arrays, codes);
  publish(app);
  if (!app.reducedMotion.matches) app.player.play();
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}

window.particleflow = {};
window.particleflow.ready = start().catch((problem) => {
  byId("loading").hidden = true;
  byId("notice").hidden = false;
  byId("notice").textContent = `This page could not be shown: ${problem.message}. A current browser is needed.`;
  throw problem;
});
