// The list of steps: of however many, only the rows in view are elements; on paper all are, as far as it is practical.

import { element, paragraph } from "lab/dom";
import { isWrong } from "lab/filter";
import { duration, integer } from "lab/words";

const ROW = 44;
const MOST_PRINTED = 1000;

export function startSteps(choice) {
  const list = document.getElementById("steps");
  const nothing = document.getElementById("no-steps");
  const space = element("div", { role: "presentation" });
  list.append(space);
  let printing = false;

  function draw() {
    const from = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const to = Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4;
    const [first, end] = printing ? [0, MOST_PRINTED] : [from, to];
    space.replaceChildren(...choice.shown.slice(first, end).map((step, i) => row(step, first + i)));
    const rest = choice.shown.length - MOST_PRINTED;
    if (printing && rest > 0) space.append(paragraph(`${integer(rest)} more steps are not printed.`, "quiet-text"));
  }

  function print(on) {
    printing = on;
    resize();
    draw();
  }

  function row(step, place) {
    const { number, round, state, title, open, dur, calls } = step;
    const [{ at, bucket, phase }] = calls;
    const what = round ? `round ${round}` : bucket >= 0 ? `bucket ${bucket}` : phase;
    const result = step.wrong ? "wrong result" : "";
    return element(
      "div",
      {
        id: `option-${number}`,
        role: "option",
        "aria-selected": number === choice.number,
        "aria-posinset": place + 1,
        "aria-setsize": choice.shown.length,
        "data-step": number,
        style: `top: ${place * ROW}px`,
      },
      element("small", {}, number),
      element("span", { class: isWrong(step) ? "title bad" : "title" }, title),
      element("small", {}, open ? state : duration(dur)),
      element("small", { class: "where" }, [result, at, what].filter(Boolean).join(" · ")),
    );
  }

  // The space that all rows take; nothing at all where there is none.
  function resize() {
    space.style.height = printing ? "auto" : `${choice.shown.length * ROW}px`;
    list.style.setProperty("--count", choice.shown.length);
    list.hidden = !choice.shown.length;
    nothing.hidden = !list.hidden;
  }

  function reveal() {
    const top = choice.place() * ROW;
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
    if (origin === "filter") resize();
    if (choice.stands()) reveal();
    list.setAttribute("aria-activedescendant", choice.stands() ? `option-${choice.number}` : "");
    draw();
  });
  resize();
  new ResizeObserver(draw).observe(list);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
}
