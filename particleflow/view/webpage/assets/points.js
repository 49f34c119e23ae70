// Points by WebGL2. The card holds two stored frames as raw codes and does the rest for every point: interpolate, project,
// colour, fade with depth. Moving time inside a frame costs two uniforms; a new frame costs one upload of 8 bytes a point.

const VERTEX = `#version 300 es
precision highp float;
precision highp int;
layout(location = 0) in uvec4 first;   // x, y, z, cluster in frame k
layout(location = 1) in uvec4 second;  // the same in frame k + 1
layout(location = 2) in uint code;     // a category that does not change: given label, or held clusters
layout(location = 3) in float share;   // the area of the dot, in those of a point: larger for the mass at its place
uniform mat4 matrix;
uniform vec3 low, stepSize, background;
uniform float fraction, size, reference, alpha, missing, count, elapsed, sphere, square, solid;
uniform vec4 behind; // of a colour: inside of an open dot, its rim at the far side and what it gains; of its radius
uniform vec2 cue, speedRange;
uniform int mode, only;
uniform highp sampler2D categories, ramp;
out vec4 tint, inside;
out float radius, hollow;

vec3 category(uint value) {
  int last = textureSize(categories, 0).x - 1;
  int at = value == 65535u ? last : int(value) % last;
  return texelFetch(categories, ivec2(at, 0), 0).rgb;
}

vec3 scale(float value) {
  return texture(ramp, vec2(clamp(value, 0.0, 1.0) * (32.0 / 33.0) + 0.5 / 33.0, 0.5)).rgb;
}

void main() {
  vec3 begin = low + stepSize * vec3(first.xyz);
  vec3 end = low + stepSize * vec3(second.xyz);
  bool gone = float(first.x) == missing || float(second.x) == missing;
  vec3 here = mix(begin, end, fraction);
  // on a sphere the straight line between two frames is bent back onto it
  if (sphere > 0.0) here *= mix(length(begin), length(end), fraction) / max(length(here), 1e-6);
  gl_Position = gone ? vec4(2.0, 2.0, 2.0, 1.0) : matrix * vec4(here, 1.0);
  float distance = gl_Position.w;
  vec3 color;
  if (mode == 0) color = category(first.w);
  else if (mode == 1) color = category(code);
  else if (mode == 2) color = scale(float(gl_VertexID) / max(1.0, count - 1.0));
  else if (mode == 4) color = scale(mix(float(first.w), float(second.w), fraction) / 65534.0);
  else {
    float speed = elapsed > 0.0 ? length(end - begin) / elapsed : 0.0;
    color = scale((log(max(speed, 1e-37)) / log(10.0) - speedRange.x) / (speedRange.y - speedRange.x));
  }
  float far = cue.y > cue.x ? clamp((distance - cue.x) / (cue.y - cue.x), 0.0, 1.0) : 0.0;
  // behind the middle of a sphere dots are open, as in figures and movies; in open space they fade with the distance
  hollow = solid > 0.0 && far > 0.5 ? behind.w : 0.0;
  float near = 1.0 - far;
  float strength = hollow > 0.0 ? behind.y + behind.z * near : solid > 0.0 ? 0.88 + 0.12 * near : 1.0 - 0.38 * smoothstep(0.35, 1.0, far);
  tint = vec4(mix(background, color, strength), alpha);
  // categories that are not shown alone stay as a shade
  if (only >= 0 && int(mode == 0 ? first.w : code) != only) tint = vec4(mix(color, background, 0.6), 0.14 * alpha);
  inside = vec4(mix(background, color, behind.x), tint.a);
  float pixels = size * sqrt(share) * (reference > 0.0 ? reference / distance : 1.0);
  gl_PointSize = pixels + (square > 0.0 ? 0.0 : 1.5);
  radius = (pixels + 1.5) * 0.5;
}`;

