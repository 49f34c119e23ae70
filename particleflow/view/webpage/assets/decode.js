// Reading the arrays of the page: base64 → bytes → inflate → numbers. The writer is codec.py.

const TYPES = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u4: Uint32Array };
const MISSING_LABEL = 65535;
const HIGHEST_LEVEL = 65534;

function bytesFromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function sectionBytes(name) {
  const element = document.getElementById("section-" + name);
  const buffer = await inflate(bytesFromBase64(element.textContent));
  element.remove(); // frees the text, which is as large as the data
  return buffer;
}

// All plain arrays of the page, by name.
async function readArrays(sections) {
  const arrays = {};
  for (const section of sections) {
    if (section.kind === "codes") continue;
    arrays[section.name] = new TYPES[section.kind](await sectionBytes(section.name));
  }
  return arrays;
}

// Add predictions back to the residuals of one block, in place of the codes they came from.
// `codes` holds (frame, particle, 4) interleaved for the graphics card; the stream holds (frame, component, particle).
function undoPrediction(stream, codes, first, shape, slots, order, count) {
  const [frames, components] = shape;
  const half = stream.length / 2;
  const stride = count * 4;
  let read = 0;
  for (let k = first; k < first + frames; k++) {
    for (let c = 0; c < components; c++) {
      let at = k * stride + slots[c];
      for (let j = 0; j < count; j++, at += 4, read++) {
        const folded = stream[read] | (stream[half + read] << 8);
        let value = (folded >>> 1) ^ -(folded & 1);
        if (k > 0) value += order === 1 ? codes[at - stride] : 2 * codes[at - stride];
        if (k > 1 && order === 2) value -= codes[at - 2 * stride];
        codes[at] = value; // a Uint16Array keeps the value modulo 2¹⁶, which is what the writer counts in
      }
    }
  }
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 0));

// Decode positions and clusters into one Uint16Array (frame, particle, [x, y, z, cluster]); between blocks the browser
// handles events.
async function readCodes(facts, progress) {
  const { count, frameCount, shownDimension, order } = facts;
  const codes = new Uint16Array(frameCount * count * 4);
  const blocks = facts.sections.filter((section) => section.kind === "codes");
  const done = { positions: 0, clusters: 0 };
  for (const [number, block] of blocks.entries()) {
    const clusters = !block.name.startsWith("positions"); // or the levels of a density, which has none
    const which = clusters ? "clusters" : "positions";
    const stream = new Uint8Array(await sectionBytes(block.name));
    const shape = clusters ? [block.shape[0], 1] : block.shape;
    const slots = clusters ? [3] : [0, 1, 2].slice(0, shownDimension);
    undoPrediction(stream, codes, done[which], shape, slots, clusters ? 1 : order, count);
    done[which] += block.shape[0];
    progress((number + 1) / blocks.length);
    await pause();
  }
  return codes;
}

// The decoded run: positions and clusters of any particle at any moment between two stored frames.
class Run {
  constructor(facts, arrays, codes) {
    this.facts = facts;
    this.arrays = arrays;
    this.codes = codes;
    this.count = facts.count;
    this.frames = facts.frameCount;
    this.dimension = facts.shownDimension;
    this.low = [0, 1, 2].map((c) => facts.low[c] ?? 0);
    this.step = [0, 1, 2].map((c) => facts.step[c] ?? 0);
    this.missing = 2 ** facts.bits - 1;
    this.radius = facts.radius ?? 0; // of the circle or sphere the points live on
    this.hasClusters = facts.sections.some((section) => section.name === "clusters0");
    this.density = facts.density; // of a density: the scale of its levels
    this.placed = facts.placed; // of values on places that stay: how they are drawn
    const whole = arrays.weights?.reduce((sum, weight) => sum + weight, 0);
    this.masses = Float64Array.from({ length: this.count }, (_, j) => (whole ? arrays.weights[j] / whole : 1 / this.count));
    this.law = facts.law; // whether the points are the nodes of a normal law, and no particles
  }

  frame(k) {
    return this.codes.subarray(k * this.count * 4, (k + 1) * this.count * 4);
  }

  // Coordinates of particle j at the moment (k, fraction) into `out`; false if the particle is missing.
  point(j, moment, out) {
    const a = (moment.k * this.count + j) * 4;
    const b = (moment.next * this.count + j) * 4;
    if (this.codes[a] === this.missing || this.codes[b] === this.missing) return false;
    let [begin, end, length] = [0, 0, 0];
    for (let c = 0; c < 3; c++) {
      const from = this.low[c] + this.step[c] * this.codes[a + c];
      const to = this.low[c] + this.step[c] * this.codes[b + c];
      out[c] = from + (to - from) * moment.fraction;
      begin += from * from;
      end += to * to;
      length += out[c] * out[c];
    }
    if (this.radius > 0 && length > 0) {
      // on a sphere the straight line between two frames is bent back onto it
      const bend = (Math.sqrt(begin) * (1 - moment.fraction) + Math.sqrt(end) * moment.fraction) / Math.sqrt(length);
      for (let c = 0; c < 3; c++) out[c] *= bend;
    }
    return true;
  }

  // Whether stored frame k has a number of clusters: chains are not separated and have none.
  isSeparated(k) {
    const { counts, frames } = this.arrays;
    return !counts || Number.isFinite(counts[frames[k]]);
  }

  cluster(j, k) {
    return this.hasClusters ? this.codes[(k * this.count + j) * 4 + 3] : MISSING_LABEL;
  }

  // How dense cell j is at a moment, from 0 to 1 on the scale of colours.
  level(j, moment) {
    const at = (k) => this.codes[(k * this.count + j) * 4 + 3];
    return (at(moment.k) * (1 - moment.fraction) + at(moment.next) * moment.fraction) / HIGHEST_LEVEL;
  }

  // The density at a level.
  densityAt(level) {
    const { low, high, log } = this.density;
    return log ? low * (high / low) ** level : high * level;
  }

  // Sizes of the clusters in frame k, as a map from cluster code to number of particles.
  clusterSizes(k) {
    const sizes = new Map();
    if (!this.hasClusters) return sizes;
    const frame = this.frame(k);
    this.tally ??= new Uint32Array(65536);
    for (let at = 3; at < frame.length; at += 4) this.tally[frame[at]]++;
    for (let at = 3; at < frame.length; at += 4) {
      const code = frame[at];
      if (!this.tally[code]) continue;
      sizes.set(code, this.tally[code]);
      this.tally[code] = 0; // the tally is empty again for the next frame
    }
    return sizes;
  }

  positions(k) {
    const frame = this.frame(k);
    const out = new Float64Array(this.count * this.dimension);
    for (let j = 0; j < this.count; j++) {
      const gone = frame[4 * j] === this.missing;
      for (let c = 0; c < this.dimension; c++) {
        out[j * this.dimension + c] = gone ? NaN : this.low[c] + this.step[c] * frame[4 * j + c];
      }
    }
    return out;
  }

  get hasWords() {
    return Boolean(this.arrays.word_codes);
  }

  word(j) {
    return this.facts.words[this.arrays.word_codes[j]];
  }

  number(j) {
    return this.arrays.particles ? this.arrays.particles[j] : j;
  }
}
