// The chosen step: what it was, where it was called, its picture, and who waited for whom.

import { linkTo } from "lab/address";
import { chip, element, paragraph, sourceLink } from "lab/dom";
import { bytes, capital, duration, nameRanks } from "lab/words";

export function startStep(model, choice) {
  const panel = document.getElementById("step");
  let shown = null;
  choice.onChange((step) => {
    if (shown === (step ?? 0)) return; // a filter changed, and not the choice
    shown = step ?? 0;
    panel.replaceChildren(...(step ? describe(model, step) : [paragraph("Choose a step.", "quiet-text")]));
    fit(panel.querySelector(".drawing svg"));
  });
}

function describe(model, step) {
  return [heading(step), summary(step), picture(model, step), waiting(step), table(step)];
}

// Its name, and the link that leads here.
function heading({ number, title }) {
  const copy = element("button", { type: "button", class: "copy" }, "Copy link");
  copy.onclick = async () => {
    try {
      await navigator.clipboard.writeText(linkTo(number));
      copy.textContent = "Copied";
    } catch {
      location.hash = `step-${number}`; // the browser keeps its clipboard to itself
      copy.textContent = "In the address bar";
    }
  };
  const link = element("a", { href: `#step-${number}` }, `Step ${number}`);
  return element("div", { class: "heading" }, element("h3", {}, title), element("div", { class: "tools" }, link, copy));
}

function summary(step) {
  const [{ at, via, op, phase, bucket, params, async }] = step.calls;
  const parts = [
    at && sourceLink(at),
    via && via !== op && `through ${via}`,
    phase && `in ${phase}`,
    bucket >= 0 && `bucket ${bucket} (${params})`,
    bytes(step.bytes),
    step.open ? step.state : duration(step.dur),
    async && "asynchronous",
  ];
  return element(
    "p",
    { class: "quiet-text summary" },
    ...parts.filter(Boolean).flatMap((part, i) => (i ? [" · ", part] : [part])),
  );
}

function picture(model, { number, picture: shown }) {
  const markup = model.pictures[shown];
  if (!markup) return "";
  const drawing = new DOMParser().parseFromString(markup, "image/svg+xml").documentElement;
  const holder = element(
    "div",
    { class: "drawing", tabindex: "0", role: "region", "aria-label": "Picture", "data-step": shown },
    drawing,
  );
  const caption = paragraph(drawing.querySelector("desc")?.textContent, "caption");
  const words = `The picture is that of step ${shown}, the same call at the same line; its values may differ.`;
  return element("div", {}, holder, caption, shown === number ? "" : paragraph(words, "quiet-text"));
}

const phone = matchMedia("(max-width: 760px)");

// On phones the text of a picture stands below it, and the picture is as wide as what is left.
function fit(drawing) {
  if (!drawing || !phone.matches) return;
  const { x, y, width, height } = drawing.getBBox();
  if (!width) return;
  drawing.setAttribute("viewBox", `${x - 4} ${y - 4} ${width + 8} ${height + 8}`);
  drawing.setAttribute("width", width + 8);
  drawing.setAttribute("height", height + 8);
}

function waiting({ calls, missing, last }) {
  if (missing.length) {
    return paragraph(`${capital(nameRanks(missing))} never entered, so no rank could finish.`, "bad waiting");
  }
  if (calls.some((call) => call.open)) return ""; // nobody knows for whom they wait
  const longest = calls.reduce((a, b) => (b.wait > a.wait ? b : a));
  if (last < 0 || longest.wait <= 0) return "";
  const words = `Rank ${longest.rank} waited ${duration(longest.wait)} for rank ${last}`;
  const others = calls.filter((call) => call.wait > 0).length - 1;
  return paragraph(others > 0 ? `${words}; ${others} more waited too.` : `${words}.`, "waiting");
}

function table(step) {
  const heads = ["rank", "call", "entered", "waited", "took", "bytes", "end"];
  const rows = step.calls.map((call) => [
    chip(call.rank),
    call.op,
    `+${duration(call.begin - step.begin)}`,
    call.wait < 0 ? "–" : duration(call.wait),
    call.open ? "–" : duration(call.dur),
    bytes(call.bytes),
    element("span", { class: call.error || call.open ? "bad" : "" }, call.error || (call.open ? "never done" : "done")),
  ]);
  const absent = step.missing.map((rank) =>
    element("tr", {}, element("td", {}, chip(rank)), element("td", { class: "bad", colspan: "6" }, "never entered")),
  );
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const body = rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell))));
  const whole = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body, ...absent));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ranks of this step" }, whole);
}
