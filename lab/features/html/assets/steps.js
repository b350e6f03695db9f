// The list of steps: of however many, only the rows in view are elements; on paper all are, as far as it is practical.

import { element, paragraph } from "lab/dom";
import { isWrong } from "lab/filter";
import { duration, integer } from "lab/words";

const ROW = 44;
const MOST_PRINTED = 1000;
const GROUPED = 4; // so many equal steps in a row share a line of the list

export function startSteps(choice) {
  const list = document.getElementById("steps");
  const nothing = document.getElementById("no-steps");
  const space = element("div", { role: "presentation" });
  list.append(space);
  const each = document.getElementById("step-each");
  let printing = false;
  let rows = [];

  function draw() {
    const from = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const to = Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4;
    const [first, end] = printing ? [0, MOST_PRINTED] : [from, to];
    space.replaceChildren(...rows.slice(first, end).map((steps, i) => row(steps, first + i)));
    const rest = rows.length - MOST_PRINTED;
    if (printing && rest > 0) space.append(paragraph(`${integer(rest)} more steps are not printed.`, "quiet-text"));
  }

  function print(on) {
    printing = on;
    fill();
    draw();
  }

  function row(steps, place) {
    const [step, last] = [steps[0], steps.at(-1)];
    const { number, round, state, title, open, calls } = step;
    const [{ op, at, bucket, phase }] = calls;
    const what = round ? `round ${round}` : bucket >= 0 ? `bucket ${bucket}` : phase;
    const result = step.wrong ? "wrong result" : "";
    const selected = steps.findIndex((one) => one.number === choice.number);
    const chosen = steps.length > 1 && selected >= 0 ? `step ${steps[selected].number} chosen` : "";
    const times = steps.map(({ dur }) => dur).sort((a, b) => a - b);
    const took = [...new Set([duration(times[0]), duration(times.at(-1))])].join(" to ");
    return element(
      "div",
      {
        id: `option-${number}`,
        role: "option",
        "aria-selected": selected >= 0,
        "aria-posinset": place + 1,
        "aria-setsize": rows.length,
        "data-step": number,
        style: `top: ${place * ROW}px`,
      },
      element("small", {}, steps.length > 1 ? `${number}–${last.number}` : number),
      element(
        "span",
        { class: isWrong(step) ? "title bad" : "title" },
        steps.length > 1 ? `${integer(steps.length)} × ${op}` : title,
      ),
      element("small", {}, open ? state : took),
      element("small", { class: "where" }, [result, chosen, at, what].filter(Boolean).join(" · ")),
    );
  }

  // Which row shows the chosen step.
  function place() {
    return rows.findIndex((steps) => steps.at(-1).number >= choice.number);
  }

  function fill() {
    const groups = groupEqual(choice.shown);
    if (each) each.parentElement.hidden = groups.length === choice.shown.length && !each.checked;
    rows = printing || each?.checked ? choice.shown.map((step) => [step]) : groups;
    resize();
  }

  // The space that all rows take; nothing at all where there is none.
  function resize() {
    space.style.height = printing ? "auto" : `${rows.length * ROW}px`;
    list.style.setProperty("--count", rows.length);
    list.hidden = !rows.length;
    nothing.hidden = !list.hidden;
  }

  function reveal() {
    const top = place() * ROW;
    if (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight) {
      list.scrollTop = top - (list.clientHeight - ROW) / 2;
    }
  }

  list.addEventListener("scroll", draw);
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[data-step]");
    if (option) choice.set(Number(option.dataset.step));
  });
  list.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const [all, keys] = [choice.shown.length, { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page }];
    const by = { ...keys, Home: -all, End: all }[event.key];
    if (by === undefined) return;
    choice.move(by);
    event.preventDefault();
  });
  choice.onChange((_, origin) => {
    if (origin === "filter") fill();
    if (choice.stands()) reveal();
    list.setAttribute("aria-activedescendant", choice.stands() ? `option-${rows[place()][0].number}` : "");
    draw();
  });
  fill();
  new ResizeObserver(draw).observe(list);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
}

// Steps in order, as lists: steps that follow each other and do the same at the same line share one.
export function groupEqual(steps) {
  const groups = [];
  let last = "";
  for (const step of steps) {
    const [{ op, at, phase, bytes, bucket }] = step.calls;
    const kind = [
      op,
      at,
      phase,
      bytes,
      bucket,
      step.round,
      step.state,
      step.wrong,
      step.calls.map(({ rank }) => rank),
    ].join();
    if (kind === last) groups.at(-1).push(step);
    else groups.push([step]);
    last = kind;
  }
  return groups.flatMap((group) => (group.length < GROUPED ? group.map((step) => [step]) : [group]));
}
