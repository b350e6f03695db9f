// The run as typed arrays: calls rank by rank, steps, and which calls belong to which step.

export const ASYNCHRONOUS = 1;
export const FAILED = 2;

export function buildModel(data) {
  const calls = data.calls;
  const steps = data.steps;
  const callCount = calls.step.length;
  const begin = new Float64Array(callCount);
  const end = new Float64Array(callCount);
  const rankOf = new Int32Array(callCount);
  const slices = new Map();
  let at = 0;
  for (const [rank, count] of calls.ranks) {
    let time = 0;
    let rows = 1;
    for (let i = at; i < at + count; i += 1) {
      time += calls.begin[i];
      begin[i] = time;
      end[i] = calls.dur[i] < 0 ? data.span[1] : time + calls.dur[i];
      rankOf[i] = rank;
      rows = Math.max(rows, calls.row[i] + 1);
    }
    slices.set(rank, { from: at, to: at + count, rows });
    at += count;
  }
  return {
    ...data,
    callCount,
    stepCount: steps.op.length,
    begin,
    end,
    rankOf,
    slices,
    stepBegin: summed(steps.begin),
    callsOf: callsByStep(calls.step, steps.op.length),
    marksOf: marksByRank(data),
    word: (index) => data.names[index],
  };
}

// How a person would call a step (from 1).
export function titleOf(model, number) {
  const steps = model.steps;
  const i = number - 1;
  const op = model.word(steps.op[i]);
  if (steps.seq[i] < 0) return `${op} ${who(steps.from[i])} → ${who(steps.to[i])}`;
  const group = model.word(steps.group[i]);
  return `${op} #${steps.seq[i]}${group ? ` in ${group}` : ""}`;
}

export function stateOf(model, number) {
  return model.word(model.steps.state[number - 1]);
}

// Moment at which the last participant entered; null if somebody never did.
export function readyOf(model, number) {
  const after = model.steps.ready[number - 1];
  return number && after >= 0 ? model.stepBegin[number - 1] + after : null;
}

// Index of the first element at or after a value, in a sorted part of an array.
export function lowerBound(array, value, from, to) {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function who(rank) {
  return rank < 0 ? "?" : rank;
}

function summed(differences) {
  const result = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < differences.length; i += 1) {
    sum += differences[i];
    result[i] = sum;
  }
  return result;
}

function callsByStep(stepOfCall, stepCount) {
  const starts = new Int32Array(stepCount + 2);
  for (const step of stepOfCall) starts[step + 1] += 1;
  for (let i = 1; i < starts.length; i += 1) starts[i] += starts[i - 1];
  const next = starts.slice();
  const order = new Int32Array(stepOfCall.length);
  stepOfCall.forEach((step, call) => {
    order[next[step]] = call;
    next[step] += 1;
  });
  return (number) => order.subarray(starts[number], starts[number + 1]);
}

function marksByRank(data) {
  const result = new Map();
  let time = 0;
  let before = null;
  data.marks.rank.forEach((rank, i) => {
    time = rank === before ? time + data.marks.begin[i] : data.marks.begin[i];
    before = rank;
    if (!result.has(rank)) result.set(rank, []);
    const name = data.names[data.marks.name[i]];
    result.get(rank).push({ begin: time, end: time + data.marks.dur[i], name });
  });
  return result;
}
