// Time, and the three ways to lay it out on a line: linear, logarithmic, and by how far the particles travel.

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const superscript = (power) => [...String(power)].map((character) => SUPERSCRIPTS[character]).join("");

// A number a person can read: 4 significant digits, powers of ten as powers, a real minus sign.
function formatNumber(value, digits = 4) {
  if (value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (size >= 1e5 || size < 1e-3) {
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    const short = String(Number(mantissa));
    text = (short === "1" ? "" : short === "-1" ? "-" : short + "·") + "10" + superscript(Number(power));
  } else {
    text = String(Number(value.toPrecision(digits)));
  }
  return text.replace("-", "−");
}

const formatCount = (value) => value.toLocaleString("en");

// Numbers that increase as texts of so few digits, `digits` or more, that neighbours differ.
function distinctNumbers(values, digits = 4) {
  for (let more = digits; more < 16; more++) {
    const texts = values.map((value) => formatNumber(value, more));
    if (texts.every((text, i) => i === 0 || text !== texts[i - 1])) return texts;
  }
  return values.map((value) => formatNumber(value, 16));
}

// Readable steps between low and high, about `wanted` of them.
function niceTicks(low, high, wanted) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const rough = span / Math.max(1, wanted);
  const base = 10 ** Math.floor(Math.log10(rough));
  const step = base * [1, 2, 5, 10].find((factor) => factor * base >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  return ticks.length < 2 && wanted < 12 ? niceTicks(low, high, wanted * 1.7) : ticks;
}

// Position of `value` in an increasing array: index i and fraction f with array[i] + f (array[i+1] − array[i]) = value.
function locate(array, value) {
  let low = 0;
  let high = array.length - 1;
  if (high < 1 || value <= array[0]) return { index: 0, fraction: 0 };
  if (value >= array[high]) return { index: high, fraction: 0 };
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (array[middle] <= value) low = middle;
    else high = middle;
  }
  const width = array[low + 1] - array[low];
  return { index: low, fraction: width > 0 ? (value - array[low]) / width : 0 };
}

function interpolate(array, { index, fraction }) {
  const value = array[index];
  return fraction > 0 ? value + (array[index + 1] - value) * fraction : value;
}

// The index of the nearer sample: a number of clusters changes half way in time between two frames.
const nearest = ({ index, fraction }) => (fraction < 0.5 ? index : index + 1);

class Timeline {
  constructor(times, arc, frames, { map, unit }) {
    this.times = times;
    this.isMap = map; // nothing is between its frames
    this.countsSteps = Boolean(unit); // a unit of time is a layer or a step
    this.frameTimes = Float64Array.from(frames, (index) => times[index]);
    this.begin = times[0];
    this.end = times[times.length - 1];
    const last = times.length - 1;
    const total = arc[last] || 1;
    // a run at rest has no arc length: a little of the frame number keeps the scale increasing
    this.travel = Float64Array.from(arc, (value, i) => 0.98 * (value / total) + 0.02 * (i / Math.max(1, last)));
    if (!arc[last]) this.travel = Float64Array.from(arc, (_, i) => i / Math.max(1, last));
    else for (let i = 0; i <= last; i++) this.travel[i] /= this.travel[last];
    this.firstPositive = times.find((time) => time > 0);
    this.hasLog = this.firstPositive !== undefined && this.end > this.firstPositive * 1.0001;
    // the first frame is often at time 0, which no logarithm shows: it gets a short linear run-up
    this.runUp = this.hasLog && this.begin < this.firstPositive ? 0.03 : 0;
    this.mode = this.preferred();
  }

  // Log time when the frames themselves were saved on it; arc length when nearly all motion falls in little time.
  preferred() {
    const times = this.frameTimes;
    if (!this.hasLog || times.length < 8) return "linear";
    const third = Math.floor(times.length / 3);
    const early = times[third] - times[0];
    const late = times[times.length - 1] - times[times.length - 1 - third];
    if (late > 20 * early) return "log";
    return this.busyShare() < 0.2 ? "arc" : "linear";
  }