const FRAGMENT = `#version 300 es
precision highp float;
in vec4 tint, inside;
in float radius, hollow;
uniform float rimmed, square;
out vec4 result;
void main() {
  float away = length(gl_PointCoord - 0.5) * 2.0 * radius;
  float cover = (square > 0.0 ? 1.0 : clamp(radius - away, 0.0, 1.0)) * tint.a;
  if (cover <= 0.0) discard;
  // a slightly deeper rim keeps neighbours of one colour apart
  float rim = rimmed > 0.0 && radius > 2.2 ? smoothstep(radius - 2.0, radius - 0.6, away) : 0.0;
  vec3 color = tint.rgb * (1.0 - 0.28 * rim);
  if (hollow > 0.0) color = mix(tint.rgb, inside.rgb, clamp(hollow * (radius - 0.75) + 0.5 - away, 0.0, 1.0));
  result = vec4(color * cover, cover);
}`;

const MODES = { cluster: 0, label: 1, held: 1, index: 2, speed: 3, density: 4 };
const SORT_LIMIT = 250000; // above this many points the order by depth costs more than it shows

function compile(gl, type, source) {
  const shader = gl.createShader(type);
  gl.shaderSource(shader, source);
  gl.compileShader(shader);
  if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
  return shader;
}

class GLPoints {
  constructor(canvas, run) {
    this.kind = "webgl2";
    this.run = run;
    const gl = canvas.getContext("webgl2", { alpha: true, antialias: false, depth: false, premultipliedAlpha: true });
    if (!gl) throw new Error("WebGL2 is not available");
    this.gl = gl;
    this.program = gl.createProgram();
    gl.attachShader(this.program, compile(gl, gl.VERTEX_SHADER, VERTEX));
    gl.attachShader(this.program, compile(gl, gl.FRAGMENT_SHADER, FRAGMENT));
    gl.linkProgram(this.program);
    if (!gl.getProgramParameter(this.program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(this.program));
    gl.useProgram(this.program);
    this.places = {};
    const total = gl.getProgramParameter(this.program, gl.ACTIVE_UNIFORMS);
    for (let i = 0; i < total; i++) {
      const { name } = gl.getActiveUniform(this.program, i);
      this.places[name] = gl.getUniformLocation(this.program, name);
    }
    this.slots = [0, 1, 2].map(() => ({ buffer: this.allocate(run.count * 8), frame: -1 }));
    this.codes = this.allocate(run.count * 2);
    this.equal = { share: new Float32Array(run.count).fill(1), anchor: null, order: null };
    this.shares = this.allocate(run.count * 4);
    this.order = new Uint32Array(run.count);
    this.depths = new Uint16Array(run.count);
    this.orderBuffer = gl.createBuffer();
    this.textures = [gl.createTexture(), gl.createTexture()];
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  allocate(bytes) {
    const buffer = this.gl.createBuffer();
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, buffer);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, bytes, this.gl.DYNAMIC_DRAW);
    return buffer;
  }

  setColors(colors) {
    this.background = colors.background.map((entry) => entry / 255);
    this.setTexture(0, [...colors.categories, colors.muted], this.gl.NEAREST);
    this.setTexture(1, colors.ramp, this.gl.LINEAR);
  }

