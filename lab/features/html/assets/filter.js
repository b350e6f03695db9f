// Which steps are listed: by text, operation, rank, and line, slow ones, wrong ones.

import { element } from "lab/dom";
import { integer, plural } from "lab/words";

const SLOWER = 2;
const SLOWER_US = 1000;
const FEW = 3;

export function startFilter({ steps }, choice, address) {
  const form = document.getElementById("filter");
  if (!form) return;
  const controls = Object.fromEntries(
    ["text", "op", "rank", "line", "slow", "wrong"].map((name) => [name, document.getElementById(`step-${name}`)]),
  );
  const count = document.getElementById("step-count");
  const facts = prepare(steps);
  fill(controls.op, facts.ops);
  fill(controls.line, facts.lines);
  fill(controls.rank, facts.ranks, (rank) => `rank ${rank}`);

  const said = (control) => (control.type === "checkbox" ? (control.checked ? "1" : "") : control.value.trim());

  function filter() {
    const wanted = Object.entries(controls)
      .map(([name, control]) => [name, said(control)])
      .filter(([, value]) => value);
    const fits = wanted.map(([name, value]) => TESTS[name](value, facts));
    const shown = fits.length ? steps.filter((step) => fits.every((test) => test(step))) : steps;
    choice.show(shown);
    tell(shown.length);
    return wanted;
  }

  function tell(shown) {
    const all = plural(steps.length, "step");
    count.textContent = shown === steps.length ? all : `${integer(shown)} of ${all}`;
    document.getElementById("step-all").disabled = shown === steps.length;
  }

  form.addEventListener("input", () => {
    const wanted = new Map(filter());
    for (const name in controls) address.put(name, wanted.get(name));
  });
  form.addEventListener("reset", () => {
    setTimeout(() => form.dispatchEvent(new Event("input"))); // once the fields are empty
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    controls.text.focus();
  });
  for (const [name, control] of Object.entries(controls)) {
    address.bind(name, (value) => {
      if (control.type === "checkbox") control.checked = value === "1";
      else control.value = value;
      filter();
    });
  }
  tell(steps.length);
}

const TESTS = {
  text: (value, facts) => {
    const wanted = value.toLowerCase();
    return (step) => facts.text(step).includes(wanted);
  },
  op: (value) => (step) => step.calls.some((call) => call.op === value),
  rank: (value) => (step) =>
    step.calls.some((call) => call.rank === Number(value)) || step.missing.includes(Number(value)),
  line: (value) => (step) => step.calls.some((call) => call.at === value),
  slow: (_, facts) => (step) => facts.slow().has(step),
  wrong: () => isWrong,
};

// Whether a step failed, never ended, or has a result that is not what the operation gives.
export function isWrong({ state, wrong }) {
  return state !== "completed" || wrong > 0;
}

// Steps that took much longer than others of the same operation, line, and size do.
export function findSlow(steps) {
  const kinds = Map.groupBy(
    steps.filter((step) => !step.open),
    ({ calls: [{ op, at, bytes }] }) => `${op} ${at} ${bytes}`,
  );
  const usual = middle([...kinds.values()].flat());
  const slow = new Set();
  for (const kind of kinds.values()) {
    const median = kind.length < FEW ? usual : middle(kind);
    for (const step of kind) if (step.dur > SLOWER * median && step.dur - median >= SLOWER_US) slow.add(step);
  }
  return slow;
}

function middle(steps) {
  const times = steps.map((step) => step.dur).sort((a, b) => a - b);
  return times[times.length >> 1] ?? 0;
}

// What the filter needs of all steps; what takes long is made when it is asked for.
function prepare(steps) {
  const [ops, lines, ranks] = [new Set(), new Set(), new Set()];
  for (const { calls, missing } of steps) {
    for (const rank of missing) ranks.add(rank);
    for (const { op, at, rank } of calls) {
      ops.add(op);
      ranks.add(rank);
      if (at) lines.add(at);
    }
  }
  const texts = new Map();
  let slow = null;
  return {
    ops: [...ops].sort(),
    lines: [...lines].sort(new Intl.Collator("en", { numeric: true }).compare),
    ranks: [...ranks].sort((a, b) => a - b),
    text(step) {
      if (!texts.has(step)) texts.set(step, textOf(step));
      return texts.get(step);
    },
    slow() {
      slow ??= findSlow(steps);
      return slow;
    },
  };
}

function textOf({ title, state, calls }) {
  const words = calls.flatMap(({ op, at, via, phase, params, error }) => [op, at, via, phase, params, error]);
  return [title, state, ...new Set(words)].join(" ").toLowerCase();
}

function fill(select, values, name = (value) => value) {
  select.append(...values.map((value) => element("option", { value }, name(value))));
  select.hidden = values.length < 2;
}