  // The share of time that holds 80 % of the motion, fastest intervals first.
  busyShare() {
    const parts = [];
    for (let i = 1; i < this.times.length; i++) {
      parts.push([this.travel[i] - this.travel[i - 1], this.times[i] - this.times[i - 1]]);
    }
    parts.sort((a, b) => b[0] * a[1] - a[0] * b[1]);
    let [moved, lasted] = [0, 0];
    for (const [motion, duration] of parts) {
      if (moved >= 0.8) break;
      moved += motion;
      lasted += duration;
    }
    return lasted / (this.end - this.begin);
  }

  // The place u ∈ [0, 1] of a time on the current scale, and back.
  toUnit(time) {
    if (!(this.end > this.begin)) return 0;
    if (this.mode === "arc") return interpolate(this.travel, locate(this.times, time));
    if (this.mode === "linear") return (time - this.begin) / (this.end - this.begin);
    const start = this.firstPositive;
    if (time < start) return (this.runUp * (time - this.begin)) / (start - this.begin);
    return this.runUp + ((1 - this.runUp) * Math.log(time / start)) / Math.log(this.end / start);
  }

  fromUnit(unit) {
    const u = Math.min(1, Math.max(0, unit));
    if (u >= 1) return this.end; // rounding must not fall short of the last frame
    if (this.mode === "arc") return interpolate(this.times, locate(this.travel, u));
    if (this.mode === "linear") return this.begin + u * (this.end - this.begin);
    const start = this.firstPositive;
    if (u < this.runUp) return this.begin + (u / this.runUp) * (start - this.begin);
    return start * Math.exp(((u - this.runUp) / (1 - this.runUp)) * Math.log(this.end / start));
  }

  // The time that is shown for a time: itself, or of a map that of the nearest stored frame.
  shown(time) {
    return this.isMap ? this.frameTimes[nearest(locate(this.frameTimes, time))] : time;
  }

  // The two stored frames around a time, and how far it is between them.
  moment(time) {
    const { index, fraction } = locate(this.frameTimes, time);
    return { k: index, next: Math.min(index + 1, this.frameTimes.length - 1), fraction };
  }

  ticks(wanted) {
    if (!(this.end > this.begin)) return [{ unit: 0, label: formatNumber(this.begin) }];
    if (this.mode === "log") return this.logTicks(wanted);
    if (this.mode === "linear") {
      return this.ticksAt(niceTicks(this.begin, this.end, wanted));
    }
    const times = Array.from({ length: wanted + 1 }, (_, i) => this.shown(this.fromUnit(i / wanted)));
    return this.ticksAt([...new Set(times)], 2);
  }

  // When something changed that is first seen at a sample: half way from the one before, of whole steps from its next.
  changeBetween(before, after) {
    return ((this.countsSteps ? Math.min(before + 1, after) : before) + after) / 2; // as in figures
  }

  // Ticks at times, whose labels differ from tick to tick; a time that is rounded in its label stands where it says.
  ticksAt(times, digits = 4) {
    const wanted = this.countsSteps ? times.filter(Number.isInteger) : times;
    return distinctNumbers(wanted, digits).map((label, i) => {
      const said = Number(label.replace("−", "-")); // not a number where it is a power of ten
      return { unit: this.toUnit(clamp(Number.isFinite(said) ? said : wanted[i], this.begin, this.end)), label };
    });
  }

  logTicks(wanted) {
    const low = Math.ceil(Math.log10(this.firstPositive) - 1e-9);
    const high = Math.floor(Math.log10(this.end) + 1e-9);
    const stride = Math.max(1, Math.ceil((high - low + 1) / wanted));
    const ticks = [];
    for (let power = low; power <= high; power += stride) {
      const label = Math.abs(power) <= 2 ? formatNumber(10 ** power) : "10" + superscript(power);
      ticks.push({ unit: this.toUnit(10 ** power), label });
    }
    // less than a decade: whole powers of ten say too little
    if (ticks.length < 2) {
      return this.ticksAt(niceTicks(this.firstPositive, this.end, wanted));
    }
    return ticks;
  }
}