  setTexture(unit, list, filter) {
    const gl = this.gl;
    const pixels = Uint8Array.from(list.flatMap((color) => [...color, 255]));
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, this.textures[unit]);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, list.length, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
    for (const name of ["TEXTURE_MIN_FILTER", "TEXTURE_MAG_FILTER"]) gl.texParameteri(gl.TEXTURE_2D, gl[name], filter);
    for (const name of ["TEXTURE_WRAP_S", "TEXTURE_WRAP_T"]) gl.texParameteri(gl.TEXTURE_2D, gl[name], gl.CLAMP_TO_EDGE);
  }

  setCategories(codes) {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.codes);
    this.gl.bufferSubData(this.gl.ARRAY_BUFFER, 0, codes);
  }

  // The buffer that holds stored frame k, uploading it over a frame that is not `keep` if need be.
  resident(k, keep) {
    let slot = this.slots.find((candidate) => candidate.frame === k);
    if (!slot) {
      slot = this.slots.find((candidate) => candidate.frame !== keep);
      this.gl.bindBuffer(this.gl.ARRAY_BUFFER, slot.buffer);
      this.gl.bufferSubData(this.gl.ARRAY_BUFFER, 0, this.run.frame(k));
      slot.frame = k;
    }
    return slot.buffer;
  }

  // Far points first, by a counting sort of the distance of their places: blending then needs no depth buffer.
  sort(matrix, moment, cue, dots) {
    const { run, order, depths } = this;
    const frame = run.frame(moment.fraction < 0.5 ? moment.k : moment.next);
    const bins = 4096;
    const scale = bins / (1.3 * (cue[1] - cue[0]));
    const base = cue[0] - 0.15 * (cue[1] - cue[0]);
    const [a, b, c] = [3, 7, 11].map((place, axis) => matrix[place] * run.step[axis] * scale);
    const shift = [3, 7, 11].reduce((sum, place, axis) => sum + matrix[place] * run.low[axis], matrix[15]);
    const starts = new Uint32Array(bins + 1);
    for (let j = 0; j < run.count; j++) {
      const at = 4 * (dots.anchor ? dots.anchor[j] : j);
      const depth = a * frame[at] + b * frame[at + 1] + c * frame[at + 2] + (shift - base) * scale;
      const bin = depth > 0 ? (depth < bins ? bins - 1 - (depth | 0) : 0) : bins - 1;
      depths[j] = bin;
      starts[bin + 1]++;
    }
    for (let i = 1; i <= bins; i++) starts[i] += starts[i - 1];
    for (let i = 0; i < run.count; i++) {
      const j = dots.order ? dots.order[i] : i;
      order[starts[depths[j]]++] = j;
    }
    this.upload(order);
  }

  upload(order) {
    this.gl.bindBuffer(this.gl.ELEMENT_ARRAY_BUFFER, this.orderBuffer);
    this.gl.bufferData(this.gl.ELEMENT_ARRAY_BUFFER, order, this.gl.STREAM_DRAW);
  }

  setShares({ share }) {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.shares);
    if (this.sharesNow !== share) gl.bufferSubData(gl.ARRAY_BUFFER, 0, share);
    this.sharesNow = share;
    gl.enableVertexAttribArray(3);
    gl.vertexAttribPointer(3, 1, gl.FLOAT, false, 4, 0);
  }

  bind(place, buffer, size, stride) {
    const gl = this.gl;
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribIPointer(place, size, gl.UNSIGNED_SHORT, stride, 0);
  }

  draw(view) {
    const { gl, places, run } = this;
    if (gl.isContextLost()) return;
    const { moment, matrix } = view;
    gl.viewport(0, 0, gl.drawingBufferWidth, gl.drawingBufferHeight);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    this.bind(0, this.resident(moment.k, moment.next), 4, 8);
    this.bind(1, this.resident(moment.next, moment.k), 4, 8);
    this.bind(2, this.codes, 1, 2);
    gl.uniformMatrix4fv(places.matrix, false, matrix);
    gl.uniform3fv(places.low, run.low);
    gl.uniform3fv(places.stepSize, run.step);
    gl.uniform3fv(places.background, this.background);
    gl.uniform2fv(places.cue, view.cue);
    const { open, rim, gain, inside } = run.facts.behind;
    gl.uniform4f(places.behind, open, rim, gain, inside);
    gl.uniform2fv(places.speedRange, view.speedRange);
    gl.uniform1i(places.mode, MODES[view.mode]);
    gl.uniform1i(places.only, view.only);
    gl.uniform1i(places.categories, 0);
    gl.uniform1i(places.ramp, 1);
    const numbers = { ...view.numbers, fraction: moment.fraction, missing: run.missing, count: run.count };
    numbers.sphere = run.radius > 0 ? 1 : 0;
    numbers.rimmed = run.density ? 0 : 1; // cells are to touch
    numbers.square = run.density?.kind === "plane" ? 1 : 0;
    for (const [name, value] of Object.entries(numbers)) gl.uniform1f(places[name], value);
    const dots = view.dots ?? this.equal;
    this.setShares(dots);
    const deep = view.cue[1] > view.cue[0] && run.count <= SORT_LIMIT;
    if (deep) this.sort(matrix, moment, view.cue, dots);
    else if (dots.order) this.upload(dots.order);
    if (deep || dots.order) gl.drawElements(gl.POINTS, run.count, gl.UNSIGNED_INT, 0);
    else gl.drawArrays(gl.POINTS, 0, run.count);
  }
}
