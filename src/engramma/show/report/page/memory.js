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
