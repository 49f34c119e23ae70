// The player: where in time the run stands, whether it plays and how fast, and the scale of the time axes.

const BASE_SECONDS = 18; // one pass over the run at speed 1

class Player {
  constructor(app) {
    this.app = app;
    this.timeline = app.timeline;
    this.place = this.timeline.begin; // where playing has come to, of a map also between two steps
    this.speed = 1;
    this.playing = false;
    this.lastTick = null;
  }

  // The time that is shown.
  get time() {
    return this.timeline.shown(this.place);
  }

  set time(time) {
    this.place = time;
  }

  get unit() {
    return clamp(this.timeline.toUnit(this.time), 0, 1);
  }

  get moment() {
    return this.timeline.moment(this.time);
  }

  seek(time) {
    this.place = clamp(time, this.timeline.begin, this.timeline.end);
    this.app.invalidate("points");
  }

  seekUnit(unit, stop = false) {
    if (stop) this.pause();
    this.seek(this.timeline.fromUnit(unit));
  }

  stepFrames(hop) {
    this.pause();
    const { k, fraction } = this.moment;
    const from = hop < 0 && fraction > 1e-9 ? k + 1 : k;
    this.seek(this.timeline.frameTimes[clamp(from + hop, 0, this.app.run.frames - 1)]);
    this.announce();
  }

  play() {
    if (this.app.run.frames < 2) return;
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

  // The seconds since the last screen refresh, in which the run has gone on if it plays.
  advance(now) {
    const seconds = this.lastTick === null ? 0 : Math.min(0.1, (now - this.lastTick) / 1000);
    this.lastTick = now;
    if (this.playing) {
      const unit = clamp(this.timeline.toUnit(this.place), 0, 1) + (seconds * this.speed) / BASE_SECONDS;
      this.seekUnit(unit);
      if (unit >= 1) this.pause();
    }
    return seconds;
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
    this.app.invalidate("panels");
    if (this.app.camera.kind === "strip") this.app.invalidate("under");
  }

  nextScale() {
    const allowed = SCALES.map(([value]) => value).filter((value) => value !== "log" || this.timeline.hasLog);
    this.setScale(allowed[(allowed.indexOf(this.timeline.mode) + 1) % allowed.length]);
  }

  announce() {
    byId("live").textContent = describeMoment(this.app);
  }

  showPlaying() {
    byId("play").classList.toggle("playing", this.playing);
    byId("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
  }

  showScale() {
    for (const button of byId("scale").children) {
      button.setAttribute("aria-checked", String(button.dataset.scale === this.timeline.mode));
    }
  }

  showClock() {
    const { arrays, facts } = this.app;
    const scrubber = byId("scrubber");
    scrubber.value = this.unit;
    scrubber.style.setProperty("--done", `${100 * this.unit}%`);
    scrubber.setAttribute("aria-valuetext", describeMoment(this.app));
    byId("readout").textContent = timeText(this.app);
    byId("clock").textContent = `frame ${arrays.frames[this.moment.k] + 1} / ${facts.totalFrames}`;
  }
}
