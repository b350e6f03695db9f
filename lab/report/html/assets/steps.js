// The list of steps: of however many, only the rows in view are elements.

import { element } from "lab/dom";
import { stateOf, titleOf } from "lab/model";
import { duration } from "lab/words";

const ROW = 44;

export function startSteps(model, choice) {
  const list = document.getElementById("steps");
  const space = element("div", { style: { height: `${model.stepCount * ROW}px` }, role: "presentation" });
  list.append(space);
  let first = -1;
  let last = -1;

  function draw(force) {
    const from = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const to = Math.min(model.stepCount, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4);
    if (!force && from === first && to === last) return;
    first = from;
    last = to;
    const rows = [];
    for (let i = from; i < to; i += 1) rows.push(row(i + 1));
    space.replaceChildren(...rows);
  }

  function row(number) {
    const state = stateOf(model, number);
    const call = model.callsOf(number)[0];
    const took = model.steps.end[number - 1];
    return element(
      "div",
      {
        id: `step-${number}`,
        role: "option",
        "aria-selected": String(number === choice.number),
        "aria-posinset": number,
        "aria-setsize": model.stepCount,
        "data-step": number,
        style: { top: `${(number - 1) * ROW}px` },
      },
      element("small", {}, String(number)),
      element("span", { class: state === "completed" ? "title" : "title bad" }, titleOf(model, number)),
      element("small", {}, took < 0 ? state : duration(took)),
      element("small", { class: "where" }, where(call)),
    );
  }

  function where(call) {
    const at = model.word(model.calls.at[call]);
    const bucket = model.calls.bucket[call];
    const phase = model.word(model.calls.phase[call]);
    const words = [at, bucket >= 0 ? `bucket ${bucket}` : phase];
    return words.filter(Boolean).join(" · ");
  }

  function reveal(number) {
    const top = (number - 1) * ROW;
    if (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight) {
      list.scrollTop = top - (list.clientHeight - ROW) / 2;
    }
  }

  list.addEventListener("scroll", () => draw(false), { passive: true });
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[data-step]");
    if (option) choice.set(Number(option.dataset.step), "list");
  });
  list.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in moves) choice.move(moves[event.key]);
    else if (event.key === "Home") choice.set(1, "keys");
    else if (event.key === "End") choice.set(model.stepCount, "keys");
    else return;
    event.preventDefault();
  });
  choice.onChange((number) => {
    if (number) reveal(number);
    list.setAttribute("aria-activedescendant", number ? `step-${number}` : "");
    draw(true);
  });
  new ResizeObserver(() => draw(true)).observe(list);
  draw(true);
}
