// The list of steps: of however many, only the rows in view are elements.

import { element } from "lab/dom";
import { duration } from "lab/words";

const ROW = 44;

export function startSteps({ steps }, choice) {
  const list = document.getElementById("steps");
  const space = element("div", { style: `height: ${steps.length * ROW}px`, role: "presentation" });
  list.append(space);

  function draw() {
    const from = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const to = Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4;
    space.replaceChildren(...steps.slice(from, to).map(row));
  }

  function row({ number, round, state, title, open, dur, calls: [{ at, bucket, phase }] }) {
    const what = round ? `round ${round}` : bucket >= 0 ? `bucket ${bucket}` : phase;
    return element(
      "div",
      {
        id: `step-${number}`,
        role: "option",
        "aria-selected": number === choice.number,
        "aria-posinset": number,
        "aria-setsize": steps.length,
        "data-step": number,
        style: `top: ${(number - 1) * ROW}px`,
      },
      element("small", {}, number),
      element("span", { class: state === "completed" ? "title" : "title bad" }, title),
      element("small", {}, open ? state : duration(dur)),
      element("small", { class: "where" }, [at, what].filter(Boolean).join(" · ")),
    );
  }

  function reveal(number) {
    const top = (number - 1) * ROW;
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
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in moves) choice.move(moves[event.key]);
    else if (event.key === "Home") choice.set(1);
    else if (event.key === "End") choice.set(steps.length);
    else return;
    event.preventDefault();
  });
  choice.onChange((step) => {
    if (step) reveal(step.number);
    list.setAttribute("aria-activedescendant", step ? `step-${step.number}` : "");
    draw();
  });
  new ResizeObserver(draw).observe(list);
}
