// The run as objects: ranks with their calls and phases, steps with the calls of their ranks. Times are microseconds.

import { reachOf } from "lab/spans";

const WORDS = new Set(["op", "at", "via", "phase", "params", "error", "title", "state", "name"]);

// From the page's data: JSON, compressed, as base64.
export async function readModel(element) {
  return buildModel(await unpack(element));
}

export async function unpack(element) {
  const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return await new Response(stream).json();
}

export function buildModel(data) {
  const [calls, steps, marks, logs] = [data.calls, data.steps, data.marks, data.logs].map((one) => lines(one, data));
  const ranks = data.ranks.map((one) => ({ ...one, calls: [], marks: [], logs: [], notes: [] }));
  const rankOf = new Map(ranks.map((one) => [one.rank, one]));
  for (const mark of marks) rankOf.get(mark.rank).marks.push(mark);
  for (const line of logs) rankOf.get(line.rank)?.logs.push(line);
  for (const note of data.notes) rankOf.get(note.rank)?.notes.push(note);
  for (const step of steps) step.calls = [];
  for (const call of calls) {
    rankOf.get(call.rank).calls.push(call);
    call.step = steps[call.step - 1] ?? null;
    call.step?.calls.push(call);
  }
  for (const rank of ranks) rank.reach = reachOf(rank.calls);
  return { ...data, calls, steps, marks, logs, ranks };
}

// Columns as an object for each line; what never ended lasts as the run does.
function lines(columns, { names, span }) {
  let begin = 0;
  return columns.begin.map((after, index) => {
    begin += after;
    const line = { number: index + 1 };
    for (const key in columns) line[key] = WORDS.has(key) ? names[columns[key][index]] : columns[key][index];
    const open = line.dur < 0;
    return Object.assign(line, { begin, open, end: open ? span[1] : begin + line.dur });
  });
}
