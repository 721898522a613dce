/* The Dense Associative Memory, as in network.py. A state is an array of N numbers, -1 or +1;
   theta holds M memories of N weights, row after row. */

function power(x, n) {
  if (!Number.isInteger(n)) return Math.pow(x, n);
  let result = 1;
  for (; n > 0; n = Math.floor(n / 2), x *= x) if (n % 2) result *= x;
  return result;
}

function interactionOf({ kind, n, leak }) {
  if (kind === "polynomial") return Number.isInteger(n) ? (x) => power(x, n) : (x) => Math.pow(Math.abs(x), n);
  if (kind === "exponential") return (x) => Math.exp(Math.min(n * (x - 1), 60)) * (1 + Math.max(n * (x - 1) - 60, 0));
  const slope = kind === "rectified" ? 0 : leak;
  return (x) => (x > 0 ? power(x, n) : slope * x);
}

class Memory {
  constructor(theta, neurons, interaction, beta) {
    this.theta = theta;
    this.neurons = neurons;
    this.memories = theta.length / neurons;
    this.f = interactionOf(interaction);
    this.scale = beta / neurons;
  }

  /* h_m = beta/N memory . state */
  similarity(state) {
    const h = new Float64Array(this.memories);
    for (let m = 0; m < this.memories; m++) {
      let sum = 0;
      for (let i = 0, at = m * this.neurons; i < this.neurons; i++) sum += this.theta[at + i] * state[i];
      h[m] = this.scale * sum;
    }
    return h;
  }

  energy(state) {
    return -this.similarity(state).reduce((sum, h) => sum + this.f(h), 0);
  }

  /* o_i = sum over memories of f(with i on) - f(with i off), for neurons first to last - 1 */
  scores(state, first = 0, last = this.neurons, h = this.similarity(state)) {
    const o = new Float64Array(last - first);
    for (let m = 0; m < this.memories; m++) {
      const base = this.f(h[m]);
      for (let i = first; i < last; i++) {
        const u = -state[i];
        o[i - first] += u * (this.f(h[m] + 2 * u * this.scale * this.theta[m * this.neurons + i]) - base);
      }
    }
    return o;
  }

  /* What each class neuron, from `first` on, says of a state: from -1 to 1. */
  answers(state, first) {
    return Array.from(this.scores(state, first), Math.tanh);
  }

  /* The memories that a state wakes. */
  awake() {
    return this;
  }

  /* One update of every neuron; a score of 0 changes nothing. */
  step(state, order = "synchronous") {
    const next = Float64Array.from(state);
    if (order === "synchronous") {
      this.scores(state).forEach((o, i) => { if (o !== 0) next[i] = Math.sign(o); });
      return next;
    }
    const h = this.similarity(next);
    for (let i = 0; i < this.neurons; i++) {
      const sign = Math.sign(this.scores(next, i, i + 1, h)[0]);
      if (sign === 0 || sign === next[i]) continue;
      for (let m = 0; m < this.memories; m++) {
        h[m] += this.scale * this.theta[m * this.neurons + i] * (sign - next[i]);
      }
      next[i] = sign;
    }
    return next;
  }

  /* The states from the probe to rest, the probe first; the last says whether it is one of rest. */
  relax(state, steps = 20, order = "synchronous") {
    const states = [Float64Array.from(state)];
    for (let k = 0; k < steps; k++) {
      const next = this.step(states[k], order);
      if (next.every((x, i) => x === states[k][i])) return { states, converged: true };
      states.push(next);
    }
    return { states, converged: false };
  }
}

/* Memories in groups, as in methods/allocation.py: an item is answered by the groups that know it. `groups`:
   memories of `each`; mean and deviation of the energies of what each has learned, infinite where it has
   learned nothing; the group that is the `owner` of each task so far; and whether tasks are `told`. */
class Groups {
  constructor(theta, neurons, classes, interaction, beta, groups) {
    Object.assign(this, groups);
    this.neurons = neurons;
    this.first = neurons - classes;
    this.n = interaction.n;
    const size = groups.each * neurons, opened = Array.from(groups.mean).filter(Number.isFinite).length;
    this.parts = Array.from({ length: opened }, (_, g) => new Memory(theta.subarray(g * size, (g + 1) * size), neurons, interaction, beta));
  }

  /* e(x): log of the largest sum of f over a group's memories, with one class neuron on, at temperature 1 */
  familiarity(part, state) {
    const h = part.similarity(state), f = (x) => (x > 0 ? power(x, this.n) : 0), beta = part.scale * this.neurons;
    const on = this.first < this.neurons ? Array.from({ length: this.neurons - this.first }, (_, c) => this.first + c) : [null];
    const sums = on.map((i) => h.reduce((sum, each, m) =>
      sum + f((each + (i === null ? 0 : part.scale * part.theta[m * this.neurons + i] * (1 - state[i]))) / beta), 0));
    return Math.log(Math.max(...sums, 2.2250738585072014e-308));
  }

  /* z: how well each group knows a state, in deviations from what it has learned */
  known(state) {
    return this.parts.map((part, g) => (this.familiarity(part, state) - this.mean[g]) / this.deviation[g]);
  }

  /* The group that knows a state best; or that of its task, where tasks are told. */
  claim(state, task = null) {
    if (this.told && task !== null && task < this.owner.length) return this.owner[task];
    const z = this.known(state);
    return z.indexOf(Math.max(...z));
  }

  awake(state, task = null) {
    return this.parts[this.claim(state, task)];
  }

  /* The groups' answers, each counting by softmax(sharpness z + margin between its two best classes). */
  answers(state, first, task = null) {
    if (this.told && task !== null && task < this.owner.length) return this.awake(state, task).answers(state, first);
    const each = this.parts.map((part) => part.answers(state, first)), z = this.known(state);
    const weight = each.map((y, g) => {
      const [best, second] = y.slice().sort((a, b) => b - a);
      return this.sharpness * z[g] + best - (second ?? best);
    });
    const top = Math.max(...weight), share = weight.map((w) => Math.exp(w - top)), sum = share.reduce((a, b) => a + b, 0);
    return each[0].map((_, c) => each.reduce((total, y, g) => total + (share[g] / sum) * y[c], 0));
  }
}
